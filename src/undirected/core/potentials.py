"""Natural and mean parameters of one exponential family, and the few operations on them.

A model lowers to `Potentials`; inference answers with `Beliefs` of the same shape; the energy of a
state is `-inner(potentials, statistics(potentials, x))`.
"""

import enum
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from undirected.core.errors import UndirectedError, instead_of, kind_told
from undirected.core.layout import Domain, Layout, joint_states, to_units
from undirected.core.numerics import CERTAIN, NEG_INF, is_traced, row
from undirected.core.units import excluded_states

Group = Any
"""A factor group: see `factors.base.Factor`, which this room does not import."""


class Status(enum.IntEnum):
    """How an inference went, and why it stopped.

    CONVERGED: it reached its goal. ROUNDS_SPENT: its iterations were used up before. NOT_FINITE: a
    number became NaN or infinite. INFEASIBLE: evidence and hard factors leave no state, or the
    state found breaks a hard factor. FRACTIONAL: a relaxation was solved, but its solution is no
    state, and was rounded.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> un.Status(int(un.Exact()(model).status)).name
        'CONVERGED'
    """

    CONVERGED = 0
    ROUNDS_SPENT = 1
    NOT_FINITE = 2
    INFEASIBLE = 3
    FRACTIONAL = 4


class Potentials(eqx.Module):
    """The natural parameters of a model: what `model.lower()` gives and inference takes.

    Args:
        unary: the field of every unit, perhaps with batch axes in front.
        factors: the factor groups.
        evidence: 0, or plus or minus CERTAIN where a unit is held; `clamp` and `observe` set it.
        offset: a constant of the negative energy.
        layout: what the units are.
        colours: for each colour the units of it, padded with n; variables of one colour share no
            factor, so that samplers and mean field may update them together.
        held: the values of real and nonnegative units under evidence (whose evidence is CERTAIN),
            0 elsewhere; None where no such unit is held.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> p = model.lower()
        >>> print(p.unary, p.factors[0].weight)
        [ 1. -2. -1.] [2. 2.]
    """

    unary: Float[Array, "*batch n"]
    factors: tuple[Group, ...]
    evidence: Float[Array, "*batch n"]
    offset: Float[Array, ""]
    layout: Layout = eqx.field(static=True)
    colours: Int[Array, "C m"] | None = None
    held: Float[Array, "*batch n"] | None = None

    @property
    def fields(self) -> Float[Array, "*batch n"]:
        """What a unit feels before any message: unary plus evidence."""
        return self.unary + self.evidence


class Beliefs(eqx.Module):
    """What an inference found: expectations in the shape of the potentials, and how it went.

    Args:
        unary: the mean of every unit; for binary units the probability of a 1.
        factors: the groups of the potentials, with expected statistics in place of their weights.
        log_z: the estimate of the log partition function over the states that agree with the
            evidence; at temperature 0 the value of the best state.
        status: a `Status`; `converged` says whether it is CONVERGED.
        iterations: rounds made.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> beliefs = un.Exact()(model)
        >>> print(np.asarray(beliefs.unary).round(2))
        [0.88 0.68 0.58]
        >>> round(float(beliefs.log_z), 3), bool(beliefs.converged)
        (2.753, True)
    """

    unary: Float[Array, "*batch n"]
    factors: tuple[Group, ...]
    log_z: Float[Array, "*batch"]
    status: Int[Array, "*batch"]
    iterations: Int[Array, "*batch"]

    @property
    def converged(self) -> Bool[Array, "*batch"]:
        """Whether the inference reached its goal; `Status` names what else `status` may be."""
        return self.status == Status.CONVERGED


def potentials(
    layout: Layout,
    unary: Float[Array, "*batch n"],
    factors: tuple[Group, ...] = (),
    offset: float | Float[Array, ""] = 0.0,
    colours: Int[Array, "C m"] | None = None,
) -> Potentials:
    """Potentials without evidence."""
    unary = jnp.asarray(unary)  # NumPy's doubles in the precision of JAX
    if unary.shape[-1] != layout.n:
        raise UndirectedError(
            f"potentials: unary has {unary.shape[-1]} entries, the layout has {layout.n} units"
        )
    none, offset = jnp.zeros_like(unary), jnp.asarray(offset, unary.dtype)
    groups = jax.tree.map(_as_jax, tuple(factors))
    return Potentials(unary, groups, none, offset, layout, colours)


def _as_jax(leaf: Any) -> Any:
    """Numbers of NumPy as those of JAX, in its precision."""
    numbers = isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.floating)
    return jnp.asarray(leaf) if numbers else leaf


def lowered(caller: str, model: Any) -> Potentials:
    """The potentials of a model, or potentials as they are; anything else is refused."""
    if isinstance(model, Potentials):
        return model
    named = isinstance(model, type | str)  # a class has `lower` unbound, and text has another one
    found = None if named or not hasattr(model, "lower") else model.lower()
    if not isinstance(found, Potentials):
        wanted = "a model that lowers to potentials, or potentials"
        raise UndirectedError(
            f"{caller}: got {kind_told(model)}; {instead_of(caller, model, wanted)}"
        )
    return found


def without_constant(model: Any) -> tuple[Any, float]:
    """A model, or potentials, without the constant of the energy, and that constant.

    Beside a large one single precision would lose all else.
    """
    if "offset" not in getattr(model, "__dataclass_fields__", {}):
        return model, 0.0
    bare = eqx.tree_at(lambda m: m.offset, model, jnp.zeros_like(model.offset))
    return bare, float(model.offset)


def shift(p: Potentials, unary: Float[Array, "*batch m"]) -> Potentials:
    """Add to the unary fields: soft evidence, noise, or the loss of a wrong answer.

    Args:
        p: potentials.
        unary: what to add to the field of every unit, or of every visible one; leading axes make a
            batch of instances that share their factors.

    Returns:
        The potentials with these fields.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> p = un.shift(model.lower(), [0.0, 0.0, 2.0])
        >>> print(np.asarray(un.Exact()(p).unary).round(2))
        [0.91 0.81 0.91]
    """
    extra = _padded("shift", p.layout, jnp.asarray(unary, p.unary.dtype), 0.0)
    fields, extra, evidence = _together(p.unary, extra, p.evidence)
    return eqx.tree_at(lambda q: (q.unary, q.evidence), p, (fields + extra, evidence))


def clamp(p: Potentials, mask: Bool[Array, "*batch m"], x: Float[Array, "*batch m"]) -> Potentials:
    """Hard evidence: units under the mask take their value in x, the rest stay as they were.

    A categorical variable is clamped by a 1 at the unit of its state; a 0 excludes a state. Values
    are checked where they are known, that is outside of `jit`.

    Args:
        p: potentials.
        mask: True for the units that are held; covers all units, or the visible ones.
        x: under the mask 0 or 1, or the value of a real or nonnegative unit; anywhere else it may
            be NaN. Leading axes of mask and x make a batch of instances.

    Returns:
        The potentials with this evidence.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> held = un.clamp(model.lower(), [False, False, True], [0, 0, 1])
        >>> print(np.asarray(un.Exact()(held).unary).round(2))
        [0.92 0.85 1.  ]
    """
    _check_evidence(p.layout, mask, x)
    mask = _padded("clamp", p.layout, jnp.asarray(mask, bool), False)
    x = _padded("clamp", p.layout, jnp.asarray(x, p.unary.dtype), 0)
    mask, x, before, unary = _together(mask, x, p.evidence, p.unary)
    certain = row(jnp.asarray(_certainty(p.layout), unary.dtype), x)
    on = mask & (x > 0.5)
    evidence = jnp.where(mask, jnp.where(on, certain, NEG_INF), before)
    evidence = jnp.where(excluded_states(p.layout, on), NEG_INF, evidence)
    continuous = p.layout.is_continuous
    if not continuous.any():
        both = unary, evidence.astype(unary.dtype)
        return eqx.tree_at(lambda q: (q.unary, q.evidence), p, both)
    valued = mask & row(jnp.asarray(continuous), x)
    evidence = jnp.where(valued, CERTAIN, evidence).astype(unary.dtype)
    old = jnp.zeros_like(unary) if p.held is None else jnp.broadcast_to(p.held, unary.shape)
    held = jnp.where(valued, x, old)
    none = lambda leaf: leaf is None  # noqa: E731
    return eqx.tree_at(
        lambda q: (q.unary, q.evidence, q.held), p, (unary, evidence, held), is_leaf=none
    )


def statistics(p: Potentials, x: Float[Array, " n"]) -> Beliefs:
    """The beliefs of one certain state."""
    return Beliefs(
        unary=x,
        factors=tuple(factor.statistic(p.layout, x) for factor in p.factors),
        log_z=jnp.zeros((), x.dtype),
        status=jnp.asarray(int(Status.CONVERGED)),
        iterations=jnp.asarray(0),
    )


def mean_statistics(p: Potentials, x: Float[Array, "samples n"]) -> Beliefs:
    """The beliefs that a set of states stands for; their log_z is 0."""
    return Beliefs(
        unary=x.mean(0),
        factors=tuple(factor.mean_statistic(p.layout, x) for factor in p.factors),
        log_z=jnp.zeros((), x.dtype),
        status=jnp.asarray(int(Status.CONVERGED)),
        iterations=jnp.asarray(0),
    )


def inner(p: Potentials, b: Beliefs) -> Float[Array, ""]:
    """<natural, mean>: the expected negative energy of one instance; evidence adds nothing."""
    total = p.offset + jnp.sum(p.unary * b.unary)
    for natural, mean in zip(p.factors, b.factors, strict=True):
        total = total + natural.pairing(mean)
    return total


def values(p: Potentials, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
    """inner(p, statistics(x)) of every state; the unary fields may lead with a batch axis."""
    x = joint_states("energy", p.layout, x)
    total = p.offset + (x * jnp.broadcast_to(p.unary, x.shape)).sum(-1)
    for factor in p.factors:
        total = total + factor.value(p.layout, x)
    return total


def local_fields(p: Potentials, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """The field each unit feels at x from all factor groups."""
    total = jnp.zeros_like(x)
    for factor in p.factors:
        total = total + factor.local_field(p.layout, x)
    return total


def observe(p: Potentials, states: Mapping[Any, Any]) -> Potentials:
    """Hard evidence by words.

    Args:
        p: potentials.
        states: `{variable: state}`, each by its name or its number.

    Returns:
        The potentials with this evidence.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> net = un.markov_network({"rain": 2, "sky": ["clear", "dark"]},
        ...                         {("rain", "sky"): [[8, 2], [1, 3]]})
        >>> dark = un.observe(net.lower(), {"sky": "dark"})
        >>> print(np.asarray(un.Elimination()(dark).unary).round(2))
        [0.6 1. ]
    """
    if not isinstance(states, Mapping):
        raise UndirectedError(
            f"observe: got a {type(states).__name__}; pass a dictionary {{variable: state}}"
        )
    value, seen = (np.zeros(len(p.layout.variables), kind) for kind in (int, bool))
    for name, state in states.items():
        variable = p.layout.variable("observe", name)
        value[variable], seen[variable] = p.layout.state("observe", variable, state), True
    mask = seen[p.layout.variables.owner]
    return clamp(p, jnp.asarray(mask), to_units(p.layout, value))


def batch_axes(p: Potentials) -> Potentials:
    """`in_axes` of vmap for potentials whose unary and evidence lead with a batch axis."""
    held = None if p.held is None else 0
    return Potentials(0, None, 0, None, p.layout, held=held)  # type: ignore[arg-type]


def _check_evidence(layout: Layout, mask: Any, x: Any) -> None:
    """Refuse values under the mask that are no states: NaN, between 0 and 1, two or no states."""
    if is_traced((mask, x)):
        return
    mask, x = (np.asarray(a) for a in np.broadcast_arrays(mask, x))
    numbers = layout.is_continuous[: x.shape[-1]]
    if (mask & numbers & ~np.isfinite(x)).any():
        place = tuple(np.argwhere(mask & numbers & ~np.isfinite(x))[0].tolist())
        raise UndirectedError(
            f"clamp: the value at {place} is {x[place]:g}; pass a finite number under the mask"
        )
    wrong = mask & ~numbers & (x != 0) & (x != 1)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise UndirectedError(
            f"clamp: the value at {place} is {x[place]:g}; pass 0 or 1 under the mask (and False "
            "in the mask for what is not observed)"
        )
    for block in layout.blocks:
        if block.domain is not Domain.CATEGORICAL or block.stop > x.shape[-1]:
            continue
        split = (*x.shape[:-1], block.variables, block.states)
        held = mask[..., block.slice].reshape(split)
        on = (held & (x[..., block.slice].reshape(split) == 1)).sum(-1)
        wrong = (on > 1) | (held.all(-1) & (on == 0))
        if wrong.any():
            raise UndirectedError(
                f"clamp: a variable of block '{block.name}' has {on[wrong][0]} states at 1; pass "
                f"exactly one of its {block.states}"
            )


def _certainty(layout: Layout) -> np.ndarray:
    """Evidence for a unit that is on: CERTAIN, or nothing where excluding the others says it."""
    return np.concatenate(
        [np.full(b.size, 0.0 if b.domain is Domain.CATEGORICAL else CERTAIN) for b in layout.blocks]
    )


def _padded(caller: str, layout: Layout, a: Array, fill: float | bool) -> Array:
    """An array over the visible units, extended over all units."""
    n = a.shape[-1]
    if n == layout.n:
        return a
    if n != layout.n_visible:
        raise UndirectedError(
            f"{caller}: got {n} entries, the model has {layout.n} units of which "
            f"{layout.n_visible} are visible; pass one entry per unit or per visible unit"
        )
    return jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, layout.n - n)], constant_values=fill)


def _together(*arrays: Array) -> list[Array]:
    shape = jnp.broadcast_shapes(*(a.shape for a in arrays))
    return [jnp.broadcast_to(a, shape) for a in arrays]
