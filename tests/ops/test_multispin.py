"""Words of 32 replicas of a +-J glass: against enumeration and against plain integers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from tests.sampling import cases
from undirected.core import graph
from undirected.ops import multispin as ms

BETA = 0.4


def small():
    """Nine spins with 2, 3 or 4 neighbours and three colours; signs, and the truth as +-1 bits."""
    wiring = graph.torus(3, 3)
    edges = np.asarray(wiring.edges)[2:]
    wiring = graph.from_edges(9, edges)
    edges = np.asarray(wiring.edges)
    signs = np.random.default_rng(0).choice([-1, 1], len(edges))
    matrix = oracle.edge_matrix(9, edges, 4 * BETA * signs)
    bias = -0.5 * (matrix + matrix.T).sum(1)
    return wiring, signs, oracle.pairwise(matrix, bias)


@pytest.fixture(scope="module")
def case():
    wiring, signs, truth = small()
    return ms.glass(wiring, signs), wiring, signs, truth


def test_words_and_energies_are_those_of_the_spins(case):
    glass, wiring, signs, _ = case
    spins = np.random.default_rng(1).choice([-1, 1], (64, 9))
    words = ms.pack(jnp.asarray(spins), glass)
    assert words.shape == (9, 2) and words.dtype == jnp.uint32
    np.testing.assert_array_equal(ms.unpack(words, glass), spins)
    i, j = np.asarray(wiring.edges).T
    wanted = -(signs * spins[:, i] * spins[:, j]).sum(1)
    np.testing.assert_array_equal(np.asarray(ms.energies(glass, words)).reshape(-1), wanted)


def test_levels_are_those_of_the_fields(case):
    glass, wiring, signs, _ = case
    spins = np.random.default_rng(2).choice([-1, 1], (32, 9))
    words = ms.pack(jnp.asarray(spins), glass)
    matrix = np.zeros((9, 9), int)
    i, j = np.asarray(wiring.edges).T
    matrix[i, j] = matrix[j, i] = signs
    fields = (spins @ matrix)[:, np.asarray(glass.order)]
    widths = set()
    for own in glass.classes:
        heard, width = ms.levels(ms.opinions(words, own)), own.use.shape[1]
        widths.add(width)
        field = fields[:, own.start : own.start + own.size]
        bit = lambda word: (np.asarray(word)[:, 0] >> np.arange(32)[:, None]) & 1  # noqa: E731
        np.testing.assert_array_equal(bit(heard.majority), field > 0)
        for a, word in zip(ms.sizes(width)[1:], heard.above, strict=True):
            np.testing.assert_array_equal(bit(word), np.abs(field) >= a)
    assert widths == {3, 4}  # even and odd numbers of neighbours, some of them missing


def one_sweep_p_value(glass, truth, betas=(BETA,), **options):
    """Replicas drawn from the truth must still be draws from it after one sweep."""
    x = cases.exact_draws(truth, 64 * 32 * 8, seed=3)
    words = ms.pack(jnp.asarray(2 * x - 1), glass)
    after = ms.glass_sweeps(glass, words, jnp.asarray(betas), jax.random.key(4), 1, **options)
    assert (after != words).mean() > 0.9
    return cases.p_value(truth, (np.asarray(ms.unpack(after, glass)) + 1) / 2)


def test_one_sweep_keeps_draws_from_the_truth(case):
    glass, _, _, truth = case
    assert one_sweep_p_value(glass, truth) > cases.RATE


def test_broken_sweeps_are_caught(case):
    glass, _, _, truth = case
    assert one_sweep_p_value(glass, truth, betas=(0.5,)) < cases.RATE
    deaf = eqx.tree_at(lambda g: g.classes[0].turn, glass, glass.classes[0].turn * 0)
    assert one_sweep_p_value(deaf, truth) < cases.RATE
    assert one_sweep_p_value(glass, truth, digits=2) < cases.RATE  # far too coarse


@pytest.mark.slow
def test_every_bit_of_a_word_has_its_own_numbers(case):
    """At infinite temperature all spins are independent: also those of one word."""
    glass = case[0]
    words = jnp.zeros((9, 500), jnp.uint32)
    after = ms.glass_sweeps(glass, words, jnp.zeros(1), jax.random.key(0), 1)
    spins = np.asarray(ms.unpack(after, glass)).reshape(500, 32, 9).astype(float)
    products = np.einsum("gai,gbi->ab", spins, spins) / (500 * 9)
    apart = products[~np.eye(32, dtype=bool)]
    assert np.abs(apart).max() < 5.5 / np.sqrt(500 * 9)  # 496 pairs: fails once in 50,000


@pytest.mark.slow
def test_groups_have_their_own_temperatures(case):
    glass = case[0]
    start = ms.random_spins(glass, 40, jax.random.key(1))
    betas = jnp.concatenate([jnp.zeros(20), jnp.full(20, 3.0)])
    after = ms.glass_sweeps(glass, start, betas, jax.random.key(2), 20)
    energy = np.asarray(ms.energies(glass, after))
    assert energy[20:].mean() < energy[:20].mean() - 5
    assert abs(energy[:20].mean()) < 5 * np.sqrt(len(glass.turn) / energy[:20].size)


@pytest.mark.slow
@pytest.mark.parametrize("width", [4, pytest.param(3, marks=pytest.mark.slow)])
def test_fused_draws_follow_the_probabilities(width):
    """All sizes of fields; a chi-square of the shares of spins against the majority."""
    rng = np.random.default_rng(5)
    sizes = ms.sizes(width)
    size = rng.choice(sizes, (3, 1100 * 32))
    words = lambda bits: jnp.asarray(  # noqa: E731
        (bits.reshape(3, 1100, 32) << np.arange(32)).sum(-1).astype(np.uint32)
    )
    heard = ms.Levels(words(rng.integers(0, 2, size.shape)), [words(size >= a) for a in sizes[1:]])
    bits = ms.probability_bits(jnp.asarray([0.3]), width, 32)
    seeds = ms._seeds(jax.random.key(6), 4096)
    new, after = ms.draw_fused(heard, bits, seeds, jnp.asarray(0), interpret=True)
    assert (after[0][:3300] != seeds[0][:3300]).mean() > 0.99
    against = np.asarray(new ^ heard.majority)[..., None] >> np.arange(32, dtype=np.uint32) & 1
    against = against.reshape(3, -1)
    score = 0.0
    for a in sizes:
        p, share = 1 / (1 + np.exp(2 * 0.3 * a)), against[size == a]
        score += (share.sum() - p * len(share)) ** 2 / (p * (1 - p) * len(share))
    assert score < 30  # a chi-square of 2 or 3 degrees of freedom: once in 700,000
