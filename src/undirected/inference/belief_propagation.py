"""Loopy belief propagation: sum-product, max-product and every temperature between."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.iterate import iterate, largest, status_of
from undirected.core.mesh import mesh_size, on_mesh, unit_parts
from undirected.core.numerics import CERTAIN, HARD, is_zero, message
from undirected.core.potentials import (
    Beliefs,
    Potentials,
    Status,
    inner,
    lowered,
    statistics,
    values,
)
from undirected.core.units import best, log_normaliser, means
from undirected.factors import Bilinear, Messages, Schedule, Symmetric, Wired
from undirected.factors.base import require
from undirected.inference import mixed_messages
from undirected.inference.base import Decoded, Inference
from undirected.ops import bipartite, max_product, on_chip

CACHE, MEMORY = 2**17, 2**29
"""Messages that `decode` keeps in flight at once, on a CPU and on an accelerator."""

AllMessages = tuple[tuple[Messages, ...], Float[Array, " n"]]
"""The messages of every group, and their sums at the units."""


class BeliefPropagation(Inference):
    """Message passing on pairwise models and factor graphs; exact on trees.

    One round sends every message once. At temperature 1 it is sum-product, at 0 max-product. log Z
    is the Bethe value of T log sum exp(-E / T); at T = 0 it is the value of the state that the
    max-marginals decode to, and a unit whose two values are equally good has 0.5.

    Args:
        iterations: rounds at most.
        tolerance: stop when no unit's field moves by more; None makes all rounds.
        damping: the share of the old message that is kept.
        temperature: T.
        parallel: send the two directions of a dense bipartite group at once, not in turn.

    Returns:
        A call gives `Beliefs`; at temperature 0 `decode` gives best states, of many instances too.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> beliefs = un.BeliefPropagation()(model)
        >>> print(np.asarray(beliefs.unary).round(2))
        [0.88 0.68 0.58]
    """

    iterations: int | Array = 100
    tolerance: float | None = 1e-4
    damping: float = 0.0
    temperature: float | Array = 1.0
    parallel: bool = False

    def __check_init__(self) -> None:
        if isinstance(self.iterations, int) and self.iterations < 1:
            raise UndirectedError(f"belief propagation: iterations is {self.iterations}, not >= 1")
        if not 0 <= self.damping < 1:
            raise UndirectedError(f"belief propagation: damping {self.damping} is not in [0, 1)")
        if isinstance(self.temperature, int | float) and self.temperature < 0:
            raise UndirectedError(f"belief propagation: temperature {self.temperature} is negative")

    @property
    def finds_best_state(self) -> bool:
        return is_zero(self.temperature)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        if mixed_messages.suits(p):
            return self._mixed(p)
        require("belief propagation", p, "update_messages", "use a sampler or Exact")
        if self._suits_kernel(p):
            return self._dense_bipartite(p)
        if is_zero(self.temperature):
            total, change, count = self._totals(p)
            unary = means(p.layout, _obedient(p, total), 0.0)
            state = statistics(p, unary)
            status = status_of(change, self.tolerance)
            return Beliefs(unary, state.factors, inner(p, state), status, count)
        messages, incoming, change, count = self._pass_messages(p)
        return self._beliefs(p, messages, incoming, status_of(change, self.tolerance), count)

    def _mixed(self, p: Potentials) -> Beliefs:
        """Continuous visible units among discrete ones."""
        if not (isinstance(self.temperature, int | float) and self.temperature == 1):
            raise UnsupportedFactor(
                f"belief propagation: temperature {self.temperature} on real or nonnegative units; "
                "sum-product (temperature 1) takes them"
            )
        return mixed_messages.propagate(p, self.iterations, self.tolerance, self.damping)

    def decode(self, model: Any, key: Key[Array, ""] | None = None) -> Decoded:
        """The best state of each unit for one or many instances that share their factors.

        Instances are taken in chunks whose messages fit the cache (on an accelerator: its memory).
        """
        if not self.finds_best_state:
            return super().decode(model)
        p = lowered("MaxProduct", model)
        require("belief propagation", p, "update_messages", "use a sampler or Exact")
        return _decode(self, p)

    def _totals(self, p: Potentials) -> max_product.Decoded:
        """Fields with all messages added, the last change, the rounds made."""
        bounds = self.iterations, self.tolerance, self.damping
        hard = is_zero(self.temperature) and p.layout.is_binary
        match p.factors:
            case (Symmetric(weight=weight),) if hard and len(weight) == p.layout.n:
                return max_product.symmetric(weight, p.fields, *bounds)
            case (Bilinear(weight=weight, rows=0, cols=1),) if hard and len(p.layout.blocks) == 2:
                rows, cols = jnp.split(p.fields, [len(weight)])
                return max_product.bipartite(weight, rows, cols, *bounds, self.parallel)
        _, incoming, change, count = self._pass_messages(p)
        return p.fields + incoming, change, count

    def init_messages(self, p: Potentials) -> AllMessages:
        """Neutral messages of every group: what `resume` may begin with."""
        start = tuple(factor.init_messages(p.layout) for factor in p.factors)
        return start, _sums(start, p)

    def resume(self, p: Potentials, messages: AllMessages) -> tuple[Decoded, AllMessages]:
        """The best state of each unit when messages go on from earlier ones, and the new ones.

        For one instance, of any potentials with the same wiring as those of the messages.
        """
        groups, incoming, change, count = self._pass_messages(p, messages)
        state = best(p.layout, p.fields + incoming)
        return Decoded(state, status_of(change, self.tolerance), count), (groups, incoming)

    def _pass_messages(
        self, p: Potentials, messages: AllMessages | None = None
    ) -> tuple[tuple[Messages, ...], Float[Array, " n"], Array, Array]:
        """Messages of every group, their sums at the units, the last change, the rounds made."""
        state = self.init_messages(p) if messages is None else messages
        p = eqx.tree_at(lambda q: q.factors, p, tuple(f.prepare() for f in p.factors))
        schedule = Schedule(self.temperature, self.damping, self.parallel)

        def step(state: tuple) -> tuple[tuple, Array]:
            groups, incoming = _round(p, schedule, *state)
            return (groups, incoming), largest(incoming - state[1])

        (groups, incoming), *how = iterate(step, state, self.iterations, self.tolerance)
        return groups, incoming, how[0], how[1]

    def _suits_kernel(self, p: Potentials) -> bool:
        """Sum-product, in turn, on one dense bipartite group of binary units."""
        dense = len(p.factors) == 1 and isinstance(p.factors[0], Bilinear) and p.layout.is_binary
        return dense and not self.parallel and not is_zero(self.temperature)

    def _dense_bipartite(self, p: Potentials) -> Beliefs:
        """The same beliefs from the kernel that fits the weights; log form where they are steep.

        At temperature T the messages are T times those of the potentials divided by T.
        """
        T, factor = self.temperature, p.factors[0]
        weight, fields = factor.weight / T, p.fields / T
        rows, cols = (p.layout.blocks[b].slice for b in (factor.rows, factor.cols))

        def by_kernel(gentle: bool) -> Callable[[], bipartite.Loop]:
            bounds = self.iterations, self.tolerance, self.damping
            ends = fields[rows], fields[cols]
            if gentle and not self.damping and on_chip.fits(*weight.shape):
                return lambda: on_chip.sum_product(weight, *ends, *bounds[:2])
            # Groups of columns would not be those of a device.
            grouped = gentle and jax.default_backend() == "cpu" and unit_parts() == 1
            return lambda: bipartite.sum_product(weight, *ends, *bounds, grouped)

        def by_logs() -> bipartite.Loop:
            (messages,), incoming, change, count = self._pass_messages(p)
            return messages.backward / T, incoming[rows] / T, incoming[cols] / T, change, count

        steepest = bipartite.steepest(weight)
        level = (steepest > bipartite.GENTLE).astype(int) + (steepest > bipartite.STEEPEST)
        to_rows, at_rows, at_cols, change, count = jax.lax.switch(
            level, [by_kernel(True), by_kernel(False), by_logs]
        )
        incoming = jnp.zeros_like(fields).at[rows].set(at_rows).at[cols].set(at_cols)
        total = fields + incoming
        unary = means(p.layout, total)
        cavity = total[rows][:, None] - to_rows
        both = jax.nn.sigmoid(cavity + weight) * unary[cols][None, :]
        # The Bethe value of messages of which those to the columns answer those to the rows.
        answered = incoming.at[cols].set(message(cavity, weight).sum(0))
        log_z = log_normaliser(p.layout, p.unary / T + answered, 1.0, p.evidence)
        log_z = p.offset + T * (log_z - message(cavity, to_rows).sum())
        pairs = (Bilinear(both, factor.rows, factor.cols),)
        return Beliefs(unary, pairs, log_z, status_of(change, self.tolerance), count)

    def _beliefs(
        self,
        p: Potentials,
        messages: tuple[Messages, ...],
        incoming: Array,
        status: Array,
        count: Array,
    ) -> Beliefs:
        p, messages, incoming = harden(p, messages, incoming)
        T, total = self.temperature, p.fields + incoming
        unary = means(p.layout, total, T)
        log_z = p.offset + log_normaliser(p.layout, p.unary + incoming, T, p.evidence)
        factors = []
        for factor, own in zip(p.factors, messages, strict=True):
            mean, correction = factor.beliefs(p.layout, total, unary, own, T)
            factors.append(mean)
            log_z = log_z + correction
        return Beliefs(unary, tuple(factors), log_z, status, count)


def SumProduct(
    iterations: int | Array = 100,
    tolerance: float | None = 1e-4,
    damping: float = 0.0,
    parallel: bool = False,
) -> BeliefPropagation:
    """Belief propagation for marginals (temperature 1).

    A contradiction round a loop, which leaves no state, may not show in messages: they settle, and
    the beliefs are CONVERGED. `Elimination` and `un.solve` tell it.

    Args:
        iterations: rounds at most.
        tolerance: stop when no unit's field moves by more; None makes all rounds.
        damping: the share of the old message that is kept.
        parallel: send the two directions of a dense bipartite group at once, not in turn.

    Returns:
        A `BeliefPropagation`; a call of it with a model gives `Beliefs`.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> beliefs = un.SumProduct()(model)
        >>> print(np.asarray(beliefs.unary).round(2), beliefs.converged)
        [0.88 0.68 0.58] True
    """
    return BeliefPropagation(iterations, tolerance, damping, 1.0, parallel)


def MaxProduct(
    iterations: int | Array = 100,
    tolerance: float | None = 1e-4,
    damping: float = 0.5,
    parallel: bool = False,
) -> BeliefPropagation:
    """Belief propagation for the most probable state (temperature 0).

    On loops it may miss the best state. Where a binary pairwise model only attracts (all couplings
    are positive, whatever the fields), `LinearProgram("cut")` finds a best state, and says so by
    its status; it also does on many others.

    Args:
        iterations: rounds at most.
        tolerance: stop when no unit's field moves by more; None makes all rounds.
        damping: the share of the old message that is kept.
        parallel: send the two directions of a dense bipartite group at once, not in turn.

    Returns:
        A `BeliefPropagation`; its `decode` gives best states.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, -0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> print(un.MaxProduct().decode(model).x)
        [1. 1. 0.]
    """
    return BeliefPropagation(iterations, tolerance, damping, 0.0, parallel)


@eqx.filter_jit
def _decode(routine: BeliefPropagation, p: Potentials) -> Decoded:
    if p.unary.ndim == 1:
        total, change, count = routine._totals(p)
        x, status = best(p.layout, _obedient(p, total)), status_of(change, routine.tolerance)
        if any(isinstance(factor, Wired) for factor in p.factors):
            broken = values(p, x[None])[0] - p.offset < -HARD
            status = jnp.where(broken, int(Status.INFEASIBLE), status)
        return Decoded(x, status, count)

    def one(fields: tuple[Array, Array]) -> Decoded:
        return _decode(routine, eqx.tree_at(lambda q: (q.unary, q.evidence), p, fields))

    start = jax.eval_shape(routine.init_messages, eqx.tree_at(_fields, p, _first(p)))
    messages = sum(leaf.size for leaf in jax.tree.leaves(start))
    room = CACHE if jax.default_backend() == "cpu" else MEMORY
    size = int(np.clip(room * mesh_size() // max(messages, 1), 1, len(p.unary)))
    if on_mesh() and size == len(p.unary):
        return jax.vmap(one)((p.unary, p.evidence))
    chunk = None if size == 1 else size
    return jax.lax.map(one, (p.unary, p.evidence), batch_size=chunk)


def _obedient(p: Potentials, total: Float[Array, " n"]) -> Float[Array, " n"]:
    """Fields that never overrule evidence: hard factors that contradict it would make ties."""
    return jnp.where(jnp.abs(p.evidence) > HARD, p.evidence, total)


def _fields(p: Potentials) -> tuple[Array, Array]:
    return p.unary, p.evidence


def _first(p: Potentials) -> tuple[Array, Array]:
    """The fields of the first instance."""
    leading = (0,) * (p.unary.ndim - 1)
    return p.unary[leading], p.evidence[leading]


def harden(
    p: Potentials, messages: tuple[Messages, ...], incoming: Float[Array, " n"]
) -> tuple[Potentials, tuple[Messages, ...], Float[Array, " n"]]:
    """Units that hard factors decide become evidence, and messages to decided units become 0.

    The Bethe log Z adds every message to a certain unit and takes it off again, so it stays the
    same; but single precision would lose soft fields beside a message as large as certainty.
    """
    if not any(isinstance(factor, Wired) for factor in p.factors):
        return p, messages, incoming
    verdict = jnp.where(jnp.abs(p.evidence) > HARD, p.evidence, incoming)
    decided = jnp.abs(verdict) > HARD
    evidence = jnp.where(decided, jnp.copysign(CERTAIN, verdict), p.evidence)
    kept = tuple(
        factor.without_decided(own, decided) if isinstance(factor, Wired) else own
        for factor, own in zip(p.factors, messages, strict=True)
    )
    return eqx.tree_at(lambda q: q.evidence, p, evidence), kept, _sums(kept, p)


def _sums(messages: tuple[Messages, ...], p: Potentials) -> Float[Array, " n"]:
    """The messages of all groups, summed at the units."""
    none = jnp.zeros(p.layout.n, p.unary.dtype)
    return sum((own.incoming for own in messages), none)


def _round(
    p: Potentials, schedule: Schedule, messages: tuple[Messages, ...], incoming: Array
) -> tuple[tuple[Messages, ...], Array]:
    """Send the messages of every group: group after group, or all from the same fields.

    Sums are taken anew: a difference would not bring back what a huge message has rounded off.
    """
    now, updated = incoming, list(messages)
    for i, factor in enumerate(p.factors):
        seen = incoming if schedule.parallel else now
        updated[i] = factor.update_messages(p.layout, p.fields + seen, messages[i], schedule)
        now = _sums(tuple(updated), p)
    return tuple(updated), now
