"""Alignments at the command line: fit, contacts, sample, evaluate and describe a family's model."""

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from undirected.cli import console
from undirected.cli.choices import check_choice
from undirected.core.errors import UndirectedError
from undirected.core.files import check_place, locked

SHORT = {"auto": "pseudo-likelihood", "pl": "pseudo-likelihood"}
FORMS = (".fasta", ".fa", ".faa", ".fna", ".afa", ".a2m", ".a3m")
READ = (*FORMS, ".sto", ".stk", ".stockholm")
METHODS = ("pseudo-likelihood", "pcd", "mean-field", "rise", "logrise")
CHAINS = "chains"
"""The folder of a run by chains that is not at its end."""


def is_alignment(path: Path) -> bool:
    """Whether a file is an alignment by what is in it, or by its name: what lacks is told then."""
    from undirected.alignment.sequences import is_fasta

    return is_fasta(path) or path.name.removesuffix(".gz").endswith(READ)


def fit_alignment(
    path: Path,
    out: Path,
    model: str,
    method: str,
    target: float,
    unknown: str,
    seed: int,
    fresh: bool,
    js: bool,
) -> None:
    """Fit a Potts model to an alignment and write its folder."""
    from undirected.alignment import BoltzmannSettings, fit_family, read_fasta

    if model not in ("auto", "potts"):
        raise UndirectedError(
            f"fit: {path} is an alignment, and --model is {model}; pass --model potts"
        )
    method = SHORT.get(method, method)
    check_choice("fit: method", method, METHODS)
    began = time.monotonic()
    alignment = read_fasta(path, unknown=unknown)
    console.say(
        f"{path}: {len(alignment):,} sequences of {alignment.n_positions} positions, letters "
        f"{alignment.letters}; potts by {method}"
    )
    with locked(out, "fitting a model"):
        _check_folder(out, path, fresh)
        measure = "Pearson" if method == "pcd" else "objective"
        teller = _Teller(method, measure)
        options = {"settings": BoltzmannSettings(target=target), "progress": teller}
        store = _store(out, fresh) if method == "pcd" else None
        found = fit_family(alignment, method, seed=seed, store=store, **options)
        found.save(out, {"rows": len(alignment), "source": path.name})
        if store is not None:
            shutil.rmtree(store.folder, ignore_errors=True)
    if method == "pcd" and not found.notes["converged"]:
        console.say(
            f"note: chains that start anew have Pearson {found.notes['pearson']:.3f} after "
            f"{found.notes['steps']} steps, below the target {target}: sequences drawn from this "
            "model differ from the family; few sequences or slow chains can be the reason"
        )
    seconds = round(time.monotonic() - began, 2)
    summary = {"model": str(out), "positions": found.n_positions, "letters": found.letters}
    summary |= found.notes | {"seconds": seconds}
    line = f"Wrote {out} in {seconds:.0f} s: {found.notes['effective']:,.0f} effective sequences"
    told = f", Pearson {found.notes['pearson']:.3f}" if method == "pcd" else ""
    console.result(summary, js, [line + told])


def _store(out: Path, fresh: bool) -> Any:
    """Where checkpoints of chains go; what is there goes on, unless it is to start afresh."""
    from undirected.io.checkpoint import Checkpoints

    folder = Path(out) / CHAINS
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir():
        console.say(f"{out}: going on with the interrupted run")
    return Checkpoints(folder)


class _Teller:
    """Says how far learning is, every few seconds."""

    def __init__(self, method: str, measure: str) -> None:
        self.method, self.measure, self.last = method, measure, time.monotonic()

    def __call__(self, steps: int, value: float) -> None:
        if time.monotonic() - self.last > 5:
            self.last = time.monotonic()
            console.say(f"{self.method}: step {steps}, {self.measure} {value:.4f}")


def _check_folder(out: Path, path: Path, fresh: bool) -> None:
    """Refuse to replace a model of other data."""
    from undirected.alignment import family_notes
    from undirected.io.model_record import describe_model

    if fresh or not (Path(out) / "model.json").exists():
        return
    if family_notes(out) is None or describe_model(out)["extra"].get("source") != path.name:
        raise UndirectedError(
            f"fit: {out} holds a model of other data; add --fresh to replace it, or choose another "
            "--out"
        )


def list_contacts(folder: Path, out: Path, separation: int, png: Path | None, js: bool) -> None:
    """Write the pairs of positions, best first, and perhaps a map of the best 2L."""
    from undirected.alignment import draw_contacts, load_family, write_contacts

    for path in (out, png):
        if path is not None:
            check_place(path)
    family = load_family(folder)
    if separation + 1 >= family.n_positions:
        raise UndirectedError(
            f"contacts: no two of {family.n_positions} positions are more than {separation} apart; "
            "pass a smaller --separation"
        )
    found = family.contacts(separation)
    write_contacts(out, found)
    best = min(2 * family.n_positions, len(found.i))
    if png is not None:
        draw_contacts(png, found, family.n_positions, best)
    rows = zip(*(part[:10].tolist() for part in found), strict=True)
    top = [{"i": i, "j": j, "score": score} for i, j, score in rows]
    summary = {"contacts": str(out), "pairs": len(found.i), "best": top, "png": png and str(png)}
    lines = [f"Wrote {out}: {len(found.i):,} pairs more than {separation} apart, best first"]
    lines += [f"  {row['i']} – {row['j']}: {row['score']:.3f}" for row in top]
    console.result(summary, js, lines + ([f"Wrote {png}"] if png else []))


def sample_family(folder: Path, out: Path, count: int, sweeps: int, seed: int, js: bool) -> None:
    """Write new sequences as FASTA."""
    from undirected.alignment import load_family, write_fasta

    name = out.name.removesuffix(".gz")
    if not name.endswith(FORMS):
        raise UndirectedError(
            f"sample: {out}: sequences are written as FASTA; name a .fasta or .fasta.gz file"
        )
    check_place(out)
    family = load_family(folder)
    write_fasta(out, family.sample(count, sweeps, seed))
    summary = {"samples": str(out), "count": count, "sweeps": sweeps}
    console.result(summary, js, [f"Wrote {out}: {count} sequences"])


def evaluate_family(
    folder: Path,
    path: Path,
    method: str,
    chains: int,
    betas: int,
    unknown: str,
    seed: int,
    js: bool,
) -> None:
    """Log-likelihood of the sequences of an alignment, with log Z by annealing."""
    from undirected.alignment import load_family, potts_log_z, read_fasta

    if method == "exact":
        raise UndirectedError("evaluate: log Z of a family is annealed; leave out --method exact")
    family = load_family(folder)
    if path.is_file() and not is_alignment(path):
        raise UndirectedError(
            f"evaluate: {path} is no alignment; {folder} is a model of an alignment"
        )
    energies = family.energies(read_fasta(path, family.letters, unknown))
    found = potts_log_z(family.potts, betas, chains, seed)
    logs = -energies - found.value
    spread = float(logs.std(ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else 0.0
    summary = {
        "log_likelihood": float(logs.mean()),
        "stderr": spread,
        "energy": float(energies.mean()),
        "log_z": found.value,
        "log_z_stderr": found.error,
        "log_z_integrated": found.integrated,
        "log_z_effective_chains": found.effective,
        "entropy": found.entropy,
        "rows": len(logs),
    }
    lines = [
        f"log-likelihood per sequence   {logs.mean():.3f} ± {spread:.3f} nats",
        f"log Z                         {found.value:.3f} ± {found.error:.3f} by ais, "
        f"{found.integrated:.3f} by integration",
        f"entropy of the model          {found.entropy:.3f} nats",
        f"mean energy                   {energies.mean():.3f}",
    ]
    if abs(found.value - found.integrated) > 1 or found.effective < 10:
        lines.append("note: the two do not agree, or few chains bear the weight: raise --betas")
    console.result(summary, js, lines)


def describe_family(folder: Path, js: bool) -> None:
    """Print size, letters, training and the best contacts."""
    from undirected.alignment import load_family

    family = load_family(folder)
    found = family.contacts(min(4, family.n_positions - 2))
    best = [
        {"i": int(i), "j": int(j), "score": float(score)}
        for i, j, score in zip(*(part[:10] for part in found), strict=True)
    ]
    summary = {"model": str(folder), "class": "Potts", "positions": family.n_positions}
    summary |= {"letters": family.letters, "training": family.notes, "contacts": best}
    lines = [
        f"{folder}: Potts model of an alignment",
        f"positions: {family.n_positions}, letters: {family.letters}",
        "training: " + ", ".join(f"{name} {value}" for name, value in family.notes.items()),
        "best contacts:",
        *(f"  {row['i']} – {row['j']}: {row['score']:.3f}" for row in best),
    ]
    console.result(summary, js, lines)
