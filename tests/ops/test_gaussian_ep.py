"""Expectation propagation of Gaussian units: the sweeps written out, and automatic derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.ops import gaussian_ep as ops
from undirected.ops import retrace
from undirected.ops.gaussian_ep import gaussian_ep

ROWS, V, H = 4, 6, 5
WIDEST = 100.0


def problem(seed, scale=0.6):
    """Weights, unary parameters of which half are evidence of little noise, hidden biases."""
    rng = np.random.default_rng(seed)
    seen = rng.random((ROWS, V)) < 0.5
    first = np.where(seen, rng.normal(size=(ROWS, V)) / 1e-2, rng.normal(size=(ROWS, V)))
    second = np.where(seen, -0.5 / 1e-2, -0.5)
    w, c = scale * rng.normal(size=(V, H)), rng.normal(size=H)
    return tuple(map(jnp.asarray, (w, first, second, c)))


def written_out(w, first, second, c, layers):
    """The formulas one by one: cavity moments, odds, moments of the mixture, new messages."""
    w, c = w[None], c[None, None]
    to_visible = jnp.zeros((ROWS, V, H)), jnp.full((ROWS, V, H), -0.5)
    to_hidden = jnp.zeros((ROWS, V, H))
    for _ in range(layers):
        total = first + to_visible[0].sum(-1), second + to_visible[1].sum(-1)
        t1, t2 = (a[..., None] - m for a, m in zip(total, to_visible, strict=True))
        variance = 1 / jnp.maximum(-2 * t2, 1 / WIDEST)
        mean = variance * t1
        others = c + to_hidden.sum(1, keepdims=True) - to_hidden
        to_hidden = w * mean + w**2 * variance / 2
        on = 1 / (1 + jnp.exp(-others - to_hidden))
        centre = (1 - on) * mean + on * (mean + w * variance)
        spread = variance + on * (1 - on) * (w * variance) ** 2
        to_visible = centre / spread - t1, (1 / variance - 1 / spread) / 2
    precision = jnp.maximum(-2 * (second + to_visible[1].sum(-1)), 1 / WIDEST)
    return (first + to_visible[0].sum(-1)) / precision, 1 / precision


def ours(w, first, second, c, layers):
    return gaussian_ep(w, (first, second), c, layers)


def graded(fn, layers):
    """A weighted sum of means and variances, and its gradient by all inputs."""

    def loss(*inputs):
        mean, variance = fn(*inputs, layers)
        own = jnp.arange(mean.size).reshape(mean.shape)
        return (jnp.sin(own) * mean + jnp.cos(3 * own) * variance).sum()

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))


def gaps(a, b):
    """The largest difference of each pair of arrays, as a share of the largest entry."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return [float(jnp.abs(x - y).max() / jnp.abs(y).max()) for x, y in pairs]


@pytest.mark.parametrize("layers", [1, 2, 5, 10])
@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_beliefs_and_slopes_are_those_of_the_sweeps_written_out(x64, monkeypatch, layers, scale):
    """With states stored and made again; strong weights have cavities that are held proper."""
    inputs = problem(layers, scale)
    wanted = graded(written_out, layers)(*inputs)
    for small in (2**28, 0):
        monkeypatch.setattr(retrace, "SMALL", small)
        assert max(gaps(graded(ours, layers)(*inputs), wanted)) < 1e-9


def test_without_layers_the_unary_parameters_and_the_first_messages_answer(x64):
    _, first, second, _ = inputs = problem(3)
    mean, variance = jax.jit(partial(ours, layers=0))(*inputs)
    np.testing.assert_allclose(variance, 1 / (-2 * second + H), rtol=1e-12)
    np.testing.assert_allclose(mean, first * variance, rtol=1e-12)
    slopes = jax.jit(jax.grad(lambda *a: partial(ours, layers=0)(*a)[0].sum(), (0, 1)))(*inputs)
    np.testing.assert_array_equal(slopes[0], 0)
    np.testing.assert_allclose(slopes[1], variance, rtol=1e-12)


def test_a_bound_of_variances_out_of_the_way_is_seen(x64, monkeypatch):
    """Strong weights reach the bound: without it the slopes are others."""
    inputs = problem(5, 3.0)
    wanted = graded(written_out, 5)(*inputs)
    monkeypatch.setattr(ops, "WIDEST", 1e9)
    assert max(gaps(graded(ours, 5)(*inputs), wanted)) > 1e-3


def test_a_stack_of_models(x64):
    """vmap over models: an ensemble learns side by side."""
    many = [problem(seed) for seed in (0, 1)]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *many)
    values, slopes = jax.jit(jax.vmap(graded(ours, 3)))(*stacked)
    for i, inputs in enumerate(many):
        wanted = graded(written_out, 3)(*inputs)
        assert max(gaps((values[i], [s[i] for s in slopes]), wanted)) < 1e-9
