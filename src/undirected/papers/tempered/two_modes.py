"""Two modes that Gibbs sampling never crosses, crossed by tempered transitions and by a ladder."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from scipy import stats

from undirected.core.protocols import Kernel
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.inference import Exact
from undirected.models import RBM, tempered
from undirected.sampling import BlockGibbs, ParallelTempering, TemperedTransitions, ladder

TITLE = "Two modes: plain Gibbs stays, tempered transitions and parallel tempering cross"
_FULL: dict[str, Any] = {
    "visible": 10,
    "hidden": 4,
    "weight": 5.0,
    "tilt": 0.05,
    "betas": 40,
    "rungs": 10,
    "lowest": 0.02,
    "chains": 1000,
    "steps": {"Gibbs": 10_000, "tempered transitions": 120, "parallel tempering": 800},
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "betas": 5,
        "rungs": 3,
        "chains": 20,
        "steps": {"Gibbs": 20, "tempered transitions": 4, "parallel tempering": 8},
    },
    "quick": _FULL,
    "full": _FULL,
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Share of the chains in the likelier mode, for chains that all start in the other one."""
    model = two_modes(config)
    truth = float(_share_exactly(model))
    stay = _chance_to_stay(model)
    kernels: dict[str, tuple[Kernel, int]] = {
        "Gibbs": (BlockGibbs(), 1),
        "tempered transitions": (
            TemperedTransitions(BlockGibbs(), tempered, ladder(config["lowest"], config["betas"])),
            2 * (config["betas"] - 1),
        ),
        "parallel tempering": (
            ParallelTempering(BlockGibbs(), tempered, ladder(config["lowest"], config["rungs"])),
            config["rungs"],
        ),
    }
    rows: list[Row] = []
    lines: dict[str, tuple] = {}
    for name, (kernel, sweeps) in kernels.items():
        work = partial(_watch, kernel, model, config, config["steps"][name], seed)
        found = context.stage(name, work)
        chains, last = config["chains"], float(found["share"][-1])
        fit = float(stats.binomtest(round(last * chains), chains, truth).pvalue)
        case = "chains that start in the smaller mode"
        error = float(np.sqrt(last * (1 - last) / chains))
        metric = "share of chains in the larger mode"
        rows += [
            Row(case, name, metric, last, error, chains, better="higher"),
            Row(case, name, "p-value of that share", fit, n=chains, better="higher"),
        ]
        at = sweeps * np.arange(1, len(found["share"]) + 1)
        some = np.unique(np.linspace(0, len(at) - 1, 60).astype(int))
        lines[name] = at[some].tolist(), found["share"][some].tolist()
        if "accepted" in found:
            metric = "share accepted or swapped"
            rows.append(Row(case, name, metric, float(found["accepted"]), better="higher"))
    longest = max(max(x) for x, _ in lines.values())
    lines["exact"] = [0, longest], [truth, truth]
    y_label = "share of chains in the larger mode"
    return Outcome(
        rows=rows,
        curves=[curve("crossing", "Gibbs sweeps a chain (of all rungs)", y_label, lines)],
        notes=[
            f"Exactly {truth:.4f} of the probability is in the larger mode. In the smaller one a "
            f"sweep turns on any hidden unit with probability {1 - stay:.1e}, so that plain Gibbs "
            f"waits for at least {1 / (1 - stay):.1e} sweeps on average."
        ],
    )


def two_modes(config: dict[str, Any]) -> RBM:
    """All units off, or all on; the second is likelier by exp(visible * tilt)."""
    V, H, w = config["visible"], config["hidden"], config["weight"]
    bias = jnp.full(V, -w * H / 2 + config["tilt"])
    return RBM(jnp.full((V, H), w), bias, jnp.full(H, -w * V / 2))


def _share_exactly(model: RBM) -> Float[Array, ""]:
    """P(more than half of the visibles are on) = P(a unit is on): all of them agree."""
    return Exact()(model.lower()).unary[: model.n_visible].mean()


def _chance_to_stay(model: RBM) -> float:
    """Chance that no hidden unit turns on where no visible one is."""
    return float(np.prod(1 / (1 + np.exp(np.asarray(model.hidden_bias, np.float64)))))


def _watch(
    kernel: Kernel, model: RBM, config: dict[str, Any], steps: int, seed: int
) -> dict[str, np.ndarray]:
    share, info = _trace(kernel, model, config["chains"], steps, jax.random.key(seed))
    names = {"accepted": "accepted", "swap_rates": "accepted"}
    rates = {names[k]: np.asarray(v) for k, v in info.items() if k in names}
    return {"share": np.asarray(share), **rates}


@eqx.filter_jit
def _trace(
    kernel: Kernel, model: RBM, chains: int, steps: int, key: Key[Array, ""]
) -> tuple[Float[Array, " steps"], dict[str, Array]]:
    """Share of chains in the larger mode after every step, and means of the kernel's reports."""
    start = jnp.zeros((chains, model.layout.n))
    free = jnp.ones(model.layout.n, bool)

    def move(state: Any, key: Key[Array, ""]) -> tuple[Any, tuple[Array, dict[str, Array]]]:
        state, info = kernel.step(model, state, free, key)
        on = state.x[:, : model.n_visible].mean(1) > 0.5
        return state, (on.mean(), jax.tree.map(jnp.mean, info))

    state = kernel.init(model, start, key)
    _, (share, info) = jax.lax.scan(move, state, jax.random.split(key, steps))
    return share, jax.tree.map(jnp.mean, info)
