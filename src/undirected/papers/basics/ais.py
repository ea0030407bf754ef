"""Does annealed importance sampling cover the exact log Z as often as its interval promises?

An RBM trained on digits (log Z by a sum over all hidden states) and the periodic Ising model below
and at its critical temperature (log Z by a transfer matrix), with 20 keys each.
"""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from undirected.core.graph import torus
from undirected.core.protocols import Kernel
from undirected.data import mnist5k
from undirected.evaluation import AISResult, Bracket, bracket, log_likelihood
from undirected.experiments.fitting import fit
from undirected.experiments.record import Row
from undirected.experiments.stages import Context
from undirected.inference import Exact
from undirected.learning import Batches, Persistent
from undirected.models import RBM, Ising, ModelPath
from undirected.sampling import BlockGibbs, Gibbs

TITLE = "AIS: the exact log Z lies in the 99 % interval"
REPEATS = "runs"
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
    """Coverage, error, width, effective sample size and reverse gap for every case.

    Free energies are sums over hundreds of units: products are made in full precision, which a GPU
    would otherwise not do.
    """
    with jax.default_matmul_precision("highest"):
        return _run(config, seed, context)


def _run(config: dict[str, Any], seed: int, context: Context) -> list[Row]:
    key = jax.random.key(seed)

    def check(case: str, method: str, path: ModelPath, kernel: Kernel, log_z: float) -> list[Row]:
        return context.stage(
            f"{case}, {method}",
            lambda: _check(case, method, path, kernel, log_z, config, key, context),
        )

    case = f"RBM 784x{config['hidden']} on MNIST digits"
    trained = {
        k: jnp.asarray(v) for k, v in context.stage("train", lambda: _train(config, key)).items()
    }
    model = RBM(trained["weights"], trained["visible_bias"], trained["hidden_bias"])
    log_z = context.stage("exact log Z", lambda: float(_exact(model)))
    rows = context.stage("likelihood", lambda: _likelihood(case, model, log_z))
    for base in config["bases"]:
        start = model.independent(trained["means"] if base == "data means" else None)
        rows += check(case, f"AIS from {base}", ModelPath(start, model), BlockGibbs(), log_z)
    for temperature in config["temperatures"]:
        case = f"Ising torus {config['side']}x{config['side']}, T = {temperature}"
        path, log_z = _ising(config["side"], temperature)
        rows += check(case, "AIS from uniform", path, Gibbs(), log_z)
    return rows


def binary_digits(part: str) -> Float[np.ndarray, "rows 784"]:
    """Digits of a part of the sample; a pixel is 1 where its grey value is above half of 255."""
    return (getattr(mnist5k(), part).x / 255 > 0.5).astype(np.float32)


def _train(config: dict[str, Any], key: Key[Array, ""]) -> dict[str, Array]:
    """An RBM fitted to binarised digits by persistent contrastive divergence."""
    v = jnp.asarray(binary_digits("train"))
    model = RBM.create(v.shape[1], config["hidden"], key, means=v.mean(0))
    objective = Persistent(kernel=BlockGibbs(), chains=100)
    result = fit(model, objective, optax.adam(2e-3), Batches(v, 100), key, epochs=config["epochs"])
    names = ("weights", "visible_bias", "hidden_bias")
    return {"means": v.mean(0)} | {name: getattr(result.model, name) for name in names}


@eqx.filter_jit
def _exact(model: RBM) -> Float[Array, ""]:
    return Exact()(model.lower()).log_z


def _ising(side: int, temperature: float) -> tuple[ModelPath, float]:
    """The path from uniform spins to the model, and log Z by the transfer matrix between rows."""
    graph = torus(side, side)
    couplings = jnp.full(graph.n_edges, 1 / temperature)
    model = Ising.from_spins(couplings, jnp.zeros(graph.n), graph)
    spins = 2.0 * ((np.arange(2**side)[:, None] >> np.arange(side)) & 1) - 1
    inside = (spins * np.roll(spins, 1, 1)).sum(1) / temperature
    between = spins @ spins.T / temperature
    values = np.linalg.eigvalsh(np.exp(between + (inside[:, None] + inside[None]) / 2))
    return ModelPath(model.independent(), model), float(np.log((values**side).sum()))


def _likelihood(case: str, model: RBM, log_z: float) -> list[Row]:
    value = log_likelihood(model, binary_digits("test"), log_z)
    metric = "test log-likelihood (nats)"
    return [Row(case, "exact log Z", metric, value.mean, value.stderr, value.n, better="higher")]


def _check(
    case: str,
    method: str,
    path: ModelPath,
    kernel: Kernel,
    log_z: float,
    config: dict[str, Any],
    key: Key[Array, ""],
    context: Context,
) -> list[Row]:
    """Run with one key after the other and hold the intervals against the exact value."""
    found: list[Bracket] = []
    for i in range(config["runs"]):
        context.progress(f"{case}, {method}: run {i + 1}", i / config["runs"])
        one = jax.random.fold_in(key, i)
        found.append(bracket(path, kernel, one, chains=config["chains"], betas=config["betas"]))

    def count(metric: str, hits: Iterable[bool]) -> Row:
        return Row(case, method, metric, sum(hits), None, len(found), better="higher")

    def average(metric: str, values: Iterable[float], better: str = "lower") -> Row:
        return Row.over_runs(case, method, metric, values, better=better)

    def holds(result: AISResult) -> bool:
        return result.interval[0] <= log_z <= result.interval[1]

    errors = np.array([b.lower.log_z - log_z for b in found])
    bias = abs(errors.mean()), errors.std(ddof=1) / np.sqrt(len(errors))
    width = (b.lower.interval[1] - b.lower.interval[0] for b in found)
    gap = (b.upper.log_z - b.lower.log_z for b in found)
    return [
        count("runs whose 99 % interval holds log Z", (holds(b.lower) for b in found)),
        count("runs whose reverse 99 % interval holds log Z", (holds(b.upper) for b in found)),
        count("runs whose two intervals meet", (b.meet for b in found)),
        Row(
            case,
            method,
            "size of the mean error of log Z (nats)",
            *bias,
            len(found),
            better="lower",
        ),
        average("absolute error of log Z (nats)", abs(errors)),
        average("width of the interval (nats)", width),
        average("reverse minus forward (nats)", gap),
        average("effective sample size", (b.lower.ess for b in found), "higher"),
    ]
