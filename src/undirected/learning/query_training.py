"""Query training: learn the model that answers best under the inference it will be asked by."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp, softplus
from jaxtyping import Array, Bool, Float, Key
from numpy.typing import ArrayLike

from undirected.core.cells import unmasked
from undirected.core.chunks import map_rows
from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain, Layout
from undirected.core.numerics import row
from undirected.core.protocols import Info
from undirected.learning.chain_phases import check_visible, observed, visible
from undirected.learning.queries import Queries, UniformQueries, log_odds, whole_variables


@dataclass(frozen=True)
class QueryTraining:
    """Cross-entropy of the targets given the evidence (query-training, Figure 1), in nats.

    The model is a `QueryNetwork`, or anything with `layout` and `logits(evidence)`. Each step draws
    new targets for every row. Missing entries (NaN) are neither targets nor evidence; values
    between 0 and 1 are soft evidence and soft targets.

    Args:
        queries: how targets are drawn; by default each unit is one with probability 1/2.
        reduction: "sum" adds up all targets of the batch, as the authors' program does; "mean"
            divides by their number.

    Returns:
        A call with a model, a batch of rows, None and a key gives the cross-entropy, and
        `bits_per_target` to report; `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 5, 0)
        >>> network = un.QueryNetwork(un.RBM.create(3, 2, seed=0), layers=5)
        >>> un.fit(network, rows, un.QueryTraining(), steps=2).model.layers
        5
    """

    queries: Queries = UniformQueries()
    reduction: Literal["sum", "mean"] = "sum"
    value_name: ClassVar[str] = "cross_entropy"

    def __post_init__(self) -> None:
        if self.reduction not in ("sum", "mean"):
            raise UndirectedError(
                f"query training: reduction is {self.reduction!r}; pass 'sum' or 'mean'"
            )

    def init(self, model: Any, batch: Float[Array, "rows v"], key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step; the model is checked."""
        if not hasattr(model, "logits"):
            raise UndirectedError(
                f"query training: {type(model).__name__} answers no queries; pass "
                "QueryNetwork(model), which unrolls belief propagation on it"
            )
        if not hasattr(model, "log_beliefs"):
            check_visible("query training", model.layout)

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The cross-entropy; `bits_per_target` is the normalised cross-entropy of the batch."""
        x = visible(model, batch)
        totals, counts = query_losses(model, x, self.queries(key, *x.shape))
        total, count = totals.sum(), jnp.maximum(counts.sum(), 1)
        loss = total if self.reduction == "sum" else total / count
        return loss, (None, {"bits_per_target": total / count / np.log(2)})


def query_losses(
    model: Any, x: Float[Array, "rows v"], targets: Bool[Array, "rows v"]
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Cross-entropy of the targets of each row in nats, and their number.

    A real or nonnegative target counts minus the logarithm of its density.
    """
    layout = model.layout
    seen = observed(layout, x)
    asked = whole_variables(layout, targets) & seen
    if layout.is_continuous.any():
        logs = model.log_beliefs(jnp.where(seen, x, 0.0), seen & ~asked)
        shares = [np.full(b.size, 1 / b.width) for b in layout.blocks if b.visible]
        share = row(jnp.asarray(np.concatenate(shares), x.dtype), x)
        return -jnp.where(asked, logs, 0.0).sum(-1), jnp.where(asked, share, 0.0).sum(-1)
    logits = model.logits(log_odds(layout, x, seen & ~asked))
    loss, weight = _variable_losses(layout, logits, jnp.where(seen, x, 0.0), asked)
    return loss.sum(-1), weight.sum(-1)


def answers(model: Any, x: ArrayLike, *, budget: int = 2**28) -> Float[np.ndarray, "rows v"]:
    """Probabilities of all visible units given the entries of x that are not NaN.

    Values are 0, 1 or, as soft evidence, between; 0.5 says nothing. `budget`: bytes that the
    messages of one chunk of rows may take.
    """
    values = np.asarray(unmasked(x), np.float32)
    n = model.layout.n_visible
    if values.ndim != 2 or values.shape[1] != n:
        raise UndirectedError(f"answers: x has shape {values.shape}; pass (rows, {n})")
    wrong = ~np.isnan(values) & ~((values >= 0) & (values <= 1))
    if wrong.any():
        at = np.argwhere(wrong)[0].tolist()
        raise UndirectedError(
            f"answers: unit {at[1]} of row {at[0]} is {values[tuple(at)]}; wanted 0, 1, a "
            "probability between, or NaN where nothing is known"
        )
    _refuse_contradictions(model.layout, values)
    pairs = max(1, n * (model.layout.n - n))
    return map_rows(lambda chunk, _: _answer(model, chunk), values, 4 * pairs, budget=budget)


@eqx.filter_jit
def _answer(model: Any, x: Float[Array, "rows v"]) -> Float[Array, "rows v"]:
    return model.probabilities(log_odds(model.layout, x, observed(model.layout, x)))


def _refuse_contradictions(layout: Layout, x: Float[np.ndarray, "rows v"]) -> None:
    """Raise where hard evidence leaves a categorical variable no state, or gives it two."""
    for block in layout.blocks:
        if not block.visible or block.domain is not Domain.CATEGORICAL:
            continue
        groups = x[:, block.slice].reshape(len(x), -1, block.states)
        bad = ((groups == 1).sum(-1) > 1) | (groups == 0).all(-1)
        if bad.any():
            at = np.argwhere(bad)[0].tolist()
            raise UndirectedError(
                f"answers: the evidence for variable {at[1]} of block '{block.name}' in row "
                f"{at[0]} contradicts itself: {groups[tuple(at)].tolist()}; one state is 1, "
                "the others 0"
            )


def _variable_losses(
    layout: Layout,
    logits: Float[Array, "rows v"],
    x: Float[Array, "rows v"],
    asked: Bool[Array, "rows v"],
) -> tuple[Float[Array, "rows m"], Float[Array, "rows m"]]:
    """Cross-entropy and weight (1 if asked) of every visible variable."""
    losses, weights = [], []
    for block in layout.blocks:
        if not block.visible:
            continue
        f, t, w = (a[:, block.slice] for a in (logits, x, asked))
        if block.domain is Domain.BINARY:
            loss = softplus(f) - t * f
        else:
            f, t = (a.reshape(len(a), -1, block.states) for a in (f, t))
            loss, w = logsumexp(f, -1) - (t * f).sum(-1), w[:, :: block.states]
        losses.append(jnp.where(w, loss, 0.0))
        weights.append(w.astype(f.dtype))
    return jnp.concatenate(losses, -1), jnp.concatenate(weights, -1)


def marginal_losses(
    data: ArrayLike, x: ArrayLike, targets: ArrayLike, *, least: float = 1e-4
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
    """What `query_losses` would be for independent binary units with the means of `data`.

    Means are kept `least` away from 0 and 1; missing entries (NaN) count nowhere.
    """
    p = np.clip(np.nanmean(np.asarray(data, np.float64), 0), least, 1 - least)
    x = np.asarray(x, np.float64)
    asked = np.asarray(targets, bool) & ~np.isnan(x)
    t = np.where(asked, x, 0.0)
    loss = -(t * np.log(p) + (1 - t) * np.log1p(-p))
    return np.where(asked, loss, 0.0).sum(1), asked.sum(1).astype(float)
