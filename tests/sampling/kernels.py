"""Gibbs kernels with the cases they run on, and deliberately broken ones that tests must catch."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sampling import cases
from undirected.models import RBM, Ising, SemiRestrictedBM
from undirected.sampling import BlockGibbs, Gibbs

KERNELS = [
    (BlockGibbs(), "rbm"),
    (BlockGibbs(), "labelled rbm"),
    (BlockGibbs(order=("visible", "hidden", "label")), "labelled rbm"),
    (Gibbs(), "rbm"),
    (Gibbs(), "labelled rbm"),
    (Gibbs(), "dense"),
    (Gibbs(), "path"),
    (Gibbs(), "cycle of three colours"),
    (Gibbs(), "isolated units"),
    (Gibbs(), "lateral"),
    (Gibbs(), "labelled lateral"),
]
VARIATIONS = {2, 3, 6, 8, 9}
"""Numbers of the kernels above that differ from others in little."""
each_kernel = pytest.mark.parametrize(
    ("kernel", "name"),
    [
        pytest.param(*row, marks=pytest.mark.slow) if i in VARIATIONS else row
        for i, row in enumerate(KERNELS)
    ],
    ids=str,
)


@dataclass(frozen=True)
class StaleBlocks(BlockGibbs):
    """Broken: every block is drawn given the state before the sweep."""

    def sweep(self, model, x, free, noise):
        new = x
        for block in model.layout.blocks:
            alone = BlockGibbs(order=(block.name,)).sweep(model, x, free, noise)
            new = new.at[..., block.slice].set(alone[..., block.slice])
        return new


@dataclass(frozen=True)
class StaleSites(Gibbs):
    """Broken: every site is drawn given the state before the sweep."""

    def sweep(self, p, x, free, noise):
        pull = x @ p.factors[0].weight + jnp.broadcast_to(p.fields, x.shape)
        return jnp.where(free, (pull + noise > 0).astype(x.dtype), x)


def merged_colours(model: Ising) -> Ising:
    """Broken: the first two colours of the graph are drawn at once."""
    colours = model.graph.colours
    merged = jnp.concatenate([colours[0], colours[1]])[None]
    rest = jnp.pad(colours[2:], ((0, 0), (0, colours.shape[1])), constant_values=model.n)
    table = jnp.concatenate([merged, rest])
    return eqx.tree_at(lambda m: m.graph.colours, model, table)


def wrong_sign(model):
    """Broken: one field has the wrong sign."""

    def bias(m):
        m = m.rbm if isinstance(m, SemiRestrictedBM) else m
        return m.visible_bias if isinstance(m, RBM) else m.bias

    largest = jnp.abs(bias(model)).argmax()
    return eqx.tree_at(bias, model, bias(model).at[largest].multiply(-1))


BROKEN = [
    (StaleBlocks(), "rbm", lambda m: m),
    (BlockGibbs(), "labelled rbm", wrong_sign),
    (StaleSites(), "dense", lambda m: m),
    (Gibbs(), "dense", wrong_sign),
    (Gibbs(), "cycle of three colours", merged_colours),
    (Gibbs(), "path", merged_colours),
    (Gibbs(), "lateral", wrong_sign),
]
each_broken = pytest.mark.parametrize(
    ("kernel", "name", "breaking"), BROKEN, ids=[f"{k}-{n}-{b.__name__}" for k, n, b in BROKEN]
)


@eqx.filter_jit
def compiled_sweep(kernel, target, x, free, noise):
    return kernel.sweep(target, x, free, noise)


@eqx.filter_jit
def compiled_step(kernel, model, state, free, key):
    return kernel.step(model, state, free, key)


def noise_driven(kernel, model, free=None):
    """sweep(x, noise) in NumPy terms."""
    target = model.lower() if isinstance(kernel, Gibbs) else model
    free = jnp.ones(model.layout.n, bool) if free is None else jnp.asarray(free)

    def sweep(x, noise):
        x, noise = jnp.asarray(x), jnp.asarray(noise)
        return np.asarray(compiled_sweep(kernel, target, x, jnp.broadcast_to(free, x.shape), noise))

    return sweep


def step(kernel, model, x, free, key):
    """One compiled step."""
    state = kernel.init(model, jnp.asarray(x), key)
    return compiled_step(kernel, model, state, jnp.asarray(free), key)


def one_step_p_value(kernel, case, draws=20_000, held=None):
    """Fit of the truth after one step from draws of it; of the conditional where units are held."""
    truth, free = case.truth, np.ones(case.model.layout.n, bool)
    if held is not None:
        truth, free = truth.given(held, truth.states[-1]), ~held
    x = cases.exact_draws(truth, draws, 0)
    state, _ = step(kernel, case.model, x, free, jax.random.key(1))
    assert (np.asarray(state.x) != x).any(1).mean() > 0.05
    return cases.p_value(truth, np.asarray(state.x))
