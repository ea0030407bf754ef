"""One contract for every inference routine: a model or potentials in, beliefs out.

An author writes `infer` for one instance. The base class lowers a model, refuses what is neither
model nor potentials, maps over leading batch axes, compiles once per shape, and says in `status`
how it went.
"""

from dataclasses import fields
from math import inf
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain, check_discrete
from undirected.core.numerics import HARD, full_precision, is_traced
from undirected.core.potentials import (
    Beliefs,
    Potentials,
    Status,
    batch_axes,
    local_fields,
    lowered,
)
from undirected.core.units import best
from undirected.factors.squares import Squares

LEAST = {
    "iterations": (Integral, 0),
    "chunk": (Integral, 1),
    "temperature": (Real, 0),
    "tolerance": (Real, 0),
}
"""What the settings of that name are, and the least that they may be; arrays are not looked at."""


class Decoded(NamedTuple):
    """Best states of one or many instances, and how they were found."""

    x: Float[Array, "*batch n"]
    status: Int[Array, "*batch"]
    iterations: Int[Array, "*batch"]

    @property
    def converged(self) -> Array:
        """Whether each search reached its goal."""
        return self.status == Status.CONVERGED


class Inference(eqx.Module):
    """A routine that turns a model into beliefs: the base class of all of them.

    Its fields are its settings. An author writes `infer` for one instance; the base class lowers a
    model, maps over leading batch axes, and compiles once per shape. Routines with `on_host = True`
    run in NumPy, one instance after the other, and cannot be traced by `jit` or `vmap`.

    Returns:
        A call with a model, or with potentials, gives `Beliefs`; `decode` gives best states, from
        routines that look for one.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> for routine in (un.Exact(), un.Elimination(), un.SumProduct()):
        ...     assert isinstance(routine, un.Inference)
        ...     print(round(float(routine(model).log_z), 3))
        2.753
        2.753
        2.753
    """

    on_host: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Numbers of NumPy become Python's: a compiled program would take them for data."""
        for setting in fields(self):
            value = getattr(self, setting.name)
            if isinstance(value, np.generic):
                setattr(self, setting.name, value.item())

    def __check_init__(self) -> None:
        for name, (kind, least) in LEAST.items():
            value = getattr(self, name, None)
            if isinstance(value, Real) and not (isinstance(value, kind) and least <= value < inf):
                whole = "a whole number" if kind is Integral else "a finite number"
                raise UndirectedError(
                    f"{type(self).__name__}: {name} is {value!r:.40}; pass {whole} from {least}"
                )

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Beliefs of one instance: what an author writes."""
        raise NotImplementedError

    @property
    def finds_best_state(self) -> bool:
        """Whether the beliefs are those of a best state, so that `decode` may be asked."""
        return False

    def __call__(self, model: Any, key: Key[Array, ""] | None = None) -> Beliefs:
        """Beliefs about a model, or about potentials with any number of leading batch axes.

        Args:
            model: a model that lowers to potentials, or potentials; unary fields and evidence may
                lead with batch axes.
            key: for routines that draw random numbers; instances get keys of their own.

        Returns:
            Beliefs with the batch axes of the potentials.
        """
        p = lowered(type(self).__name__, model)
        if self.on_host:
            return _on_host(self, p, key)
        if is_traced(p):
            return _compiled(self, p, key)
        with full_precision():
            return _compiled(self, p, key)

    def decode(self, model: Any, key: Key[Array, ""] | None = None) -> Decoded:
        """The best state of every instance, for routines that look for one."""
        name = type(self).__name__
        p = lowered(name, model)
        if not self.finds_best_state:
            raise UndirectedError(
                f"{name}: this routine finds marginals, not a best state; use MaxProduct, MPLP, "
                "LinearProgram or a temperature of 0"
            )
        found = self(p, key)
        return Decoded(best(p.layout, found.unary - 0.5), found.status, found.iterations)


@eqx.filter_jit
def _compiled(routine: Inference, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
    return _mapped(routine, p, key)


def _mapped(routine: Inference, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
    """The routine over the leading axes of the potentials, the first axis outermost."""
    if p.unary.ndim == 1:
        return _judged(routine, p, key)
    keys = None if key is None else jax.random.split(key, len(p.unary))
    axes = (batch_axes(p), None if key is None else 0)
    return jax.vmap(lambda q, k: _mapped(routine, q, k), in_axes=axes)(p, keys)


def _judged(routine: Inference, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
    """One instance, its status with what every routine may meet: numbers that are not finite, no
    state at all.

    The constant of the energy comes last: beside a large one single precision would lose all else,
    and it is no sign of a contradiction.
    """
    beliefs = routine.infer(eqx.tree_at(lambda q: q.offset, p, jnp.zeros_like(p.offset)), key)
    finite = jnp.isfinite(beliefs.log_z) & jnp.isfinite(beliefs.unary).all()
    status = jnp.where(beliefs.log_z < -HARD, int(Status.INFEASIBLE), beliefs.status)
    status = jnp.where(finite, status, int(Status.NOT_FINITE)).astype(jnp.int32)
    return eqx.tree_at(lambda b: (b.status, b.log_z), beliefs, (status, beliefs.log_z + p.offset))


def _on_host(routine: Inference, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
    """Instance after instance, outside of any compiled program."""
    name = type(routine).__name__
    if is_traced(p):
        raise UndirectedError(
            f"{name}: runs in NumPy and cannot be traced by jit, vmap or grad; call it outside"
        )
    if p.unary.ndim == 1:
        return _judged(routine, p, key)
    count = len(p.unary)
    keys = [None] * count if key is None else jax.random.split(key, count)
    rows = [_on_host(routine, instance(p, i), keys[i]) for i in range(count)]
    if not rows:
        raise UndirectedError(f"{name}: got potentials of 0 instances; pass at least one")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def instance(p: Potentials, i: int) -> Potentials:
    """One instance of potentials with a leading batch axis."""
    parts = p.unary[i], p.evidence[i], None if p.held is None else p.held[i]
    none = lambda leaf: leaf is None  # noqa: E731
    return eqx.tree_at(lambda q: (q.unary, q.evidence, q.held), p, parts, is_leaf=none)


def finished(iterations: int = 1) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Status and iterations of a routine that always reaches its goal."""
    return jnp.asarray(int(Status.CONVERGED)), jnp.asarray(iterations)


def rounded(p: Potentials, odds: Float[Array, " n"], tie: float | Array) -> Float[Array, " n"]:
    """The state that the odds of a relaxation point to.

    A binary unit whose odds are within `tie` of 0 follows the field it feels where all such units
    are at one half: to take 0 for all of them would favour that state.
    """
    binary = np.concatenate([np.full(b.size, b.domain is Domain.BINARY) for b in p.layout.blocks])
    tied = (jnp.abs(odds) <= tie) & jnp.asarray(binary)
    if not (is_traced(tied) or tied.any()):
        return best(p.layout, odds)
    half = jnp.where(tied, 0.5, best(p.layout, odds))
    field = p.fields + local_fields(p, half)
    return best(p.layout, jnp.where(tied, field, odds))


def check_lines(caller: str, p: Potentials) -> None:
    """Refuse real or nonnegative units without squares, whose density would have no integral."""
    known = {factor.block for factor in p.factors if isinstance(factor, Squares)}
    bare = (b for i, b in enumerate(p.layout.blocks) if i not in known)
    check_discrete(caller, *bare)
