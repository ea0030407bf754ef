"""The commands and their options. Nothing heavy is imported before a command runs."""

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from undirected.cli import options
from undirected.cli.choices import EVALUATE_METHODS, QUERY_METHODS, check_choice, check_choices
from undirected.cli.options import AsJson, Header, ModelFolder, Seed, TableFile

app = typer.Typer(
    name="undirected",
    help="Undirected graphical models: learn them, query them, sample from them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help="List the data sets, or fetch one into the cache.", no_args_is_help=True
)
app.add_typer(data_app, name="data")


def _family_commands(folder: Path) -> Any:
    """The commands for the model of an alignment; None where a folder holds one of a table."""
    from undirected.io.model_record import describe_model

    if not isinstance(describe_model(folder)["extra"].get("family"), dict):
        return None
    from undirected.cli import family

    return family


FOR_TABLES = [
    *("header", "types", "drop", "columns", "label", "given", "delimiter", "image"),
    *("hidden", "components", "epochs", "batch", "learning_rate", "validation", "patience"),
    *("devices", "stream"),
]
"""Options of `fit` that say nothing about an alignment."""


def _refuse(context: typer.Context, names: Iterable[str], whose: str) -> None:
    """Refuse options that were given and would change nothing."""
    from undirected.core.errors import UndirectedError

    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.replace("_", "-")
            raise UndirectedError(f"{context.info_name}: --{option} is {whose}; leave it out")


def _print_version(wanted: bool) -> None:
    if wanted:
        from undirected import __version__

        typer.echo(f"undirected {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Undirected graphical models: learn them, query them, sample from them."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the model.")] = Path("demo"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    r"""Learn handwritten digits, sample new ones, fill in hidden halves; write a page.

    Needs the 5,000 digits that come with [cyan]pip install "undirected\[demo]"[/]; about two
    minutes on two cores.
    """
    from undirected.cli.demo import run_demo

    run_demo(out, seed, as_json)


@app.command()
def fit(
    context: typer.Context,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="Folder to write the model to.")] = Path("model"),
    header: Header = None,
    types: options.Types = None,
    drop: options.Drop = None,
    columns: options.Columns = None,
    label: options.Label = None,
    given: options.Given = None,
    delimiter: options.Delimiter = None,
    model: options.Kind = "auto",
    method: options.Method = "auto",
    hidden: options.Hidden = None,
    components: options.Components = None,
    epochs: options.Epochs = None,
    batch: options.Batch = None,
    learning_rate: options.Rate = None,
    validation: options.Validation = 0.1,
    patience: options.Patience = None,
    image: options.ImageShape = None,
    target: options.Target = 0.95,
    unknown: options.Unknown = "error",
    devices: options.Devices = None,
    stream: options.Stream = None,
    fresh: options.Fresh = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table, which may have missing entries, or to an alignment.

    What the columns hold is found out, printed and kept with the model. Writes a model folder. An
    interrupted run goes on where it stopped when the same command is given again. A FASTA file is
    an alignment, and gets a Potts model.

    [dim]undirected fit votes.csv --out votes-model[/]
    """
    from undirected.cli.family import fit_alignment, is_alignment

    if is_alignment(table):
        _refuse(context, FOR_TABLES, "not for an alignment")
        return fit_alignment(table, out, model, method, target, unknown, seed, fresh, as_json)
    _refuse(context, ["target", "unknown"], "for an alignment")
    check_choices(model, method)
    from undirected.cli.columns import Wishes
    from undirected.cli.train import Settings, fit_table

    settings = Settings(
        model,
        method,
        hidden,
        epochs,
        batch,
        learning_rate,
        validation,
        patience,
        image,
        seed,
        components,
    )
    wishes = Wishes(header, types, drop, columns, label, delimiter, given)
    fit_table(table, wishes, out, settings, fresh, as_json, devices, stream)


@app.command()
def query(
    model: ModelFolder,
    rows: TableFile,
    out: options.Answers = None,
    completion: Annotated[
        Path | None, typer.Option(help="Also write the most probable completion here.")
    ] = None,
    header: Header = None,
    method: options.QueryMethod = "auto",
    seed: Seed = 0,
    progress: options.ShowProgress = False,
    as_json: AsJson = False,
) -> None:
    """Fill in missing entries given those that are there: words, numbers, and how sure they are.

    Rows are answered in chunks, so any number of rows fits into memory. Entries that are given
    are copied. A column that the table does not have is missing throughout.

    [dim]undirected query votes-model open.csv --out answers.csv --completion best.csv[/]
    """
    check_choice("query: method", method, QUERY_METHODS)
    from undirected.cli.answer import query_table

    query_table(model, rows, header, out, completion, method, seed, as_json, progress)


@app.command()
def sample(
    context: typer.Context,
    model: ModelFolder,
    out: Annotated[
        Path, typer.Option(help="Table of samples: .csv, .npy, .parquet ...; of a family: .fasta.")
    ],
    count: Annotated[int, typer.Option(help="Number of samples, each from its own chain.")] = 100,
    sweeps: Annotated[int, typer.Option(help="Gibbs sweeps from a random start.")] = 1000,
    given: Annotated[
        Path | None, typer.Option(help="A table of one row: sample its missing entries only.")
    ] = None,
    header: Header = None,
    png: Annotated[
        Path | None, typer.Option(help="Also draw the samples as a grid of images.")
    ] = None,
    seed: Seed = 0,
    progress: options.ShowProgress = False,
    as_json: AsJson = False,
) -> None:
    """Draw samples from a model, exactly where that is possible; of a family, as FASTA.

    [dim]undirected sample digits-model --out samples.npy --png samples.png[/]
    """
    from undirected.core.files import check_place

    check_place(out)
    if family := _family_commands(model):
        _refuse(context, ["given", "png", "header"], "not for an alignment")
        return family.sample_family(model, out, count, sweeps, seed, as_json)
    from undirected.cli.answer import sample_model

    sample_model(model, out, count, sweeps, given, header, png, seed, as_json, progress)


@app.command()
def contacts(
    model: ModelFolder,
    out: Annotated[Path, typer.Option(help="Table with the columns i, j, score, best first.")],
    separation: Annotated[
        int, typer.Option(min=0, help="Leave out pairs that are no further apart than this.")
    ] = 4,
    png: Annotated[Path | None, typer.Option(help="Also draw a map of the best 2L pairs.")] = None,
    as_json: AsJson = False,
) -> None:
    """Which positions of a family touch: pairs from 1, by the strength of their couplings.

    [dim]undirected fit family.fasta --model potts --out family-model[/]
    [dim]undirected contacts family-model --out contacts.csv --png map.png[/]
    """
    from undirected.cli.family import list_contacts

    list_contacts(model, out, separation, png, as_json)


@app.command()
def evaluate(
    context: typer.Context,
    model: ModelFolder,
    table: TableFile,
    header: Header = None,
    method: options.EvaluateMethod = "auto",
    chains: Annotated[int, typer.Option(help="Chains of AIS.")] = 200,
    betas: Annotated[int, typer.Option(help="Temperatures of AIS.")] = 2000,
    unknown: options.Unknown = "error",
    seed: Seed = 0,
    progress: options.ShowProgress = False,
    as_json: AsJson = False,
) -> None:
    """Log-likelihood of a table under a model, with its error.

    The partition function is exact where the model is small enough, otherwise estimated by annealed
    importance sampling from below and from above.
    """
    check_choice("evaluate: method", method, EVALUATE_METHODS)
    if family := _family_commands(model):
        _refuse(context, ["header"], "not for an alignment")
        settings = method, chains, betas, unknown, seed, as_json
        return family.evaluate_family(model, table, *settings)
    _refuse(context, ["unknown"], "for an alignment")
    from undirected.cli.evaluate import evaluate_table

    evaluate_table(model, table, header, method, chains, betas, seed, as_json, progress)


@app.command()
def describe(model: ModelFolder, as_json: AsJson = False) -> None:
    """Say what a model is: kind, size, columns, training, scores, what hangs together."""
    if family := _family_commands(model):
        return family.describe_family(model, as_json)
    from undirected.cli.describe import describe_folder

    describe_folder(model, as_json)


@app.command()
def explore(
    model: Annotated[
        Path, typer.Argument(help="A model folder, or a network's .uai file (also gz, xz).")
    ],
    rows: Annotated[
        Path | None, typer.Option(help="A table whose rows can be loaded on the page.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for explore.html; default: that of the model.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
    serve: Annotated[
        bool, typer.Option(help="Answer from the engine on 127.0.0.1 instead, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of --serve; 0: a free one.")] = 0,
    image: options.ImageShape = None,
    as_json: AsJson = False,
) -> None:
    """Write a page on which one sees the model think, and open it.

    One HTML file that holds the model and its inference: it loads nothing, sends nothing, and works
    from disk. Pictures are painted, columns set, messages of a network played round by round.

    [dim]undirected explore digits-model --rows digits.csv[/]
    """
    from undirected.cli.explore import explore_model, serve_model

    if serve:
        serve_model(model, rows, port, open_page, image, as_json)
    else:
        explore_model(model, rows, out, open_page, image, as_json)


@app.command()
def solve(
    model: Annotated[Path, typer.Argument(help="A network: .uai, MARKOV or BAYES; gz or xz too.")],
    out: Annotated[Path, typer.Option(help="The answer, in the competition's format.")],
    evidence: Annotated[
        Path | None, typer.Option(help="Observed variables: a .evid file of the UAI format.")
    ] = None,
    task: Annotated[
        str,
        typer.Option(help="mar (marginals), pr (log Z), map (best state) or mmap (marginal MAP)."),
    ] = "mar",
    seconds: Annotated[
        float, typer.Option(min=0.1, help="When the process ends at the latest, with an answer.")
    ] = 20.0,
    memory: Annotated[str, typer.Option(help="For tables, such as 500M or 4G.")] = "4G",
    maximise: Annotated[
        str, typer.Option(help="The variables of --task mmap, such as 3,17,40.")
    ] = "",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Marginals, log Z or best states of a network, exact where time and memory allow.

    Where they do not, the answer improves until the time is up, and says so; Ctrl-C gives the best
    so far. The answer is also written as JSON, beside the file.

    [dim]undirected solve model.uai --evidence model.uai.evid --task mar --out model.MAR[/]
    """
    from undirected.cli.solve import solve_file

    solve_file(model, evidence, task, seconds, memory, maximise, out, seed, as_json)


@app.command()
def compare(
    model: ModelFolder,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("samplers.html"),
    header: Header = None,
    chains: Annotated[int, typer.Option(help="Chains of every sampler.")] = 500,
    sweeps: Annotated[
        str, typer.Option(help="Numbers of sweeps to look after.")
    ] = "1,3,10,30,100,300",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Sample a model in all ways that fit it; a page shows quality against time and work.

    The model is one of 0/1 columns. Samples are held against the rows of a table: those it was
    fitted to, or new ones.
    """
    from undirected.cli.compare import compare_samplers

    compare_samplers(model, table, header, out, chains, sweeps, seed, as_json)


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="PAPER or PAPER/EXPERIMENT; none: list them.")
    ] = None,
    profile: Annotated[str, typer.Option(help="smoke, quick or full.")] = "quick",
    out: Annotated[Path, typer.Option(help="Folder for records and the page.")] = Path("results"),
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: key=value.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option(help="Start anew; replace the record of another config or seed.")
    ] = False,
    seed: Seed = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs, of seeds from --seed on; the record has their mean.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of a paper again; write its record and a page.

    [dim]undirected reproduce basics --profile smoke[/]
    """
    from undirected.cli.papers import list_experiments, reproduce_paper

    if name is None:
        list_experiments(as_json)
    else:
        reproduce_paper(name, profile, out, change or [], fresh, seed, seeds, as_json)


@app.command()
def report(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Record files or folders of them.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("results/index.html"),
    markdown: Annotated[bool, typer.Option(help="Print the tables as Markdown instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn records into one self-contained HTML page, or into Markdown tables."""
    from undirected.cli.papers import report_records

    report_records(records or [Path("results")], out, markdown, as_json)


@data_app.command("list")
def data_list(as_json: AsJson = False) -> None:
    """List the data sets."""
    from undirected.cli.papers import list_data

    list_data(as_json)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="A name from `undirected data list`.")],
    as_json: AsJson = False,
) -> None:
    """Load a data set, downloading it into the cache when it is not there, and describe it."""
    from undirected.cli.papers import fetch_data

    fetch_data(name, as_json)


def _unwrapped(text: str | None) -> str:
    """A docstring with every paragraph on one line, for the terminal to wrap; examples stay."""
    return re.sub(r"(?<=\S)\n(?=[^\s\[])", " ", inspect.cleandoc(text or ""))


for _command in [*app.registered_commands, *data_app.registered_commands]:
    _command.help = _unwrapped(_command.callback.__doc__) if _command.callback else None
