"""Max-product on dense models: both forms against float64 NumPy, in its own terms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import mostly_slow
from undirected.ops import max_product, max_product_gpu

FORMS = {
    "plain": max_product.symmetric_plain,
    "fused": partial(max_product_gpu.symmetric_fused, interpret=True),
}


def textbook(w: np.ndarray, fields: np.ndarray, iterations: int, damping: float) -> np.ndarray:
    """Totals after parallel updates of max(0, c + w) - max(0, c), from neutral messages, w / 2."""
    w, fields = w.astype(np.float64), fields.astype(np.float64)
    sent = 0.5 * w
    for _ in range(iterations):
        cavity = (fields + sent.sum(0))[:, None] - sent.T
        new = np.maximum(0, cavity + w) - np.maximum(0, cavity)
        sent = (1 - damping) * new + damping * sent
    return fields + sent.sum(0)


def random_model(n: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    w = np.triu(rng.normal(size=(n, n)), 1).astype(np.float32)
    return w + w.T, rng.normal(size=(count, n)).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", mostly_slow([9, 33, 70], [33]))
def test_totals_are_those_of_the_textbook(form, n):
    w, fields = random_model(n, 3)
    run = jax.vmap(lambda f: FORMS[form](jnp.asarray(w), f, 6, None, 0.5))
    totals, change, count = run(jnp.asarray(fields))
    wanted = np.stack([textbook(w, f, 6, 0.5) for f in fields])
    np.testing.assert_allclose(totals, wanted, atol=2e-4)
    one_less = np.stack([textbook(w, f, 5, 0.5) for f in fields])
    assert np.abs(one_less - wanted).max() > 0.02
    np.testing.assert_allclose(change, np.abs(wanted - one_less).max(1), atol=2e-4)
    assert count.tolist() == [6, 6, 6]


REPLAYED = max_product_gpu.REPLAYED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "damping", "small"),
    [
        (1, 0.5, 256),
        (REPLAYED, 0.5, 256),
        (REPLAYED + 1, 0.0, 256),
        (2 * REPLAYED, 0.5, 0),
        (3 * REPLAYED + 2, 0.5, 256),
    ],
)
def test_messages_made_again_from_the_totals_are_the_same_for_every_number_of_rounds(
    rounds, damping, small, monkeypatch
):
    """Also with the tiles of large models."""
    monkeypatch.setattr(max_product_gpu, "SMALL", small)
    w, fields = random_model(40, 2)
    run = jax.vmap(lambda f: FORMS["fused"](jnp.asarray(0.1 * w), f, rounds, None, damping))
    totals, change, count = run(jnp.asarray(fields))
    wanted, before = (
        np.stack([textbook(0.1 * w, f, k, damping) for f in fields]) for k in (rounds, rounds - 1)
    )
    np.testing.assert_allclose(totals, wanted, atol=1e-5)
    np.testing.assert_allclose(change, np.abs(wanted - before).max(1), atol=1e-5)
    assert count.tolist() == [rounds] * 2


@pytest.mark.parametrize("tolerance", [None, 1e-3])
@pytest.mark.parametrize("rounds", [1, 40])
@pytest.mark.parametrize("form", FORMS)
def test_a_unit_held_by_an_infinite_field_does_not_count_as_moving(form, rounds, tolerance):
    w, (fields,) = random_model(9, 1)
    w = 0.1 * w
    held = np.where(np.arange(9) < 2, np.inf, fields).astype(np.float32)
    totals, change, count = FORMS[form](jnp.asarray(w), jnp.asarray(held), rounds, tolerance, 0.5)
    wanted = textbook(w, np.where(np.isinf(held), 1e6, held), int(count), 0.5)
    assert np.isposinf(totals[:2]).all()
    np.testing.assert_allclose(totals[2:], wanted[2:], atol=1e-4)
    assert float(change) > 1e-3 if rounds == 1 else float(change) < 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_models_in_a_batch_have_weights_of_their_own(form):
    models = [random_model(20, 1, seed) for seed in range(2)]
    w, fields = (jnp.asarray(np.stack(a)) for a in zip(*models, strict=True))
    totals, _, count = jax.vmap(lambda w, f: FORMS[form](w, f[0], 100, 1e-3, 0.5))(w, fields)
    for i, (one, field) in enumerate(models):
        wanted = textbook(one, field[0], int(count[i]), 0.5)
        np.testing.assert_allclose(totals[i], wanted, atol=2e-4)


def test_the_fused_form_is_for_nvidia_and_has_derivatives():
    w, fields = (jnp.asarray(a) for a in random_model(20, 1))
    traced = jax.jit(lambda w, f: max_product_gpu.symmetric_fused(w, f, 3, None, 0.5)).trace(
        w, fields[0]
    )
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
    found, wanted = (
        jax.grad(lambda w, form=form: form(w, fields[0], 5, None, 0.5)[0].sum())(w)
        for form in FORMS.values()
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def joined(weight, rows, cols):
    """Two layers as one symmetric model."""
    a, b = weight.shape
    w = np.zeros((a + b, a + b), np.float32)
    w[:a, a:] = weight
    return w + w.T, np.concatenate([rows, cols])


TWO_LAYERS = {
    "plain": max_product.bipartite_plain,
    "fused": partial(max_product_gpu.bipartite_fused, interpret=True),
}


@pytest.mark.parametrize("form", TWO_LAYERS)
@pytest.mark.parametrize("shape", mostly_slow([(9, 5), (33, 64), (20, 70)], [(9, 5)]))
def test_totals_of_two_layers_are_those_of_the_textbook(form, shape):
    rng = np.random.default_rng(0)
    w, rows, cols = (
        rng.normal(size=size).astype(np.float32) for size in (shape, (3, shape[0]), (3, shape[1]))
    )
    run = jax.vmap(lambda r, c: TWO_LAYERS[form](jnp.asarray(w), r, c, 6, None, 0.5))
    totals, change, count = run(jnp.asarray(rows), jnp.asarray(cols))
    wanted, one_less = (
        np.stack([textbook(*joined(w, *f), n, 0.5) for f in zip(rows, cols, strict=True)])
        for n in (6, 5)
    )
    np.testing.assert_allclose(totals, wanted, atol=2e-4)
    assert np.abs(one_less - wanted).max() > 0.02
    np.testing.assert_allclose(change, np.abs(wanted - one_less).max(1), atol=2e-4)
    assert count.tolist() == [6, 6, 6]


def test_the_fused_form_of_two_layers_is_for_nvidia_and_has_derivatives():
    rng = np.random.default_rng(1)
    w, rows, cols = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((20, 9), 20, 9))
    traced = jax.jit(lambda *a: max_product_gpu.bipartite_fused(*a, 3, None, 0.5)).trace(
        w, rows, cols
    )
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
    found, wanted = (
        jax.grad(lambda w, form=form: form(w, rows, cols, 5, None, 0.5)[0].sum())(w)
        for form in TWO_LAYERS.values()
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
