"""Does annealed importance sampling cover the exact log Z as often as its interval promises?

An RBM trained on digits (log Z by a sum over all hidden states) and the periodic Ising model below
and at its critical temperature (log Z by a transfer matrix), with 20 keys each.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from undirected.core.graph import torus
from undirected.data import mnist5k
from undirected.evaluation import Bracket, bracket, log_likelihood
from undirected.experiments.record import Row
from undirected.experiments.stages import Context
from undirected.inference import Exact
from undirected.learning import Batches, Persistent, fit
from undirected.models import RBM, Ising, Path
from undirected.sampling import BlockGibbs, Gibbs

TITLE = "AIS: the exact log Z lies in the 99 % interval"
_QUICK = {
    "runs": 20,
    "chains": 100,
    "betas": 1000,
    "bases": ["data means"],
    "temperatures": [2.0, 2.27],
    "side": 8,
    "hidden": 20,
    "epochs": 20,
}
CONFIG = {
    "smoke": _QUICK | {"runs": 2, "betas": 50, "side": 4, "hidden": 8, "epochs": 1},
    "quick": _QUICK,
    "full": _QUICK | {"betas": 10_000, "bases": ["data means", "uniform"], "epochs": 200},
}


def run(config: dict[str, Any], seed: int, context: Context) -> list[Row]:
    """Coverage, error, width, effective sample size and reverse gap for every case."""
    key = jax.random.key(seed)
    trained = context.stage("train", lambda: _train(config, key))
    model = RBM(*(jnp.asarray(trained[name]) for name in ("weights", "visible", "hidden")))
    case = f"RBM 784x{config['hidden']} on MNIST digits"
    log_z = context.stage("exact", lambda: float(_exact(model)))
    rows = context.stage("likelihood", lambda: _likelihood_rows(case, model, log_z))
    for base in config["bases"]:
        start = model.independent(trained["means"] if base == "data means" else None)
        path = Path(start, model)
        title = f"AIS from {base}"
        rows += context.stage(
            f"{case}, {title}",
            lambda p=path, m=title: _rows(case, m, p, BlockGibbs(), log_z, config, key, context),
        )
    for temperature in config["temperatures"]:
        case = f"Ising torus {config['side']}x{config['side']}, T = {temperature}"
        path, truth = _ising(config["side"], temperature)
        rows += context.stage(
            case,
            lambda c=case, p=path, t=truth: _rows(
                c, "AIS from uniform", p, Gibbs(), t, config, key, context
            ),
        )
    return rows


def _train(config: dict[str, Any], key: Key[Array, ""]) -> dict[str, Array]:
    """An RBM fitted to binarised digits by persistent contrastive divergence."""
    v = jnp.asarray(mnist5k().train.x > 127, jnp.float32)
    model = RBM.create(v.shape[1], config["hidden"], key, means=v.mean(0))
    objective = Persistent(kernel=BlockGibbs(), chains=100)
    result = fit(model, objective, optax.adam(2e-3), Batches(v, 100), key, epochs=config["epochs"])
    m = result.model
    return {
        "weights": m.weights,
        "visible": m.visible_bias,
        "hidden": m.hidden_bias,
        "means": v.mean(0),
    }


@eqx.filter_jit
def _exact(model: RBM) -> Float[Array, ""]:
    return Exact()(model.lower()).log_z


def _ising(side: int, temperature: float) -> tuple[Path, float]:
    """The path from uniform spins to the model, and log Z = log trace of the transfer matrix ^ side."""
    graph = torus(side, side)
    couplings = jnp.full(graph.n_edges, 1 / temperature)
    model = Ising.from_spins(couplings, jnp.zeros(graph.n), graph)
    spins = 2.0 * ((np.arange(2**side)[:, None] >> np.arange(side)) & 1) - 1
    inside = (spins * np.roll(spins, 1, 1)).sum(1) / temperature
    between = spins @ spins.T / temperature
    values = np.linalg.eigvalsh(np.exp(between + (inside[:, None] + inside[None]) / 2))
    return Path(model.independent(), model), float(np.log((values**side).sum()))


def _likelihood_rows(case: str, model: RBM, log_z: float) -> list[Row]:
    test = (mnist5k().test.x > 127).astype(np.float32)
    value = log_likelihood(model, test, log_z)
    metric = "test log-likelihood (nats)"
    return [Row(case, "exact", metric, value.mean, value.stderr, value.n, better="higher")]


def _rows(
    case: str,
    method: str,
    path: Path,
    kernel: Any,
    log_z: float,
    config: dict[str, Any],
    key: Key[Array, ""],
    context: Context,
) -> list[Row]:
    """Run with one key after the other and hold the intervals against the exact value."""
    found: list[Bracket] = []
    for i in range(config["runs"]):
        context.progress(f"{case}: run {i + 1}", i / config["runs"])
        one = jax.random.fold_in(key, i)
        found.append(bracket(path, kernel, one, chains=config["chains"], betas=config["betas"]))
    lower, upper = [b.lower for b in found], [b.upper for b in found]

    def row(metric: str, values: list[float], better: str) -> Row:
        stderr = np.std(values, ddof=1) / np.sqrt(len(values))
        return Row(case, method, metric, float(np.mean(values)), stderr, len(values), better=better)

    def share(metric: str, hits: list[bool]) -> Row:
        return Row(case, method, metric, sum(hits), None, len(hits), better="higher")

    inside = [[low <= log_z <= high for low, high in (r.interval for r in side)] for side in (lower, upper)]
    return [
        share("runs whose 99 % interval holds log Z", inside[0]),
        share("runs whose reverse 99 % interval holds log Z", inside[1]),
        share("runs whose forward and reverse intervals meet", [b.agree for b in found]),
        row("absolute error of log Z (nats)", [abs(r.log_z - log_z) for r in lower], "lower"),
        row("error of log Z (nats)", [r.log_z - log_z for r in lower], "lower"),
        row("reverse minus forward (nats)", [b.upper.log_z - b.lower.log_z for b in found], "lower"),
        row("width of the interval (nats)", [r.interval[1] - r.interval[0] for r in lower], "lower"),
        row("effective sample size", [r.ess for r in lower], "higher"),
    ]
