"""Section 5.2, Figure 1 left and centre: log Z from perturbed maxima, max-product against MPLP."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.graph import complete, torus
from undirected.core.potentials import shift, values
from undirected.core.units import perturbation
from undirected.evaluation import torus_log_z
from undirected.experiments.claims import Ahead, Claim
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.inference import MPLP, Exact, MaxProduct
from undirected.models import Ising

TITLE = "Log-partition estimates: max-product and MPLP (Section 5.2)"
REPEATS = "models"
_FULL = {
    "sizes": [5, 10, 15],
    "models": 100,
    "coupling": 2.0,
    "field": 0.1,
    "lattice_coupling": 0.1,
    "perturbations": 100,
    "sweeps": 200,
    "mplp_sweeps": 50_000,
    "tolerance": 1e-6,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "sizes": [3],
        "models": 3,
        "perturbations": 3,
        "sweeps": 20,
        "mplp_sweeps": 20,
    },
    "quick": {**_FULL, "mplp_sweeps": 2000},
    "full": _FULL,
}
METHODS = ("PMP", "MPLP", "MPLP, dual bound", "true maximum")
CLAIMS = [
    Claim(
        "On random models the perturbed maximum found by max-product is a better estimate of log Z "
        "than that of MPLP.",
        "read off Figure 1, centre",
        [
            Ahead(f"Ising, spins {size}", "|log Z error| (nats)", "PMP", "MPLP")
            for size in (5, 10, 15)
        ],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Mean error of log Z, and of its size, for random models and for lattices."""
    key = jax.random.key(seed)
    rows: list[Row] = []
    curves = []
    for family, measure in (("Ising", _random_models), ("lattice", _lattices)):
        errors: dict[str, list[float]] = {}
        for size in config["sizes"]:
            part = jax.random.fold_in(key, size)
            found = context.stage(
                f"{family} {size}", lambda m=measure, s=size, k=part: m(s, config, k)
            )
            for method in METHODS:
                if method not in found:
                    continue
                case = f"{family}, {'side' if family == 'lattice' else 'spins'} {size}"
                for metric, gaps in (
                    ("log Z error (nats)", found[method]),
                    ("|log Z error| (nats)", np.abs(found[method])),
                ):
                    rows.append(Row.over_runs(case, method, metric, gaps, better="lower"))
                errors.setdefault(method, []).append(float(np.mean(found[method])))
        lines = {m: (config["sizes"], e) for m, e in errors.items() if len(e) > 1}
        curves.append(curve(f"error of log Z: {family}", "size", "mean error (nats)", lines))
    notes = [
        "Errors are estimate minus exact log Z; the expected perturbed maximum is above log Z, so "
        "that an exact solver has a positive mean error. Both solvers get the same perturbations.",
        "Couplings are uniform on [-2, 2], every pair once, and the lattice is E = -0.1 sum s s', "
        "as in the text. The authors' program averages W and its transpose (entries are then "
        "triangular), counts every pair twice and takes a lattice of coupling -0.1.",
        "From every estimate we take what its noise adds to the maximum of uncoupled spins, less "
        "the expectation of that: the mean is the same, and its error smaller.",
        "One perturbation per random model, as in the program; MPLP sends disjoint edges together.",
    ]
    return Outcome(rows=rows, curves=curves, notes=notes)


def _random_models(size: int, config: dict[str, Any], key: Key[Array, ""]) -> dict[str, Any]:
    """Fully connected models, one perturbation each."""
    graph = complete(size)
    mplp = MPLP.plan(graph, config["mplp_sweeps"], config["tolerance"])
    span, low = config["coupling"], config["field"]

    def one(key: Key[Array, ""]) -> tuple[Array, ...]:
        w_key, b_key, noise_key = jax.random.split(key, 3)
        weights = jax.random.uniform(w_key, (graph.n_edges,), minval=-span, maxval=span)
        fields = jax.random.uniform(b_key, (size,), minval=-low, maxval=low)
        p = Ising.from_spins(weights, fields, graph).lower()
        noise = perturbation(p.layout, noise_key)
        noisy = shift(p, noise)
        best = Exact(0.0)(noisy).log_z
        found = _infer(config)(noisy).log_z
        relaxed = mplp(noisy).log_z
        return Exact()(p).log_z + _luck(noise), found, relaxed, mplp.dual(noisy), best

    run = jax.jit(lambda keys: jax.lax.map(one, keys))
    exact, *found = (np.asarray(a) for a in run(jax.random.split(key, config["models"])))
    return {m: (f - exact).tolist() for m, f in zip(METHODS, found, strict=True)}


def _lattices(side: int, config: dict[str, Any], key: Key[Array, ""]) -> dict[str, Any]:
    """One periodic lattice, many perturbations."""
    graph = torus(side, side)
    coupling = config["lattice_coupling"]
    p = Ising.from_spins(jnp.full(graph.n_edges, coupling), jnp.zeros(graph.n), graph).lower()
    noise = perturbation(p.layout, key, (config["perturbations"],))
    noisy = shift(p, noise)
    mplp = MPLP.plan(graph, config["mplp_sweeps"], config["tolerance"])
    exact = torus_log_z(side, side, coupling) + np.asarray(_luck(noise))
    answers = {}
    for method, solver in (("PMP", _infer(config)), ("MPLP", mplp)):
        x, _, _ = solver.decode(noisy)
        answers[method] = (np.asarray(values(noisy, x)) - exact).tolist()
    return answers


def _luck(noise: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """What the noise adds to the maximum of uncoupled spins, beyond its expectation.

    Taken away from every estimate, it leaves the expectation as it is and most of the noise out.
    """
    return jnp.maximum(noise, 0.0).sum(-1) - noise.shape[-1] * jnp.log(2.0)


def _infer(config: dict[str, Any]) -> Any:
    return MaxProduct(config["sweeps"], None, 0.5, parallel=True)
