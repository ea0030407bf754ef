"""`undirected evaluate`: the log-likelihood of a table, by whatever the model can do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.cli import console
from undirected.cli.answer import Saved, kernel_for, open_model, read_for
from undirected.core.errors import UndirectedError
from undirected.core.layout import check_discrete
from undirected.core.potentials import clamp
from undirected.core.protocols import Conditionals, Lowerable, Marginal, Separable, Summable
from undirected.evaluation import (
    Bracket,
    Estimate,
    ais_rows,
    bracket,
    log_likelihood,
    pseudo_log_likelihood,
)
from undirected.evaluation.estimate import mean
from undirected.inference import Elimination, Exact, Transfer
from undirected.models import ModelPath, tempered

MOST_STATES, MOST_ENTRIES, MOST_SUMS = 2**20, 2**24, 2**28
"""States that are summed over, entries of tables, and states of all rows together, before AIS."""
ROW_CHAINS, ROW_NUMBERS = 20, 2**24
"""Chains of a row whose hidden units are summed by AIS; numbers of all rows worked on at a time."""


@dataclass(frozen=True)
class LogZ:
    """log Z, its interval, how it was found; both sides of AIS where it was found so."""

    value: float
    interval: tuple[float, float]
    method: str
    sides: Bracket | None = None

    @property
    def agree(self) -> bool:
        """Whether the estimate may be trusted."""
        return self.sides is None or self.sides.agree

    @property
    def note(self) -> str | None:
        """What is wrong with the estimate, and what to do."""
        if self.sides is None or self.sides.agree:
            return None
        if not self.sides.meet:
            return "note: AIS from below and from above do not meet; use more --betas"
        return (
            f"note: log Z is known within {self.sides.spread:.3g} nats only (wanted: "
            f"{self.sides.width:g}); use more --betas or --chains"
        )


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
    _check_model(saved.model)
    rows = _complete(read_for(saved, table, header), table)
    log_z = log_partition(saved, method, chains, betas, seed)
    ll, sums = likelihood(saved, rows, log_z.value, method, betas, seed)
    known = isinstance(saved.model, Marginal | Conditionals)
    pl = pseudo_log_likelihood(saved.model, rows) if known else None
    console.result(_summary(ll, sums, log_z, pl), js, _lines(ll, sums, log_z, pl))


def log_partition(saved: Saved, method: str, chains: int, betas: int, seed: int) -> LogZ:
    """log Z of a model: exact where that is affordable (or asked for), otherwise by AIS."""
    model, why = saved.model, ""
    if method != "ais":
        log_z, why = _exact(model)
        if log_z is not None:
            return LogZ(log_z, (log_z, log_z), "exact")
    if method == "exact":
        raise UndirectedError(f"evaluate: no exact log Z ({why}); use --method ais")
    kernel = kernel_for(model)
    both = bracket(_path(saved), kernel, jax.random.key(seed), chains=chains, betas=betas)
    return LogZ(both.log_z, both.interval, "ais", both)


def likelihood(
    saved: Saved, rows: np.ndarray, log_z: float, method: str, betas: int, seed: int
) -> tuple[Estimate, str]:
    """Log-likelihood of rows, and how hidden units were summed out: exact or ais."""
    model = saved.model
    if isinstance(model, Summable) or model.layout.n == model.layout.n_visible:
        return log_likelihood(model, rows, log_z), "exact"
    sums = None if method == "ais" else _exact_rows(model, rows)
    if sums is not None:
        return mean(sums - log_z), "exact"
    if method == "exact":
        raise UndirectedError("evaluate: the hidden units are too many for exact; use --method ais")
    console.say(f"the hidden units of {len(rows)} rows are summed out by AIS, row by row")
    return mean(_sampled_rows(saved, rows, betas, seed) - log_z), "ais"


def _check_model(model: Any) -> None:
    """Refuse models that have no log Z to speak of."""
    if not isinstance(model, Lowerable):
        raise UndirectedError(
            f"evaluate: a {type(model).__name__} does not lower to potentials: its log Z is out of "
            "reach; judge its answers to queries instead, from Python with binary_cross_entropy or "
            "error_rate"
        )


def _complete(values: np.ndarray, table: Path) -> Float[np.ndarray, "rows v"]:
    """The rows without missing entries."""
    complete = values[~np.isnan(values).any(1)]
    if not len(complete):
        raise UndirectedError(
            f"{table}: every row has missing entries; the log-likelihood needs complete rows"
        )
    if len(complete) < len(values):
        console.say(f"{table}: {len(values) - len(complete)} rows with missing entries left out")
    return complete


def _exact(model: Any) -> tuple[float | None, str]:
    """log Z by the first exact routine that can afford the model; otherwise None, and why not."""
    p, why = model.lower(), []
    graphs = [factor.graph for factor in p.factors if hasattr(factor, "graph")]
    routines = [
        lambda: Exact(most=MOST_STATES),
        *(lambda graph=graph: Transfer.plan(graph) for graph in graphs),
        lambda: Elimination(most=MOST_ENTRIES),
    ]
    for routine in routines:
        try:
            check_discrete("evaluate", *p.layout.blocks)
            return float(routine()(p).log_z), ""
        except UndirectedError as error:
            why.append(str(error))
    return None, why[0]


def _path(saved: Saved) -> ModelPath:
    """From independent units to the model; from no energy at all where it knows no such units."""
    if isinstance(saved.model, Separable):
        return ModelPath(saved.model.independent(saved.means), saved.model)
    return tempered(saved.model)


def _exact_rows(model: Any, rows: np.ndarray) -> Float[np.ndarray, " rows"] | None:
    """log sum_h exp(-E(v, h)) of every row; None where that takes too long."""
    p, seen = model.lower(), jnp.ones(rows.shape[1], bool)
    exact = Exact(most=MOST_SUMS // len(rows))

    @jax.jit
    def sums(rows: Array) -> Array:
        return jax.lax.map(lambda v: exact(clamp(p, seen, v)).log_z, rows)

    try:
        return np.asarray(sums(jnp.asarray(rows)), np.float64)
    except UndirectedError:
        return None


def _sampled_rows(saved: Saved, rows: np.ndarray, betas: int, seed: int) -> np.ndarray:
    """The same by AIS, for as many rows at a time as memory allows."""
    path, kernel = _path(saved), kernel_for(saved.model)
    size = int(np.clip(ROW_NUMBERS // (ROW_CHAINS * saved.model.layout.n), 1, len(rows)))
    found, bar = [], console.Bar("evaluate", "rows")
    with bar.running():
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            padded = np.concatenate([part, np.repeat(part[:1], size - len(part), 0)])
            key = jax.random.fold_in(jax.random.key(seed), start)
            sums = ais_rows(path, kernel, padded, key, chains=ROW_CHAINS, betas=betas)
            found.append(sums[: len(part)])
            bar.update(start + len(part), len(rows))
    return np.concatenate(found)


def _summary(ll: Estimate, sums: str, log_z: LogZ, pl: Estimate | None) -> dict[str, Any]:
    low, high = log_z.interval
    return {
        "log_likelihood": ll.mean,
        "stderr": ll.stderr,
        "log_z": log_z.value,
        "log_z_interval": [low, high],
        "log_z_width": high - low,
        "log_z_method": log_z.method,
        "log_z_sides_meet": log_z.sides is None or log_z.sides.meet,
        "log_z_settled": log_z.agree,
        "hidden_sums": sums,
        "pseudo_log_likelihood": None if pl is None else pl.mean,
        "rows": ll.n,
    }


def _lines(ll: Estimate, sums: str, log_z: LogZ, pl: Estimate | None) -> list[str]:
    low, high = log_z.interval
    doubt = max(high - log_z.value, log_z.value - low)
    from_z = f" (± {doubt:.3f} from log Z, 99 %)" if log_z.method == "ais" else ""
    lines = [
        f"log-likelihood per row   {ll.mean:.3f} ± {ll.stderr:.3f} nats{from_z}",
        f"log Z                    {log_z.value:.3f} by {log_z.method}",
    ]
    if pl is not None:
        lines.append(f"pseudo-log-likelihood    {pl.mean:.3f} ± {pl.stderr:.3f}")
    if sums == "ais":
        lines.append("note: hidden units summed out by AIS, which is a little low in expectation")
    return lines + ([log_z.note] if log_z.note else [])
