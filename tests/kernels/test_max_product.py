"""Max-product on dense symmetric models: both forms against float64 NumPy, in their own terms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.kernels import max_product

FORMS = {
    "plain": max_product.symmetric_plain,
    "fused": partial(max_product.symmetric_fused, interpret=True),
}


def textbook(w: np.ndarray, fields: np.ndarray, iterations: int, damping: float) -> np.ndarray:
    """Totals after parallel updates of max(0, c + w) - max(0, c), from zero messages."""
    w, fields = w.astype(np.float64), fields.astype(np.float64)
    sent = np.zeros(w.shape)
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
@pytest.mark.parametrize("n", [9, 33, 70])
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
    traced = jax.jit(lambda w, f: max_product.symmetric_fused(w, f, 3, None, 0.5)).trace(
        w, fields[0]
    )
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
    found, wanted = (
        jax.grad(lambda w, form=form: form(w, fields[0], 5, None, 0.5)[0].sum())(w)
        for form in FORMS.values()
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
