"""`undirected query | sample | evaluate`: what a fitted model has to say."""

import time
from collections.abc import Callable
from dataclasses import dataclass
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
from undirected.core.potentials import batch_axes, clamp
from undirected.evaluation import bracket, log_likelihood, pseudo_log_likelihood
from undirected.inference import (
    Exact,
    MaxProduct,
    MeanField,
    QueryNetwork,
    SumProduct,
    Transfer,
)
from undirected.io.model_files import describe_model, load_model
from undirected.io.tables import check_writable, read_table, write_table
from undirected.learning import answers as ask_network
from undirected.models import RBM, ModelPath
from undirected.report.images import image_grid
from undirected.sampling import BlockGibbs, ChainResult, Gibbs, init_state, run_chains

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
    """The Gibbs kernel that suits a model."""
    return BlockGibbs() if isinstance(model, RBM) else Gibbs()


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


def evaluate_table(
    folder: Path,
    table: Path,
    header: bool | None,
    method: str,
    chains: int,
    betas: int,
    seed: int,
    js: bool,
) -> None:
    """Print the log-likelihood of a table under a model."""
    if method not in ("auto", "exact", "ais"):
        raise UndirectedError(f"evaluate: method '{method}' is unknown; pass auto, exact or ais")
    saved = open_model(folder)
    values = read_for(saved, table, header)
    complete = values[~np.isnan(values).any(1)]
    if not len(complete):
        raise UndirectedError(
            f"{table}: every row has missing entries; the log-likelihood needs complete rows"
        )
    if len(complete) < len(values):
        console.say(f"{table}: {len(values) - len(complete)} rows with missing entries left out")
    log_z, interval, how, agree = log_partition(saved, method, chains, betas, seed)
    ll = log_likelihood(saved.model, complete, log_z)
    pl = pseudo_log_likelihood(saved.model, complete)
    summary = {
        "log_likelihood": ll.mean,
        "stderr": ll.stderr,
        "log_z": log_z,
        "log_z_interval": list(interval),
        "log_z_method": how,
        "log_z_settled": agree,
        "pseudo_log_likelihood": pl.mean,
        "rows": len(complete),
    }
    doubt = max(interval[1] - log_z, log_z - interval[0])
    from_z = f" (± {doubt:.3f} from log Z, 99 %)" if how == "ais" else ""
    lines = [
        f"log-likelihood per row   {ll.mean:.3f} ± {ll.stderr:.3f} nats{from_z}",
        f"log Z                    {log_z:.3f} by {how}",
        f"pseudo-log-likelihood    {pl.mean:.3f} ± {pl.stderr:.3f}",
    ]
    if not agree:
        lines.append("note: AIS from below and from above do not meet; use more --betas")
    console.result(summary, js, lines)


def log_partition(
    saved: Saved, method: str, chains: int, betas: int, seed: int
) -> tuple[float, tuple[float, float], str, bool]:
    """log Z, its interval, how it was found, and whether the estimate settled."""
    model = saved.model
    exact = _exact(model, required=method == "exact") if method != "ais" else None
    if exact is not None:
        log_z = float(exact(model.lower()).log_z)
        return log_z, (log_z, log_z), "exact", True
    path = ModelPath(model.independent(saved.means), model)
    both = bracket(path, kernel_for(model), jax.random.key(seed), chains=chains, betas=betas)
    return both.log_z, both.interval, "ais", both.agree


def _exact(model: Any, required: bool) -> Any:
    """An exact routine that can afford the model; None, or an error, where there is none."""
    layers = (model.n_visible, model.n_hidden) if isinstance(model, RBM) else (model.n,)
    if min(layers) <= 20:
        return Exact()
    if not isinstance(model, RBM) and model.graph is not None:
        try:
            return Transfer.plan(model.graph)
        except UndirectedError:
            pass
    if required:
        raise UndirectedError("evaluate: the model is too large for exact; use --method ais")
    return None


def read_for(
    saved: Saved, path: Path, header: bool | None = None, grey: bool = False
) -> np.ndarray:
    """Read a table for a model: its columns in the model's order, found by name where named so."""
    table = read_table(path, binary=not grey, grey=grey, header=header)
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
