"""Query distributions and the cross-entropy of their targets."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import unrolled_reference as reference
from tests import zoo
from undirected.inference import QueryNetwork
from undirected.learning import (
    Batches,
    ExactQueries,
    MaskQueries,
    PatchQueries,
    PseudoLikelihood,
    QueryTraining,
    UniformQueries,
    answers,
    fit,
)
from undirected.learning.queries import log_odds
from undirected.learning.query_training import marginal_losses, query_losses
from undirected.models import RBM

ROWS = 4000


def test_uniform_queries_have_their_rate(key):
    """Share of targets within 4.5 standard errors (fails once in 150,000)."""
    mask = np.asarray(UniformQueries(0.3)(key, ROWS, 20))
    assert abs(mask.mean() - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / mask.size)
    assert abs(mask.mean() - 0.32) > 4.5 * np.sqrt(0.3 * 0.7 / mask.size)


def test_exact_queries_have_k_targets_anywhere(key):
    mask = np.asarray(ExactQueries(3)(key, ROWS, 10))
    assert (mask.sum(1) == 3).all()
    assert np.abs(mask.mean(0) - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / ROWS)


def test_patches_are_rectangles_at_every_place(key):
    mask = np.asarray(PatchQueries((5, 4), (2, 3))(key, ROWS, 20)).reshape(-1, 5, 4)
    corners = set()
    for image in mask[:200]:
        rows, cols = np.nonzero(image.any(1))[0], np.nonzero(image.any(0))[0]
        assert len(rows) == 2 and len(cols) == 3 and image.sum() == 6
        corners.add((rows[0], cols[0]))
    assert len(corners) == 4 * 2


def test_masks_are_drawn_from_those_given(key):
    given = np.array([[1, 0, 0], [0, 1, 1]])
    drawn = np.asarray(MaskQueries(given)(key, 200, 3))
    assert {tuple(row) for row in drawn.astype(int)} == {(1, 0, 0), (0, 1, 1)}
    fixed = np.asarray(MaskQueries([True, False, False])(key, 5, 3))
    assert (fixed == [True, False, False]).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: UniformQueries(0.0), "p is 0.0"),
        (lambda: ExactQueries(0), "k is 0"),
        (lambda: PatchQueries((5, 4), (6, 1)), "does not fit"),
        (lambda: MaskQueries([[2.0, 0]]), "booleans"),
        (lambda: QueryTraining(reduction="median"), "'sum' or 'mean'"),
        (lambda: ExactQueries(4)(jax.random.key(0), 2, 3), "3 units"),
        (lambda: PatchQueries((2, 2), (1, 1))(jax.random.key(0), 2, 5), "not an image"),
        (lambda: MaskQueries([1, 0])(jax.random.key(0), 2, 3), "2 units, not 3"),
    ],
    ids=range(8),
)
def test_bad_queries_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_evidence_is_the_clipped_logit_of_what_is_seen():
    model, _ = zoo.label_rbm(0)
    x = jnp.array([[0.0, 1.0, 0.9999, 0.0, 1.0, 0.0], [0.5, 0.2, np.nan, 0.1, 0.2, 0.7]])
    seen = ~jnp.isnan(x)
    got = np.asarray(log_odds(model.layout, x, seen))
    logit = np.log(0.9999 / 0.0001)
    np.testing.assert_allclose(got[0], [-1000, 1000, logit, -1000, 0, -1000], rtol=1e-3)
    np.testing.assert_allclose(got[1], [0, np.log(0.25), 0, *np.log([0.1, 0.2, 0.7])], atol=1e-6)


def test_loss_is_the_cross_entropy_of_targets_and_missing_entries_count_nowhere():
    model = QueryNetwork(zoo.rbm(3)[0], 1.5, 4)
    x = np.array([[0.2, 1.0, 0.0, np.nan, 1.0], [1.0, np.nan, 0.7, 0.0, 0.0]], np.float32)
    targets = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 1, 1]], bool)
    totals, counts = eqx.filter_jit(query_losses)(model, jnp.asarray(x), jnp.asarray(targets))
    np.testing.assert_array_equal(counts, [2, 2])
    for row in range(2):
        known = np.where(targets[row], np.nan, x[row])
        p = answers(model, known[None])[0]
        asked = targets[row] & ~np.isnan(x[row])
        wanted = reference.cross_entropy(p, np.nan_to_num(x[row]), asked)
        np.testing.assert_allclose(totals[row], wanted, rtol=1e-4)
        hidden = known.copy()
        hidden[~np.isnan(known)] = 1 - known[~np.isnan(known)]
        assert not np.allclose(answers(model, hidden[None])[0], p, atol=1e-3)


def test_one_target_no_hidden_units_one_layer_is_the_pseudo_likelihood(x64):
    """Summed over all single targets, the loss is Besag's, value and gradient."""
    model, _ = zoo.dense_ising(2)
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, (3, 7)).astype(float))

    def query(model):
        rows = jnp.repeat(x, 7, axis=0)
        targets = jnp.tile(jnp.eye(7, dtype=bool), (3, 1))
        return query_losses(QueryNetwork(model, 1.0, 1), rows, targets)[0].sum() / 3

    def besag(model):
        return PseudoLikelihood()(model, x, None, jax.random.key(0))[0]

    got, wanted = (eqx.filter_jit(eqx.filter_value_and_grad(f))(model) for f in (query, besag))
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-6)
    np.testing.assert_allclose(got[1].weights, wanted[1].weights, atol=1e-6)
    np.testing.assert_allclose(got[1].bias, wanted[1].bias, atol=1e-6)


def test_a_softmax_label_is_asked_as_a_whole():
    network = QueryNetwork(zoo.label_rbm(1)[0], 1.0, 4)
    x = jnp.array([[1.0, 0, 1, 0, 1, 0]])
    targets = jnp.array([[0, 0, 0, 1, 0, 0]], bool)
    total, count = eqx.filter_jit(query_losses)(network, x, targets)
    assert float(count[0]) == 1
    p = answers(network, np.array([[1, 0, 1, np.nan, np.nan, np.nan]]))[0]
    np.testing.assert_allclose(total[0], -np.log(p[4]), rtol=1e-4)
    np.testing.assert_allclose(p[3:].sum(), 1.0, rtol=1e-5)


def test_answers_refuse_nonsense_and_contradictions():
    network = QueryNetwork(zoo.label_rbm(1)[0], 1.0, 4)
    with pytest.raises(ValueError, match="unit 1 of row 0 is 3.0"):
        answers(network, [[0, 3, 0, 1, 0, 0]])
    rows = [[0, 1, 0, 1, 0, 0], [0, 1, 0, 1, 1, 0]]
    with pytest.raises(
        ValueError, match=r"for variable 0 of block '\w+' in row 1 contradicts itself"
    ):
        answers(network, rows)
    for x in ([[0, 1]], [[0, 1, 0, 1, 0, 0, 0]], [0, 1, 0, 1, 0, 0]):
        with pytest.raises(
            ValueError, match=rf"shape {re.escape(str(np.shape(x)))}; pass \(rows, 6"
        ):
            answers(network, x)


def test_answers_in_chunks_are_the_same():
    network = QueryNetwork(zoo.rbm(1)[0], 1.0, 4)
    x = np.random.default_rng(0).choice([0, 1, np.nan, 0.5], size=(7, 5))
    np.testing.assert_allclose(answers(network, x, budget=200), answers(network, x), atol=1e-6)
    silent = np.where(x == 0.5, np.nan, x)
    np.testing.assert_allclose(answers(network, x), answers(network, silent), atol=1e-6)


def test_a_network_is_an_argument_of_jit():
    network = QueryNetwork(zoo.rbm(1)[0], jnp.asarray(1.0), 4)
    rows = jnp.ones((2, network.model.layout.n_visible))
    targets = jnp.ones(rows.shape, bool)
    compiled = jax.jit(lambda n: query_losses(n, rows, targets)[0])(network)
    np.testing.assert_allclose(compiled, query_losses(network, rows, targets)[0], rtol=1e-6)


def test_mean_is_the_sum_over_the_number_of_targets(key):
    network = QueryNetwork(zoo.rbm(1)[0], 1.0, 4)
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, (6, 5)).astype(np.float32))
    queries = ExactQueries(2)
    total, (_, info) = eqx.filter_jit(QueryTraining(queries))(network, x, None, key)
    mean, _ = eqx.filter_jit(QueryTraining(queries, "mean"))(network, x, None, key)
    np.testing.assert_allclose(total, 12 * mean, rtol=1e-6)
    np.testing.assert_allclose(info["bits_per_target"], mean / np.log(2), rtol=1e-6)


def test_independent_marginals():
    data = np.array([[1, 0, 1], [0, 0, np.nan]])
    x, targets = np.array([[1.0, 0.0, 1.0], [0, 0.3, np.nan]]), np.ones((2, 3), bool)
    totals, counts = marginal_losses(data, x, targets, least=0.01)
    p = np.tile([0.5, 0.01, 0.99], (2, 1))
    wanted = [reference.cross_entropy(p[i], np.nan_to_num(x[i]), ~np.isnan(x[i])) for i in (0, 1)]
    np.testing.assert_allclose(totals, wanted)
    np.testing.assert_array_equal(counts, [3, 2])


def test_training_learns_what_depends_on_what_with_missing_entries(key):
    """Four copies of one bit, a tenth missing: one seen copy tells the others."""
    rng = np.random.default_rng(0)
    x = np.tile(rng.integers(0, 2, (400, 1)), (1, 4)).astype(np.float32)
    holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
    network = QueryNetwork(RBM.create(4, 3, key), jnp.asarray(1.0), 4)
    found = fit(
        network, QueryTraining(), optax.adam(0.05), Batches(holes, 100), key, steps=150
    ).model
    p = answers(found, [[1, np.nan, np.nan, np.nan], [np.nan, np.nan, 0, np.nan]])
    assert (p[0, 1:] > 0.95).all() and (p[1, [0, 1, 3]] < 0.05).all()
    assert float(found.strength) != 1.0


def test_a_bare_model_is_refused(key):
    with pytest.raises(ValueError, match="pass QueryNetwork"):
        QueryTraining().init(zoo.rbm(0)[0], jnp.zeros((2, 5)), key)
