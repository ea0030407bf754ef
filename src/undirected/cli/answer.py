"""`undirected query | sample`: what a fitted model has to say."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.cli import console
from undirected.core.errors import UndirectedError
from undirected.core.files import check_place
from undirected.core.layout import Domain
from undirected.core.protocols import Model
from undirected.inference import QueryNetwork
from undirected.io.model_files import describe_model, load_model
from undirected.io.tables import check_writable, read_table, write_table
from undirected.learning import answers as ask_network
from undirected.learning.mixture import Mixture
from undirected.report.images import image_grid
from undirected.tasks import answer_rows
from undirected.tasks.sample import sample_units
from undirected.tasks.yardsticks import load_yardsticks


@dataclass(frozen=True)
class Saved:
    """A model from a folder, with what `fit` wrote beside it."""

    model: Any
    names: list[str]
    image: tuple[int, int] | None
    means: Float[Array, " v"] | None
    network: QueryNetwork | None = None
    yardsticks: dict[str, Mixture] = field(default_factory=dict)


def open_model(folder: Path) -> Saved:
    """Load a model folder."""
    model = load_model(folder)
    if not isinstance(model, Model):
        raise UndirectedError(
            f"{folder}: a {type(model).__name__} gives outputs for features, which a table of its "
            "outputs does not hold; use it from Python, as model.at(features)"
        )
    extra = describe_model(folder)["extra"]
    names = extra.get("names") or [f"x{i}" for i in range(model.layout.n_visible)]
    image, means = extra.get("image"), extra.get("means")
    return Saved(
        model,
        names,
        tuple(image) if image else None,
        None if means is None else jnp.asarray(means, jnp.float32),
        QueryNetwork(model, **extra["query"]) if extra.get("query") else None,
        load_yardsticks(extra.get("yardsticks") or {}),
    )


def query_table(
    folder: Path,
    rows: Path,
    header: bool | None,
    out: Path,
    completion: Path | None,
    method: str,
    seed: int,
    js: bool,
) -> None:
    """Answer the missing entries of a table."""
    started = time.monotonic()
    check_writable(out, *([completion] if completion else []))
    saved = open_model(folder)
    by_network = method in ("auto", "bp") and saved.network is not None
    values = read_for(saved, rows, header, grey=by_network and completion is None)
    missing = np.isnan(values)
    if not missing.any():
        console.say(f"{rows}: no entry is missing; the answers are a copy")
    if by_network:
        answers, converged = np.where(missing, ask_network(saved.network, values), values), None
    else:
        bar = console.Bar(f"query ({method})", "rows")
        with bar.running():
            found = answer_rows(saved.model, values, method=method, seed=seed, progress=bar.update)
        answers, converged = found.values, found.converged
    write_table(out, answers, saved.names, header=True)
    if completion is not None:
        best = answer_rows(saved.model, values, method="map", seed=seed)
        write_table(completion, best.values, saved.names, header=True)
    if converged is not None and converged < 1:
        console.say(
            f"note: {method} settled for {converged:.1%} of the rows; "
            "for the others check with --method gibbs"
        )
    summary = {
        "answers": str(out),
        "completion": None if completion is None else str(completion),
        "rows": len(values),
        "missing": int(missing.sum()),
        "converged": converged,
        "seconds": round(time.monotonic() - started, 2),
    }
    line = f"Wrote {out}: {missing.sum():,} missing entries of {len(values):,} rows answered"
    console.result(summary, js, [line] + ([f"Wrote {completion}"] if completion else []))


def sample_model(
    folder: Path,
    out: Path,
    count: int,
    sweeps: int,
    given: Path | None,
    header: bool | None,
    png: Path | None,
    seed: int,
    js: bool,
) -> None:
    """Write samples of a model, and draw them where they are images."""
    check_writable(out)
    if png is not None:
        check_place(png)
    saved = open_model(folder)
    if png is not None and saved.image is None:
        raise UndirectedError(
            f"sample: {folder} does not say that rows are images; fit with --image ROWSxCOLUMNS"
        )
    n = saved.model.layout.n_visible
    row = np.full(n, np.nan, np.float32)
    if given is not None:
        values = read_for(saved, given, header)
        if len(values) != 1:
            raise UndirectedError(f"{given}: {len(values)} rows; --given takes a table of one row")
        row = values[0]
    bar = console.Bar("sample", "samples")
    with bar.running():
        key = jax.random.key(seed)
        values = sample_units(saved.model, count, row, key, sweeps=sweeps, progress=bar.update)
    values = values[:, :n]
    write_table(out, values, saved.names, header=True)
    if png is not None and saved.image is not None:
        image_grid(values[:400], saved.image, png, columns=max(1, int(min(count, 400) ** 0.5)))
    summary = {"samples": str(out), "count": count, "sweeps": sweeps, "png": png and str(png)}
    console.result(summary, js, [f"Wrote {out}: {count} samples"] + ([f"Wrote {png}"] * bool(png)))


def read_for(
    saved: Saved, path: Path, header: bool | None = None, grey: bool = False
) -> np.ndarray:
    """Read a table for a model: its columns in the model's order, found by name where named so."""
    blocks = [block for block in saved.model.layout.blocks if block.visible]
    discrete = all(block.domain in (Domain.BINARY, Domain.CATEGORICAL) for block in blocks)
    table = read_table(path, binary=discrete and not grey, grey=grey, header=header)
    if set(table.names) == set(saved.names) and len(table.names) == len(saved.names):
        order = [table.names.index(name) for name in saved.names]
        return table.values[:, order]
    wanted = len(saved.names)
    if table.values.shape[1] != wanted:
        raise UndirectedError(
            f"{path}: {table.values.shape[1]} columns, the model has {wanted} "
            f"({', '.join(saved.names[:4])}{', ...' if wanted > 4 else ''})"
        )
    unknown = [name for name in table.names if name not in saved.names]
    if not all(name == f"x{i}" for i, name in enumerate(table.names)):
        raise UndirectedError(
            f"{path}: the model knows no column '{unknown[0]}'; its columns are "
            f"{', '.join(saved.names[:6])}{', ...' if wanted > 6 else ''}"
        )
    return table.values
