"""`undirected query | sample`: what a fitted model has to say."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.cli import console
from undirected.core.errors import UndirectedError
from undirected.core.files import check_place
from undirected.core.layout import Domain
from undirected.core.potentials import batch_axes, clamp
from undirected.core.protocols import Model
from undirected.inference import Exact, MaxProduct, MeanField, QueryNetwork, SumProduct
from undirected.io.model_files import describe_model, load_model
from undirected.io.tables import check_writable, read_table, write_table
from undirected.learning import answers as ask_network
from undirected.report.images import image_grid
from undirected.sampling import (
    BlockGibbs,
    ChainResult,
    GaussianGibbs,
    Gibbs,
    RectifiedGibbs,
    init_state,
    run_chains,
)

BUDGET = 512 * 2**20
"""Bytes that the messages of one chunk of rows may take."""
QUERIES = ("bp", "mf", "gibbs", "exact")


@dataclass(frozen=True)
class Saved:
    """A model from a folder, with what `fit` wrote beside it."""

    model: Any
    names: list[str]
    image: tuple[int, int] | None
    means: Float[Array, " v"] | None
    network: QueryNetwork | None = None


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
    by_network = method == "bp" and saved.network is not None
    values = read_for(saved, rows, header, grey=by_network and completion is None)
    missing = np.isnan(values)
    if not missing.any():
        console.say(f"{rows}: no entry is missing; the answers are a copy")
    if by_network:
        answers, converged = np.where(missing, ask_network(saved.network, values), values), None
    else:
        answers, converged = query(saved.model, values, method, jax.random.key(seed))
    write_table(out, answers, saved.names, header=True)
    if completion is not None:
        best, _ = query(saved.model, values, "map", jax.random.key(seed))
        write_table(completion, best, saved.names, header=True)
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


def query(
    model: Any, values: np.ndarray, method: str, key: Key[Array, ""]
) -> tuple[np.ndarray, float]:
    """p(1) of every missing entry ("map": the best joint completion), and the share that settled.

    Rows whose messages do not settle are asked once more, with damping.
    """
    if method not in (*QUERIES, "map"):
        raise UndirectedError(
            f"query: method '{method}' is unknown; pass one of {', '.join(QUERIES)}"
        )
    answers, settled = _by_chunks(model, values, method, key)
    if method == "bp" and not settled.all():
        again = ~settled
        answers[again], settled[again] = _by_chunks(model, values[again], "damped", key)
    return answers, float(settled.mean()) if len(settled) else 1.0


def _by_chunks(
    model: Any, values: np.ndarray, method: str, key: Key[Array, ""]
) -> tuple[np.ndarray, np.ndarray]:
    """Answer rows in chunks of one shape: memory is bounded and nothing is compiled twice."""
    answer, row_bytes = _answerer(model, method)
    size = int(np.clip(BUDGET // row_bytes, 1, max(1, len(values))))
    answers, settled = np.empty_like(values), np.ones(len(values), bool)
    bar = console.Bar(f"query ({method})", "rows")
    with bar.running():
        for start in range(0, len(values), size):
            part = values[start : start + size]
            padded = np.zeros((size, values.shape[1]), np.float32)
            padded[: len(part)] = part
            unary, ok = answer(model, jnp.asarray(padded), jax.random.fold_in(key, start))
            answers[start : start + size] = np.where(np.isnan(part), unary[: len(part)], part)
            settled[start : start + size] = ok[: len(part)]
            bar.update(start + len(part), len(values))
    return answers, settled


def _answerer(model: Any, method: str) -> tuple[Callable[..., tuple[Array, Array]], int]:
    """A compiled function from rows to beliefs of the visible units, and its bytes per row."""
    n = model.layout.n
    couplings = sum(np.size(f.weight) for f in jax.eval_shape(model.lower).factors)
    if method == "gibbs":
        return _gibbs_answer, 400 * n
    infer = {
        "bp": SumProduct(iterations=100, tolerance=1e-3),
        "damped": SumProduct(iterations=500, tolerance=1e-3, damping=0.5),
        "map": MaxProduct(iterations=200, tolerance=1e-3, damping=0.5),
        "mf": MeanField(iterations=200),
        "exact": Exact(),
    }[method]

    @eqx.filter_jit
    def answer(model: Any, rows: Array, key: Key[Array, ""]) -> tuple[Array, Array]:
        p = clamp(model.lower(), ~jnp.isnan(rows), rows)
        beliefs = jax.vmap(infer, in_axes=(batch_axes(p), None))(p, key)
        return beliefs.unary[:, : rows.shape[1]], beliefs.converged

    return answer, 24 * couplings + 40 * n


def _gibbs_answer(model: Any, rows: Array, key: Key[Array, ""]) -> tuple[Array, Array]:
    """Means of clamped chains, one a row: 200 sweeps to settle, 2,000 to average."""
    chains = sample_given(model, rows, key, burn_in=200, samples=2000, keep=False)
    return chains.chain_means[:, : rows.shape[1]], jnp.ones(len(rows), bool)


def sample_given(
    model: Any, rows: Array, key: Key[Array, ""], burn_in: int, samples: int, keep: bool
) -> ChainResult:
    """Chains, one a row, whose observed entries stay as they are."""
    seen = ~jnp.isnan(rows)
    hidden = model.layout.n - rows.shape[1]
    start_key, key = jax.random.split(key)
    x = init_state(model, (len(rows),), start_key)
    x = x.at[:, : rows.shape[1]].set(jnp.where(seen, rows, x[:, : rows.shape[1]]))
    free = jnp.concatenate([~seen, jnp.ones((len(rows), hidden), bool)], 1)
    return run_chains(
        kernel_for(model), model, x, key, burn_in=burn_in, samples=samples, free=free, keep=keep
    )


def kernel_for(model: Any) -> Any:
    """The first Gibbs kernel that takes a model: one step is traced, nothing is computed."""

    def step(kernel: Any, model: Any, x: Array, key: Key[Array, ""]) -> Array:
        free = jnp.ones(model.layout.n, bool)
        return kernel.step(model, kernel.init(model, x, key), free, key)[0].x

    x, refusals = jax.ShapeDtypeStruct((1, model.layout.n), jnp.zeros(()).dtype), []
    for kernel in (BlockGibbs(), Gibbs(), RectifiedGibbs(), GaussianGibbs()):
        try:
            eqx.filter_eval_shape(partial(step, kernel), model, x, jax.random.key(0))
        except UndirectedError as error:
            refusals.append(str(error))
        else:
            return kernel
    raise UndirectedError(
        f"no Gibbs sampler takes this {type(model).__name__} ({refusals[1]}); "
        "from Python GibbsWithGradients or PerturbAndMap may"
    )


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
    if count < 1 or sweeps < 1:
        raise UndirectedError(f"sample: count is {count} and sweeps {sweeps}; both must be >= 1")
    check_writable(out)
    if png is not None:
        check_place(png)
    saved = open_model(folder)
    if png is not None and saved.image is None:
        raise UndirectedError(
            f"sample: {folder} does not say that rows are images; fit with --image ROWSxCOLUMNS"
        )
    n = saved.model.layout.n_visible
    rows = np.full((count, n), np.nan, np.float32)
    if given is not None:
        values = read_for(saved, given, header)
        if len(values) != 1:
            raise UndirectedError(f"{given}: {len(values)} rows; --given takes a table of one row")
        rows[:] = values
    chains = sample_given(
        saved.model, jnp.asarray(rows), jax.random.key(seed), burn_in=sweeps, samples=1, keep=True
    )
    values = np.asarray(chains.x)[-1, :, :n]
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
