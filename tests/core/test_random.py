"""Random numbers made in place: known answers, distributions, independence, dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from undirected.core import random
from undirected.core.errors import UndirectedError
from undirected.core.random import (
    gumbel,
    logistic,
    make_key,
    random_words,
    threefry,
    uniform,
)

RATE = 1e-5


def test_threefry_gives_the_published_answers():
    """The known answers of Threefry-2x32 with 20 rounds that come with Random123."""
    top = 2**32 - 1
    given = [((0, 0), (0, 0)), ((top, top), (top, top))]
    given += [((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3))]
    wanted = [(0x6B200159, 0x99BA4EFE), (0x1CB996FC, 0xBB002BE7), (0xC4923A9C, 0x483DF7A0)]
    for (key, counter), answer in zip(given, wanted, strict=True):
        words = [jnp.uint32(a) for a in (*key, *counter)]
        found = threefry((words[0], words[1]), words[2], words[3])
        assert tuple(int(a) for a in found) == answer


@pytest.mark.parametrize(
    ("noise", "law"), [(logistic, stats.logistic), (gumbel, stats.gumbel_r)], ids=["l", "g"]
)
def test_noise_follows_its_law(noise, law):
    x = np.asarray(jax.jit(noise, static_argnums=1)(jax.random.key(7), (300, 400)), np.float64)
    assert stats.kstest(x.ravel(), law.cdf).pvalue > RATE
    assert stats.kstest(x.ravel() * 1.03, law.cdf).pvalue < RATE


def test_rows_columns_and_keys_are_independent():
    x = [np.asarray(logistic(jax.random.key(seed), (400, 400))) for seed in (0, 1)]
    pairs = [(x[0], x[1]), (x[0][:-1], x[0][1:]), (x[0][:, :-1], x[0][:, 1:]), (x[0], x[0].T)]
    for a, b in pairs:
        r = np.corrcoef(np.sign(a).ravel(), np.sign(b).ravel())[0, 1]
        assert abs(r) * np.sqrt(a.size) < stats.norm.isf(RATE / 2) * (1.5 if b is x[0].T else 1)


def test_words_are_even_in_every_bit():
    for words in random_words(jax.random.key(3), (500, 200)):
        bits = np.asarray(words)[..., None] >> np.arange(32, dtype=np.uint32) & 1
        z = (bits.mean((0, 1)) - 0.5) * 2 * np.sqrt(words.size)
        assert np.abs(z).max() < stats.norm.isf(RATE / 64)


def test_shapes_and_digits(x64):
    assert logistic(jax.random.key(0), ()).shape == ()
    x = logistic(jax.random.key(0), (3, 0, 2))
    assert x.shape == (3, 0, 2) and x.dtype == jnp.float64
    x = np.asarray(logistic(jax.random.key(0), (2, 50_000)))
    assert len(np.unique(x)) == x.size
    assert stats.kstest(x.ravel(), stats.logistic.cdf).pvalue > RATE


def test_keys_of_other_generators():
    """All words of a long key count."""
    keys = [jax.random.wrap_key_data(jnp.array(w, jnp.uint32), impl="rbg") for w in WORDS]
    found = [np.asarray(random_words(key, (8,))[0]) for key in keys]
    for i in range(len(found)):
        assert all((found[i] != other).any() for other in found[i + 1 :])


WORDS = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("noise", [uniform, logistic, gumbel])
@pytest.mark.parametrize("shape", [(100, 200), (4, 5, 1000), (8, 2048)])
def test_two_rows_at_once_have_the_same_numbers(noise, shape, monkeypatch):
    """Alone and for several keys; the jitted functions are looked into, uncached."""
    keys = jax.random.split(jax.random.key(3), 2)
    draw = noise.__wrapped__
    wanted = [one_by_one(monkeypatch, draw, key, shape) for key in keys]
    drawn, by_two = [], random._by_two_rows
    monkeypatch.setattr(random, "TWO_ROWS", True)
    monkeypatch.setattr(random, "_by_two_rows", lambda *a: drawn.append(1) or by_two(*a))
    close(jax.jit(lambda key: draw(key, shape))(keys[0]), wanted[0])
    close(jax.vmap(lambda key: draw(key, shape))(keys), wanted)
    assert len(drawn) == 2
    draw(keys[0], (7, 5000))
    draw(keys[0], (40, 40))
    draw(keys[0], ())
    assert len(drawn) == 2


def test_two_rows_at_once_in_double_precision(x64, monkeypatch):
    key, draw = jax.random.key(5), logistic.__wrapped__
    wanted = one_by_one(monkeypatch, draw, key, (100, 200))
    monkeypatch.setattr(random, "TWO_ROWS", True)
    close(jax.jit(lambda: draw(key, (100, 200)))(), wanted)


def close(found, wanted):
    """Up to the rounding of a logarithm; other numbers would differ by much more."""
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def one_by_one(monkeypatch, draw, key, shape):
    monkeypatch.setattr(random, "TWO_ROWS", False)
    return np.asarray(jax.jit(lambda: draw(key, shape))())


def test_seeds_of_any_size_are_seeds_of_their_own():
    """A key has 32 bits: what is above them counts too."""
    seeds = [7, 7 + 2**32, 7 + 2**33, 7 + 2**64, 2**200]
    keys = [tuple(jax.random.key_data(make_key("here", None, s)).tolist()) for s in seeds]
    assert len(set(keys)) == len(seeds)
    assert keys[0] == tuple(jax.random.key_data(jax.random.key(7)).tolist())
    with pytest.raises(UndirectedError, match="here: seed is -1; pass a whole number from 0"):
        make_key("here", None, -1)
