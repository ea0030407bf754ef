"""Loopy belief propagation: sum-product, max-product and every temperature between."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.iterate import iterate, largest, settled
from undirected.core.layout import best, log_normaliser, means
from undirected.core.numerics import is_zero, message
from undirected.core.potentials import (
    Beliefs,
    Bilinear,
    Potentials,
    Symmetric,
    check_potentials,
    inner,
    statistics,
)
from undirected.inference.factor_messages import ready, settle
from undirected.inference.messages import Schedule, Traffic, pair_beliefs, quiet, renew
from undirected.ops import bipartite, max_product

CACHE, MEMORY = 2**17, 2**29
"""Messages that `decode` keeps in flight at once, on a CPU and on an accelerator."""

Messages = tuple[tuple[Traffic, ...], Float[Array, " n"]]
Passed = tuple[tuple[Traffic, ...], Float[Array, " n"], Array, Array]


class BeliefPropagation(eqx.Module):
    """Message passing on pairwise models and factor graphs; exact on trees.

    Runs `iterations` rounds, or until no unit's field moves by more than `tolerance`. One round
    sends every message once: the two directions of a dense bipartite group in turn, or all at once
    where `parallel`. `damping` is the share of the old message kept. `temperature` 1 is
    sum-product, 0 max-product; log Z is the Bethe value of T log sum exp(-E / T), at T = 0 the
    value of the state that the max-marginals decode to. At T = 0 a unit whose two values are
    equally good has 0.5.
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

    @eqx.filter_jit
    def __call__(self, potentials: Potentials, key: Key[Array, ""] | None = None) -> Beliefs:
        """Beliefs of one instance; nothing here is random, the key is not used."""
        p = potentials
        check_potentials("belief propagation", p)
        if self._suits_kernel(p):
            return self._dense_bipartite(p)
        if is_zero(self.temperature):
            total, change, count = self._totals(p)
            unary = means(p.layout, total, 0.0)
            state = statistics(p, unary)
            converged = settled(change, self.tolerance)
            return Beliefs(unary, state.factors, inner(p, state), converged, count)
        traffic, incoming, change, count = self._pass_messages(p)
        return self._beliefs(p, traffic, incoming, settled(change, self.tolerance), count)

    @eqx.filter_jit
    def decode(
        self, potentials: Potentials
    ) -> tuple[Float[Array, "batch n"], Bool[Array, " batch"], Int[Array, " batch"]]:
        """The best state of each unit for many instances that share their factors.

        Unary and evidence lead with a batch axis; instances are taken in chunks whose messages fit
        the cache (on an accelerator: its memory). Also: which converged, and in how many rounds.
        """
        p = potentials

        def one(instance: tuple[Array, Array]) -> tuple[Array, Array, Array]:
            q = eqx.tree_at(lambda q: (q.unary, q.evidence), p, instance)
            total, change, count = self._totals(q)
            return best(p.layout, total), settled(change, self.tolerance), count

        schedule = Schedule(self.temperature, self.damping, self.parallel)
        start = jax.eval_shape(lambda: [quiet(f, p.layout, schedule) for f in p.factors])
        messages = sum(leaf.size for leaf in jax.tree.leaves(start))
        room = CACHE if jax.default_backend() == "cpu" else MEMORY
        size = int(np.clip(room // max(messages, 1), 1, len(p.unary)))
        chunk = None if size == 1 else size
        return jax.lax.map(one, (p.unary, p.evidence), batch_size=chunk)

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

    def silence(self, p: Potentials) -> Messages:
        """No message sent yet, and their sums at the units: what `go_on` may begin with."""
        schedule = Schedule(self.temperature, self.damping, self.parallel)
        start = tuple(quiet(factor, p.layout, schedule) for factor in p.factors)
        return start, jnp.zeros(p.layout.n, p.unary.dtype)

    def go_on(
        self, p: Potentials, messages: Messages
    ) -> tuple[Float[Array, " n"], Messages, Bool[Array, ""], Int[Array, ""]]:
        """The best state of each unit when messages go on from earlier ones, and the new ones.

        Also: whether they converged, and in how many rounds. For one instance, of any potentials
        with the same wiring as those that the messages are of.
        """
        traffic, incoming, change, count = self._pass_messages(p, messages)
        state = best(p.layout, p.fields + incoming)
        return state, (traffic, incoming), settled(change, self.tolerance), count

    def _pass_messages(self, p: Potentials, messages: Messages | None = None) -> Passed:
        """Messages of every group, their sums at the units, the last change, the rounds made."""
        p = ready(p)
        schedule = Schedule(self.temperature, self.damping, self.parallel)

        def step(state: tuple) -> tuple[tuple, Array]:
            traffic, incoming = _round(p, schedule, *state)
            return (traffic, incoming), largest(incoming - state[1])

        state = self.silence(p) if messages is None else messages
        (traffic, incoming), *how = iterate(step, state, self.iterations, self.tolerance)
        return traffic, incoming, how[0], how[1]

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
            grouped = gentle and jax.default_backend() == "cpu"
            return lambda: bipartite.sum_product(weight, *ends, *bounds, grouped)

        def by_logs() -> bipartite.Loop:
            (traffic,), incoming, change, count = self._pass_messages(p)
            return traffic.backward / T, incoming[rows] / T, incoming[cols] / T, change, count

        steepest = jnp.max(jnp.abs(weight), initial=0.0)
        level = (steepest > bipartite.GENTLE).astype(int) + (steepest > bipartite.STEEPEST)
        to_rows, at_rows, at_cols, change, count = jax.lax.switch(
            level, [by_kernel(True), by_kernel(False), by_logs]
        )
        incoming = jnp.zeros_like(fields).at[rows].set(at_rows).at[cols].set(at_cols)
        total = fields + incoming
        unary = means(p.layout, total)
        cavity = total[rows][:, None] - to_rows
        both = jax.nn.sigmoid(cavity + weight) * unary[cols][None, :]
        log_z = log_normaliser(p.layout, p.unary / T + incoming, 1.0, p.evidence)
        log_z = p.offset + T * (log_z - message(cavity, to_rows).sum())
        pairs = (Bilinear(both, factor.rows, factor.cols),)
        return Beliefs(unary, pairs, log_z, settled(change, self.tolerance), count)

    def _beliefs(
        self,
        p: Potentials,
        traffic: tuple[Traffic, ...],
        incoming: Array,
        converged: Array,
        count: Array,
    ) -> Beliefs:
        p, traffic, incoming = settle(p, traffic, incoming)
        total = p.fields + incoming
        unary = means(p.layout, total, self.temperature)
        log_z = p.offset + log_normaliser(
            p.layout, p.unary + incoming, self.temperature, p.evidence
        )
        factors = []
        for factor, messages in zip(p.factors, traffic, strict=True):
            pairs, correction = pair_beliefs(
                factor, p.layout, total, unary, messages, self.temperature
            )
            factors.append(pairs)
            log_z = log_z + correction
        return Beliefs(unary, tuple(factors), log_z, converged, count)


def SumProduct(
    iterations: int | Array = 100,
    tolerance: float | None = 1e-4,
    damping: float = 0.0,
    parallel: bool = False,
) -> BeliefPropagation:
    """Belief propagation for marginals (temperature 1)."""
    return BeliefPropagation(iterations, tolerance, damping, 1.0, parallel)


def MaxProduct(
    iterations: int | Array = 100,
    tolerance: float | None = 1e-4,
    damping: float = 0.5,
    parallel: bool = False,
) -> BeliefPropagation:
    """Belief propagation for the most probable state (temperature 0)."""
    return BeliefPropagation(iterations, tolerance, damping, 0.0, parallel)


def _round(
    p: Potentials, schedule: Schedule, traffic: tuple[Traffic, ...], incoming: Array
) -> tuple[tuple[Traffic, ...], Array]:
    """Send the messages of every group: group after group, or all from the same fields.

    Sums are taken anew: a difference would not bring back what a huge message has rounded off.
    """
    now, renewed = incoming, list(traffic)
    for i, factor in enumerate(p.factors):
        seen = incoming if schedule.parallel else now
        renewed[i] = renew(factor, p.layout, p.fields + seen, traffic[i], schedule)
        now = sum((group.incoming for group in renewed[1:]), renewed[0].incoming)
    return tuple(renewed), now
