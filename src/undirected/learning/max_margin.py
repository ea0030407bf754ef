"""Max-margin and perceptron learning of models with hidden units."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.potentials import shift
from undirected.core.protocols import Inference, Info, Kernel, Summable
from undirected.core.units import best as best_state
from undirected.learning.chain_phases import detach, visible


def hamming(v: Float[Array, " v"]) -> Float[Array, "2 v"]:
    """Loss of answering 0, and of answering 1, for every unit whose true value is v."""
    return jnp.stack([v, 1.0 - v])


@dataclass(frozen=True)
class MaxMargin:
    """max_v [loss(v, v_n) + s(v)] - s(v_n), by loss-augmented inference (crbm-bp, eqs 6, 7).

    Args:
        infer: finds the best visible state; `MixedProduct` for sums over hidden units, `MaxProduct`
            for their maximum.
        loss: a function of the true values that gives the loss of answering 0 and that of answering
            1 at every visible unit; by default 1 for a wrong answer.
        hidden: "sum" for s(v) = log sum_h exp(-E), the marginal structured SVM; "max" for
            s(v) = max_h -E, the latent structured SVM.

    Returns:
        A call with a model, a batch of rows, None and a key gives the mean margin violation and
        what to report; `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 5, 0)
        >>> objective = un.MaxMargin(un.MixedProduct())
        >>> un.fit(un.RBM.create(3, 2, seed=0), rows, objective, steps=2).step
        2
    """

    infer: Inference
    loss: Callable[[Array], Array] = hamming
    hidden: Literal["sum", "max"] = "sum"

    def __post_init__(self) -> None:
        if self.hidden not in ("sum", "max"):
            raise UndirectedError(f"max-margin: hidden is {self.hidden!r}; pass 'sum' or 'max'")

    def init(self, model: Any, batch: Array, key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step; the model is checked."""
        name, rbm = type(model).__name__, hasattr(model, "visible_bias")
        if self.hidden == "max" and not rbm:
            raise UndirectedError(f"max-margin: {name} is no RBM, which hidden='max' is for")
        if self.hidden == "sum" and not isinstance(model, Summable):
            raise UndirectedError(f"max-margin: {name} has no free energy; use Persistent")

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The mean margin violation and its subgradient."""
        v = visible(model, batch)
        constant = detach(model).lower()

        def rival(row: Array, key: Key[Array, ""]) -> tuple[Array, Array, Array]:
            off, on = self.loss(row)
            beliefs = self.infer(shift(constant, on - off), key)
            answer = (beliefs.unary[: row.shape[0]] > 0.5).astype(row.dtype)
            cost = jnp.where(answer > 0, on, off).sum()
            return jax.lax.stop_gradient(answer), cost, beliefs.converged

        answers, costs, converged = jax.vmap(rival)(v, jax.random.split(key, len(v)))
        margin = costs + self._score(model, answers) - self._score(model, v)
        wrong = jnp.abs(answers - v).mean()
        return margin.mean(), (
            None,
            {"violation": margin.mean(), "flipped": wrong, "converged": converged.mean()},
        )

    def _score(self, model: Any, v: Float[Array, "rows v"]) -> Float[Array, " rows"]:
        if self.hidden == "sum":
            return -model.free_energy(v)
        return v @ model.visible_bias + jax.nn.relu(model.hidden_fields(v)).sum(-1)


@dataclass(frozen=True)
class PerceptronLoss:
    """CD-PercLoss (Mnih, Larochelle & Hinton 2011): F(v_n) - F(found), where a search finds better.

    The search is a chain of `steps` kernel steps. With `start="data"` it starts at v_n, as
    contrastive divergence does, and finds the state it ends at; with `start="best"` it starts at
    the state that the visible units' own biases favour (in a conditional model: the answer of the
    logistic regression) and finds the state of lowest free energy it meets.
    """

    kernel: Kernel
    steps: int = 10
    start: Literal["best", "data"] = "best"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UndirectedError(f"perceptron loss: steps is {self.steps}; pass 1 or more")
        if self.start not in ("best", "data"):
            raise UndirectedError(
                f"perceptron loss: start is {self.start!r}; pass 'best' or 'data'"
            )

    def init(self, model: Any, batch: Array, key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step."""
        return None

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The mean loss; rows that no better state was found for add nothing."""
        v = visible(model, batch)
        constant = detach(model)
        found, level = self._search(constant, v, key)
        beaten = (level < constant.free_energy(v)).astype(v.dtype)
        loss = beaten * (model.free_energy(v) - model.free_energy(found))
        return loss.mean(), (None, {"beaten": beaten.mean()})

    def _search(
        self, constant: Any, v: Float[Array, "rows v"], key: Key[Array, ""]
    ) -> tuple[Float[Array, "rows v"], Float[Array, " rows"]]:
        """The state found for every row, and its free energy."""
        init_key, key = jax.random.split(key)
        n, keys = constant.layout.n, jax.random.split(key, self.steps)
        free = jnp.ones(n, bool)
        if self.start == "data":  # hidden units are drawn first, whatever they start from
            x = jnp.pad(v, ((0, 0), (0, n - v.shape[-1])))
            state = self.kernel.init(constant, x, init_key)
            state, _ = jax.lax.scan(
                lambda state, key: (self.kernel.step(constant, state, free, key)[0], None),
                state,
                keys,
            )
            last = state.x[..., : v.shape[-1]]
            return last, constant.free_energy(last)
        start = best_state(constant.layout, constant.lower().unary).astype(v.dtype)
        first = jnp.broadcast_to(start[: v.shape[-1]], v.shape)
        state = self.kernel.init(constant, jnp.broadcast_to(start, (len(v), n)), init_key)

        def move(carry: tuple[Any, Array, Array], key: Key[Array, ""]) -> tuple[Any, None]:
            state, best, level = carry
            state, _ = self.kernel.step(constant, state, free, key)
            here = state.x[..., : v.shape[-1]]
            energy = constant.free_energy(here)
            better = energy < level
            best = jnp.where(better[..., None], here, best)
            return (state, best, jnp.minimum(energy, level)), None

        search = (state, first, constant.free_energy(first))
        (_, best, level), _ = jax.lax.scan(move, search, keys)
        return best, level
