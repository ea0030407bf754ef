"""A cheap kernel at every step, and now and then an expensive one that travels far."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info
from undirected.sampling.base import Evaluations


class AlternatingState(eqx.Module):
    """The chains as the cheap kernel keeps them, and how many steps it has made."""

    inside: Any
    count: Int[Array, ""]

    @property
    def x(self) -> Float[Array, "*chains n"]:
        return self.inside.x


@dataclass(frozen=True)
class Alternating:
    """Steps of `kernel`; after the first `after` of them one of `jump` follows every `every`.

    A learner moves its parameters after every step of `kernel` and not during a jump: with
    `TemperedTransitions` as the jump, `Persistent` becomes Trans-SAP (tempered, Section 3.1).
    """

    kernel: Any
    jump: Any
    every: int
    after: int = 0

    def __post_init__(self) -> None:
        if self.every < 1 or self.after < 0:
            raise UndirectedError(
                f"alternating: every is {self.every} and after {self.after}; pass 1 or more steps "
                "between jumps, and 0 or more before them"
            )

    def init(
        self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> AlternatingState:
        """Chains that start at x."""
        return AlternatingState(self.kernel.init(model, x, key), jnp.zeros((), jnp.int32))

    def evaluations(self, model: Any) -> Evaluations:
        """Those of the kernel, and of the jump its share of the steps, in the long run."""
        one, other = (k.evaluations(model) for k in (self.kernel, self.jump))
        return Evaluations(*(a + b / self.every for a, b in zip(one, other, strict=True)))

    def step(
        self,
        model: Any,
        state: AlternatingState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[AlternatingState, Info]:
        """A jump, where one is due, and a step of the kernel.

        The kernel's report is joined by `jumps`, 1 where there was one, and by the jump's own under
        `jump_...`, all zeros where there was none: divide its mean over time by that of `jumps`.
        """
        key, start_key, jump_key, back_key = jax.random.split(key, 4)

        def travel() -> tuple[Any, Info]:
            start = self.jump.init(model, state.x, start_key)
            landed, info = self.jump.step(model, start, free, jump_key)
            return self.kernel.init(model, landed.x, back_key), info

        def stay() -> tuple[Any, Info]:
            return state.inside, jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), report)

        _, report = jax.eval_shape(travel)
        past = state.count - self.after
        due = (past > 0) & (past % self.every == 0)
        inside, jumped = jax.lax.cond(due, travel, stay)
        inside, info = self.kernel.step(model, inside, free, key)
        info = info | {f"jump_{name}": value for name, value in jumped.items()}
        return AlternatingState(inside, state.count + 1), info | {"jumps": due.astype(float)}
