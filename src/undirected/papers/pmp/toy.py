"""Section 5.1: four coupled spins, learned by a sampler that is not their Gibbs distribution."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from undirected.core.graph import complete
from undirected.core.layout import Layout
from undirected.core.potentials import Potentials
from undirected.experiments.claims import Claim, Near
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.inference import Exact
from undirected.models import Ising
from undirected.papers.pmp import _common

TITLE = "Learning the wrong model: four coupled spins (Section 5.1)"
REPEATS = "seeds"
_FULL = {
    "spins": 4,
    "theta": 0.5,
    "rate": 0.01,
    "steps": 200,
    "samples": 100,
    "sweeps": 100,
    "draws": 10_000,
    "seeds": 10,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {**_FULL, "steps": 5, "sweeps": 10, "draws": 500, "seeds": 1},
    "quick": {**_FULL, "seeds": 5},
    "full": _FULL,
}
PAPER = {"theta": 0.331, "sampler": 0.008, "Gibbs": 0.119}
_CASE = "4 spins, theta 0.5"
CLAIMS = [
    Claim(
        "The coupling that perturb-and-max-product learns is not the true one, but its samples are "
        "right.",
        "theta 0.331, 0.008 nats by the sampler, 0.119 nats by the Gibbs distribution",
        [
            Near(_CASE, "learned theta", "PMP"),
            Near(_CASE, "KL(data || sampler)", "PMP", margin=0.0005),
            Near(_CASE, "KL(data || Gibbs distribution)", "the same theta"),
        ],
    ),
]


class Tied(eqx.Module):
    """E(s) = -theta sum_{i<j} s_i s_j with one coupling for all pairs of n spins."""

    theta: Float[Array, ""]
    n: int = eqx.field(static=True)

    @property
    def layout(self) -> Layout:
        return self.ising.layout

    @property
    def ising(self) -> Ising:
        """The same model with a weight for every pair."""
        graph = complete(self.n)
        couplings = self.theta * jnp.ones(graph.n_edges)
        return Ising.from_spins(couplings, jnp.zeros(self.n), graph)

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(x) of {0, 1} states."""
        return self.ising.energy(x)

    def lower(self) -> Potentials:
        """The potentials of the Ising model."""
        return self.ising.lower()


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """The learned coupling; how far its sampler and its Gibbs distribution are from the data."""
    found = context.stage("learn", lambda: _learn_all(config, seed))
    n = config["seeds"]
    rows = []
    for metric, method, paper in (
        ("learned theta", "PMP", PAPER["theta"]),
        ("KL(data || sampler)", "PMP", PAPER["sampler"]),
        ("KL(data || Gibbs distribution)", "the same theta", PAPER["Gibbs"]),
    ):
        values = found[metric]
        rows.append(Row.over_runs(_case(config), method, metric, values, paper, better="lower"))
    notes = [
        f"{n} seeds; the paper gives one run. KL from {config['draws']:,} draws, a half added to "
        "every count.",
        "Learned theta is no target: the closer to the paper's, the better the agreement.",
    ]
    return Outcome(rows=rows, notes=notes)


def _case(config: dict[str, Any]) -> str:
    return f"{config['spins']} spins, theta {config['theta']}"


def _learn_all(config: dict[str, Any], seed: int) -> dict[str, list[float]]:
    truth = Tied(jnp.asarray(config["theta"]), config["spins"])
    data = Exact()(truth.lower())
    target = _probabilities(truth)
    found: dict[str, list[float]] = {}
    sampler = _common.perturb(config["sweeps"])
    objective = _common.MatchMoments(sampler, config["samples"])
    seeds, key = config["seeds"], jax.random.key(seed)
    starts = [Tied(jnp.zeros(()), config["spins"])] * seeds
    optimiser = optax.adam(config["rate"])
    models, _ = _common.learn(starts, [data] * seeds, objective, optimiser, config["steps"], key)
    for i, learned in enumerate(models):
        x, _ = _common.draw(sampler, learned, config["draws"], jax.random.fold_in(key, i), 500)
        numbers = (x @ 2 ** np.arange(config["spins"])).astype(int)
        counts = np.bincount(numbers, minlength=len(target)) + 0.5
        entries = {
            "learned theta": float(learned.theta),
            "KL(data || sampler)": _divergence(target, counts / counts.sum()),
            "KL(data || Gibbs distribution)": _divergence(target, _probabilities(learned)),
        }
        for name, value in entries.items():
            found.setdefault(name, []).append(value)
    return found


def _probabilities(model: Tied) -> Float[np.ndarray, " states"]:
    """All states, the first unit being the lowest bit."""
    x = (np.arange(2**model.n)[:, None] >> np.arange(model.n)) & 1
    weights = np.exp(-np.asarray(model.energy(jnp.asarray(x, float)), float))
    return weights / weights.sum()


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    return float((p * np.log(p / q)).sum())
