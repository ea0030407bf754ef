"""Stamped images: the constraint, and its messages against enumeration pixel by pixel."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests import factor_oracle as oracle
from undirected.core.errors import UnsupportedFactor
from undirected.core.potentials import clamp
from undirected.data.deconvolution import stamp
from undirected.factors import ConvolutionalOr, Schedule
from undirected.inference import MaxProduct, SumProduct
from undirected.models import FactorGraph

pytestmark = pytest.mark.usefixtures("x64")
GROUP = ConvolutionalOr(None, 2, (2, 2, 2), (1, 2))
SCHEDULE = Schedule(0.0, 0.0, True)


def pairs_of(pixel):
    """(feature unit, location unit) of every pair that covers a pixel (n, r, c)."""
    n, r, c = pixel
    _, features, locations = GROUP.layout.blocks
    found = []
    for f, dy, dx in np.ndindex(2, 2, 2):
        y, x = r - dy, c - dx
        if 0 <= y < 1 and 0 <= x < 2:
            place = ((n * 2 + f) * 1 + y) * 2 + x
            found.append((features.start + (f * 2 + dy) * 2 + dx, locations.start + place))
    return found


def stamped(*states):
    """Log-potential of one pixel: pairs (feature, location) in turn, the pixel last."""
    on = any(a and b for a, b in zip(states[0:-1:2], states[1:-1:2], strict=True))
    return 0.0 if on == bool(states[-1]) else oracle.FORBIDDEN


def test_messages_equal_the_enumeration_of_every_pixel():
    """Two rounds, so that cavities carry earlier messages."""
    layout = GROUP.layout
    fields = np.random.default_rng(0).normal(size=layout.n)
    messages = GROUP.init_messages(layout)
    sent: dict[tuple, float] = {}
    for _ in range(2):
        total = jnp.asarray(fields) + messages.incoming
        messages = GROUP.update_messages(layout, total, messages, SCHEDULE)
        fresh, incoming = {}, np.zeros(layout.n)
        for number, pixel in enumerate(np.ndindex(2, 2, 3)):
            scope = [unit for pair in pairs_of(pixel) for unit in pair] + [number]
            cavity = [np.array([float(total[u]) - sent.get((number, u), 0.0)]) for u in scope]
            answers = oracle.messages([2] * len(scope), stamped, cavity, 0.0)
            for unit, answer in zip(scope, answers, strict=True):
                fresh[number, unit] = answer[0]
                incoming[unit] += answer[0]
        sent = fresh
        assert np.allclose(messages.incoming, incoming, atol=1e-9)


def test_violations_are_the_pixels_that_differ_from_the_stamped_image():
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 2, (2, 2, 3))
    features, locations = rng.integers(0, 2, (2, 2, 2)), rng.integers(0, 2, (2, 2, 1, 2))
    x = np.concatenate([a.ravel() for a in (pixels, features, locations)]).astype(float)
    wrong = stamp(locations, features) != pixels
    assert np.array_equal(GROUP.statistic(GROUP.layout, jnp.asarray(x)).weight, wrong)
    model = FactorGraph.create(GROUP.layout, (GROUP,))
    assert float(model.energy(jnp.asarray(x))) == pytest.approx(1e9 * wrong.sum())


def test_known_features_give_the_locations():
    """With features and pixels clamped, max-product finds where they were stamped."""
    rng = np.random.default_rng(3)
    group = ConvolutionalOr(None, 3, (2, 3, 3), (5, 5))
    features = np.array([[[1, 1, 1], [1, 0, 1], [1, 1, 1]], [[0, 1, 0], [1, 1, 1], [0, 1, 0]]])
    locations = (rng.random((3, 2, 5, 5)) < 0.06).astype(int)
    images = stamp(locations, features)
    layout = group.layout
    unary = jnp.where(jnp.arange(layout.n) >= layout.blocks[2].start, -3.0, 0.0)
    known = jnp.arange(layout.n) < layout.blocks[2].start
    x = np.concatenate([images.ravel(), features.ravel(), np.zeros(locations.size)])
    p = clamp(FactorGraph.create(layout, (group,), unary).lower(), known, jnp.asarray(x, float))
    beliefs = MaxProduct(60, None, 0.5, parallel=True)(p)
    found = np.asarray(beliefs.unary)[layout.blocks[2].slice].reshape(locations.shape)
    assert np.array_equal(found, locations)
    assert not np.asarray(beliefs.factors[0].weight).any()
    with pytest.raises(UnsupportedFactor, match="max-product"):
        SumProduct()(p)


def test_a_penalty_bounds_what_a_pixel_says():
    """A pixel that may differ from its OR, clamped, acts as one with that much evidence."""
    fields = np.random.default_rng(5).normal(size=GROUP.layout.n)
    pixels = np.arange(GROUP.layout.n) < GROUP.layout.n_visible
    x = np.where(np.random.default_rng(6).random(GROUP.layout.n) < 0.5, 1.0, -1.0)
    soft = ConvolutionalOr(None, *([2, (2, 2, 2), (1, 2)]), 1.5)
    answers = []
    for group, level in ((soft, 1e9), (GROUP, 1.5)):
        total = jnp.asarray(np.where(pixels, level * x, fields))
        neutral = group.init_messages(group.layout)
        messages = group.update_messages(group.layout, total, neutral, SCHEDULE)
        answers.append(np.asarray(messages.incoming)[~pixels])
    assert np.allclose(*answers, atol=1e-9)
    state = jnp.asarray((x > 0).astype(float))
    energies = [float(FactorGraph.create(g.layout, (g,)).energy(state)) for g in (soft, GROUP)]
    assert energies[0] == pytest.approx(energies[1] / 1e9 * 1.5)
