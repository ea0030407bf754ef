"""What annealing refuses before anything is computed: schedules, paths and samples."""

from numbers import Integral, Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.errors import NotFinite, UndirectedError, check_offers
from undirected.core.protocols import Annealable
from undirected.evaluation.energies import summed_blocks
from undirected.evaluation.estimate import check_binary, check_data, check_finite
from undirected.factors import Squares


def make_schedule(betas: int | ArrayLike) -> Float[np.ndarray, " betas"]:
    """Increasing values from 0 to 1, from their number or as they are given."""
    if isinstance(betas, Integral):
        values = np.linspace(0, 1, max(int(betas), 0))
    else:
        try:
            values = np.asarray(betas, np.float64)
        except (TypeError, ValueError):  # words, or rows of several lengths
            values = np.zeros(0)
    good = values.ndim == 1 and len(values) >= 2 and values[0] == 0 and values[-1] == 1
    if not (good and (np.diff(values) > 0).all()):
        raise UndirectedError(
            f"ais: betas are {betas!r:.60}; pass a whole number from 2, or values that increase "
            "from 0 to 1"
        )
    return values


def check_path(path: Any, kernel: Any, confidence: float) -> None:
    """Refuse what cannot work before anything is computed."""
    check_offers("ais", "kernel", kernel, "BlockGibbs()", "init", "step")
    if not (isinstance(confidence, Real) and 0 < float(confidence) < 1):
        raise UndirectedError(f"ais: confidence is {confidence}; wanted a value between 0 and 1")
    if not (hasattr(path, "base") and hasattr(path, "target")):
        raise UndirectedError(
            f"ais: path is a {type(path).__name__}; pass "
            "ModelPath(model.independent(data_means), model)"
        )
    if path.base.layout != path.target.layout:
        raise UndirectedError("ais: base and target differ in layout; use target.independent()")
    factors = [f for f in path.base.lower().factors if not isinstance(f, Squares)]
    hard = sorted({type(factor).__name__ for factor in factors if factor.forbids})
    if hard:
        raise UndirectedError(
            f"ais: the model has hard constraints ({', '.join(hard)}), which no path weakens; take "
            "model.tabulated(), use Elimination where the graph is narrow, or the Bethe log Z of "
            "SumProduct"
        )
    known = isinstance(path.base, Annealable) and eqx.tree_equal(
        path.base, path.base.tractable(), rtol=1e-4, atol=1e-4
    )
    if not known and any(np.any(np.asarray(factor.weight) != 0) for factor in factors):
        raise UndirectedError("ais: the base has couplings; use target.independent(data_means)")
    for leaf in jax.tree.leaves(eqx.filter(path, eqx.is_inexact_array)):
        if not np.isfinite(leaf).all():
            raise NotFinite("ais: a parameter of the path is NaN or infinite")


def check_samples(target: Any, samples: ArrayLike) -> Float[Array, "chains n"]:
    """Samples of all units from those of all, or of the visible ones where that is enough."""
    x, layout = np.asarray(samples, float), target.layout
    visible_only = bool(summed_blocks(target)) and x.shape[-1:] == (layout.n_visible,)
    if x.ndim != 2 or len(x) < 2 or not (visible_only or x.shape[1] == layout.n):
        raise UndirectedError(
            f"reverse_ais: samples have shape {x.shape}; pass (chains, {layout.n}), 2 or more"
        )
    check_finite("reverse_ais: samples", x)
    check_data("reverse_ais: samples", layout, x[:, : layout.n_visible])
    check_binary("reverse_ais: samples", x[:, layout.n_visible :])
    return jnp.asarray(np.pad(x, [(0, 0), (0, layout.n - x.shape[1])]))
