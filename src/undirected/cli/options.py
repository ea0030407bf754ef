"""Options of the commands, each with its help; nothing heavy is imported here."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from undirected.cli.choices import EVALUATE_METHODS, METHODS, MODELS, QUERY_METHODS


def complete(*words: str) -> Callable[[str], list[str]]:
    """Completion of an option's value in a shell."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


TableFile = Annotated[
    Path,
    typer.Argument(
        help="A table: .csv, .tsv or other delimited text (also .gz), .npy, .npz (FILE.npz:NAME "
        "for one array), .parquet, .arrow; blank, NA, NaN or null is missing. Or FASTA."
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Line 1 of a text table holds names, or data; default: found out by its cells.",
    ),
]
ModelFolder = Annotated[Path, typer.Argument(help="A model folder written by `undirected fit`.")]
Seed = Annotated[
    int,
    typer.Option(min=0, max=2**63 - 1, help="Seed of every random draw: same seed, same result."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

ShowProgress = Annotated[
    bool,
    typer.Option(
        "--progress", help="Say how far it is every few seconds where there is no terminal too."
    ),
]

Types = Annotated[
    str | None,
    typer.Option(
        help="Kinds of columns, as in age=real,colour=category: binary, category, real or "
        "nonnegative; default: by their cells."
    ),
]
Drop = Annotated[str | None, typer.Option(help="Columns to leave out, as in id,name.")]
Columns = Annotated[str | None, typer.Option(help="The only columns to take.")]
Label = Annotated[
    str | None, typer.Option(help="The column that is to be predicted from the others.")
]
Given = Annotated[str | None, typer.Option(help="Columns that a conditional model takes as known.")]
Delimiter = Annotated[str | None, typer.Option(help="Between cells of text: one character or tab.")]
Kind = Annotated[
    str,
    typer.Option(
        help="mixture-rbm (a mixture, hidden units on top), rbm, ising (pairs only), mixed "
        "(columns of any kind), deep, semi-restricted, gaussian, nonnegative, potts or "
        "conditional (with --given); default: by the columns.",
        autocompletion=complete(*MODELS),
    ),
]
Method = Annotated[
    str,
    typer.Option(
        help="pcd, cd, pl (pseudo-likelihood), bp, exact or query-training; default: by the table.",
        autocompletion=complete(*METHODS),
    ),
]
Hidden = Annotated[int | None, typer.Option(help="Hidden units of an RBM; default: by the table.")]
Components = Annotated[
    int | None, typer.Option(help="Most components of the mixture; default: by the table.")
]
Epochs = Annotated[float | None, typer.Option(help="Passes over the rows; default: by the table.")]
Batch = Annotated[int | None, typer.Option(help="Rows per step; default: by the table.")]
Rate = Annotated[
    float | None, typer.Option(help="Of Adam; falls to 0 at the end. By default 0.002 or more.")
]
Validation = Annotated[
    float, typer.Option(help="Share of the rows held out to choose the best step.")
]
Patience = Annotated[
    int | None, typer.Option(help="Stop after so many validations without improvement.")
]
ImageShape = Annotated[
    str | None, typer.Option(help="Rows are images of this shape, such as 28x28.")
]
Devices = Annotated[
    str | None,
    typer.Option(
        help="Split rows and chains over so many devices, or over 'all', those of other processes "
        "included; default: one."
    ),
]
Stream = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream",
        help="Read a .npy or Parquet table of 0 and 1 as it is needed, instead of at once; "
        "default: where it does not fit into memory.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        help="Start anew, even where an interrupted run could go on or --out holds a model of "
        "other data."
    ),
]
Target = Annotated[
    float,
    typer.Option(
        help="Of an alignment by --method pcd: the Pearson correlation of two-letter correlations, "
        "of data and of chains, at which learning stops."
    ),
]
Unknown = Annotated[
    str,
    typer.Option(
        help="Letters of an alignment that its alphabet lacks: error, gap or drop (the sequence).",
        autocompletion=complete("error", "gap", "drop"),
    ),
]
Answers = Annotated[
    Path | None,
    typer.Option(
        help="Table with every missing entry filled in: by p(1) where all is 0/1, otherwise by "
        "words and numbers, with how sure they are. Without it answers are printed."
    ),
]
QueryMethod = Annotated[
    str,
    typer.Option(
        help="auto, bp, mf (mean field), gibbs or exact.", autocompletion=complete(*QUERY_METHODS)
    ),
]
EvaluateMethod = Annotated[
    str,
    typer.Option(
        help="exact, ais, or auto: exact where that is possible.",
        autocompletion=complete("auto", *EVALUATE_METHODS),
    ),
]
