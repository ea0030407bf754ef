"""Exact pieces for tiny models: inference and kernels by enumeration, likelihoods by the oracle."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tests import oracle
from undirected.core.graph import grid
from undirected.core.layout import Domain, Layout
from undirected.core.potentials import Beliefs, Potentials, inner, statistics
from undirected.models import RBM, Ising


def all_states(layout: Layout) -> np.ndarray:
    groups = []
    for block in layout.blocks:
        states = block.states if block.domain is Domain.CATEGORICAL else 1
        groups += [states] * (block.size // states)
    return oracle.grouped_states(groups)


@dataclass(frozen=True)
class Enumerate:
    """Exact beliefs as the mean of the statistics of all states."""

    def __call__(self, potentials: Potentials, key: Any) -> Beliefs:
        p = potentials
        states = jnp.asarray(all_states(p.layout), p.unary.dtype)
        all_beliefs = jax.vmap(lambda x: statistics(p, x))(states)
        value = jax.vmap(lambda b: inner(p, b))(all_beliefs)
        sign = jnp.sign(p.evidence)[None]
        clash = jnp.sum(sign * (2 * states - 1) < 0, -1)
        value = jnp.where(clash > 0, -jnp.inf, value)
        mean = jax.tree.map(
            lambda a: jnp.tensordot(jax.nn.softmax(value), a, 1),
            eqx.filter(all_beliefs, eqx.is_inexact_array),
        )
        rest = eqx.filter(all_beliefs, eqx.is_inexact_array, inverse=True)
        done = jnp.asarray(True), jnp.asarray(1)
        factors = eqx.combine(mean, jax.tree.map(lambda a: a[0], rest)).factors
        return Beliefs(mean.unary, factors, jax.nn.logsumexp(value), *done)


class Chains(eqx.Module):
    x: jax.Array


@dataclass(frozen=True)
class ExactKernel:
    """Draws the free units from the model at once; a `temperature` other than 1 breaks it."""

    temperature: float = 1.0

    def init(self, model, x, key):
        return Chains(x)

    def step(self, model, state, free, key):
        states = jnp.asarray(all_states(model.layout), state.x.dtype)
        agree = (states[None] == state.x[:, None]) | jnp.broadcast_to(free, state.x.shape)[:, None]
        log_weights = -model.energy(states)[None] / self.temperature
        logits = jnp.where(agree.all(-1), log_weights, -jnp.inf)
        chosen = jax.random.categorical(key, logits, axis=-1)
        moved = jnp.mean(states[chosen] != state.x)
        return Chains(states[chosen]), {"moved": moved}


@dataclass(frozen=True)
class StuckWhenHeld(ExactKernel):
    """Broken: as soon as one visible unit is held, nothing moves."""

    def step(self, model, state, free, key):
        after, info = super().step(model, state, free, key)
        return Chains(jnp.where(jnp.all(free), after.x, state.x)), info


@dataclass(frozen=True)
class Still(ExactKernel):
    """A kernel that never moves."""

    def step(self, model, state, free, key):
        return state, {}


class HiddenByEnergy(eqx.Module):
    """An RBM that hides its free energy: a model whose hidden units must be sampled."""

    rbm: RBM

    @property
    def layout(self):
        return self.rbm.layout

    def energy(self, x):
        return self.rbm.energy(x)

    def lower(self):
        return self.rbm.lower()


def models() -> dict[str, Any]:
    rng = np.random.default_rng(1)

    def values(*shape):
        return jnp.asarray(rng.normal(size=shape))

    lattice = grid(2, 2)
    return {
        "rbm": RBM(values(3, 2), values(3), values(2)),
        "label_rbm": RBM(values(4, 2), values(4), values(2), label_states=3),
        "dense_ising": Ising(values(4, 4), values(4), offset=jnp.asarray(0.3)),
        "grid_ising": Ising(values(lattice.n_edges), values(4), lattice),
    }


def data(model, rows: int = 6, missing: bool = False) -> np.ndarray:
    """Some visible states, with NaN entries if asked for."""
    rng = np.random.default_rng(2)
    states = all_states(model.layout)[:, : model.layout.n_visible]
    v = states[rng.integers(len(states), size=rows)].astype(float)
    if missing:
        v[0, 0] = np.nan
        v[2] = np.nan
        if getattr(model, "label_states", 0):
            v[3, -model.label_states :] = np.nan
    return v


PARAMETERS = "weights", "visible_bias", "hidden_bias", "bias", "offset"


def parameters(model) -> dict[str, np.ndarray]:
    return {name: np.asarray(getattr(model, name)) for name in PARAMETERS if hasattr(model, name)}


def truth(model, values: dict[str, np.ndarray]) -> oracle.Truth:
    """The oracle's distribution of a model with these parameters."""
    if isinstance(model, RBM):
        parts = values["weights"], values["visible_bias"], values["hidden_bias"]
        return oracle.rbm(*parts, model.label_states)
    matrix = values["weights"]
    if model.graph is None:
        matrix = 0.5 * (matrix + matrix.T)
    else:
        matrix = oracle.edge_matrix(model.n, model.graph.edges, matrix)
    return oracle.pairwise(matrix, values["bias"], float(values["offset"]))


def oracle_gradient(model, function) -> dict[str, np.ndarray]:
    """Finite differences of function(Truth) with respect to every parameter."""
    values = parameters(model)
    return {
        name: oracle.finite_difference(
            lambda a, n=name: function(truth(model, {**values, n: a})), at
        )
        for name, at in values.items()
    }


def negative_log_likelihood(distribution: oracle.Truth, v: np.ndarray) -> float:
    """-mean log p(observed entries), everything else summed out."""
    total = 0.0
    for row in v:
        x = np.zeros(distribution.states.shape[1])
        x[: len(row)] = np.nan_to_num(row)
        mask = np.zeros(len(x), bool)
        mask[: len(row)] = ~np.isnan(row)
        total += distribution.given(mask, x).log_z - distribution.log_z
    return -total / len(v)


def negative_log_pseudo_likelihood(
    distribution: oracle.Truth, v: np.ndarray, groups: list[slice]
) -> float:
    """-mean sum_g log p(v_g | the other visible entries)."""
    total = 0.0
    for row in v:
        x = np.zeros(distribution.states.shape[1])
        x[: len(row)] = row
        visible = np.arange(len(x)) < len(row)
        joint = distribution.given(visible, x).log_z
        for group in groups:
            others = visible.copy()
            others[group] = False
            total += joint - distribution.given(others, x).log_z
    return -total / len(v)


@eqx.filter_jit
def _value_and_grad(objective, model, batch, carry, key):
    return eqx.filter_value_and_grad(objective, has_aux=True)(model, batch, carry, key)


def evaluate(objective, model, batch, key, carry=None):
    """(loss, (carry, info), gradient by parameter name) of an objective."""
    (loss, aux), slope = _value_and_grad(objective, model, batch, carry, key)
    slope = slope.rbm if isinstance(model, HiddenByEnergy) else slope
    return loss, aux, {name: getattr(slope, name) for name in PARAMETERS if hasattr(slope, name)}


def gradient(objective, model, batch, key, carry=None) -> dict[str, jax.Array]:
    """The objective's gradient by parameter name."""
    return evaluate(objective, model, batch, key, carry)[2]
