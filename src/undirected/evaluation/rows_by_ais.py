"""Likelihoods of rows whose hidden or missing units are too many to be summed: AIS of each."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from numpy.typing import ArrayLike

from undirected.core.errors import check_counts
from undirected.core.layout import check_discrete
from undirected.core.numerics import row
from undirected.core.progress import Progress
from undirected.core.protocols import Kernel
from undirected.evaluation.ais import anneal
from undirected.evaluation.base_samples import base_sums, draw_base, path_without_constant
from undirected.evaluation.estimate import check_data, check_finite
from undirected.evaluation.path_checks import check_path, make_schedule


def ais_rows(
    path: Any,
    kernel: Kernel,
    v: ArrayLike,
    key: Key[Array, ""],
    *,
    chains: int = 20,
    betas: int | ArrayLike = 1000,
    progress: Progress | None = None,
) -> Float[np.ndarray, " rows"]:
    """log of the sum of exp(-E) over the hidden and the missing units of every row, by AIS.

    What is observed in a row is held; NaN is missing. Less log Z these are log-likelihoods of the
    observed part: of models whose hidden units cannot be summed out, such as deep ones
    (Salakhutdinov & Hinton 2009), and of rows with holes. Each is a little low in expectation, the
    less the more chains a row has and the more betas. Hidden units must be discrete; the base of
    the path has no couplings.
    """
    schedule = make_schedule(betas)
    check_path(path, kernel, 0.5)
    (chains,) = check_counts("ais_rows", chains=chains)
    layout = path.target.layout
    check_discrete("ais_rows", *(block for block in layout.blocks if not block.visible))
    rows = jnp.asarray(check_data("ais_rows", layout, v, holes=True))
    seen = ~jnp.isnan(rows)
    first, rest = jax.random.split(key)
    path, constant = path_without_constant(path)
    x, _ = draw_base(path.base, len(rows) * chains, first)
    free = jnp.pad(~seen, [(0, 0), (0, layout.n - layout.n_visible)], constant_values=True)
    values = jnp.pad(jnp.where(seen, rows, 0.0), [(0, 0), (0, layout.n - layout.n_visible)])
    free, values = (jnp.repeat(a, chains, 0) for a in (free, values))
    x = jnp.where(free, x, values.astype(x.dtype))
    _, log_w = anneal(path, _Held(kernel, free), x, schedule, rest, progress=progress)
    ratios = np.asarray(log_w, np.float64).reshape(len(rows), chains)
    check_finite("ais_rows: log weights", ratios)
    top = ratios.max(1, keepdims=True)
    log_means = (top + np.log(np.exp(ratios - top).mean(1, keepdims=True)))[:, 0]
    return log_means + np.asarray(base_sums(path.base, rows, seen), np.float64) + constant


class _Held(eqx.Module):
    """A kernel that leaves observed units as they are."""

    kernel: Any
    free: Bool[Array, "chains n"]

    def init(self, model: Any, x: Array, key: Key[Array, ""]) -> Any:
        return self.kernel.init(model, x, key)

    def step(self, model: Any, state: Any, free: Array, key: Key[Array, ""]) -> Any:
        return self.kernel.step(model, state, row(free, self.free) & self.free, key)
