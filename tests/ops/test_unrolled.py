"""Unrolled belief propagation: the right fields, the right gradients, at any steepness."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import unrolled_reference as reference
from tests import zoo
from undirected.core.layout import Layout
from undirected.core.potentials import clamp, potentials
from undirected.core.units import means
from undirected.inference import BeliefPropagation, QueryNetwork
from undirected.inference.unrolled import two_sides
from undirected.models import RBM
from undirected.ops import retrace
from undirected.ops.unrolled import unrolled_fields

ROWS, V, H = 3, 9, 6


def problem(seed, scale=1.0):
    keys = jax.random.split(jax.random.key(seed), 3)
    return (
        scale * jax.random.normal(keys[0], (V, H)),
        jax.random.normal(keys[1], (ROWS, V)),
        jax.random.normal(keys[2], (ROWS, H)),
    )


def weighted(function):
    """A scalar of the fields, to differentiate."""
    return lambda *a: (function(*a) * jnp.arange(1.0, V + 1)[None]).sum()


def plain(layers):
    return lambda w, v, h: reference.parallel_fields(w, v, h, layers)[0]


def ours(layers):
    return lambda w, v, h: unrolled_fields(w, v, h, layers)


@pytest.mark.parametrize("layers", [1, 4])
def test_fields_and_gradients_are_those_of_plain_autodiff(x64, layers):
    """On gentle weights, which messages as ratios suit, and on weights so steep that logs must."""
    theirs, mine = (
        jax.jit(jax.value_and_grad(weighted(f(layers)), (0, 1, 2))) for f in (plain, ours)
    )
    for scale in (1.0, 60.0):
        args = problem(layers, scale)
        wanted, got = theirs(*args), mine(*args)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(wanted[0]))


def test_the_two_sides_swap(x64):
    w, v, h = problem(0)
    wanted = jax.jit(lambda *a: reference.parallel_fields(*a, 4)[1])(w, v, h)
    swapped = jax.jit(ours(4))
    np.testing.assert_allclose(swapped(w.T, h, v), wanted, rtol=1e-10)
    assert not np.allclose(swapped(1.1 * w.T, h, v), wanted, atol=1e-3)


def test_symmetric_start_is_the_network_of_the_paper(x64):
    layers = 3
    u, evidence, _ = problem(3, 0.5)
    c_v, c_h = evidence[0], jnp.linspace(-1, 1, H)

    def network(u, c_v, c_h):
        model = RBM(2 * u, c_v - u.sum(1), c_h - u.sum(0))
        return QueryNetwork(model, 1.0, layers, symmetric_start=True).logits(evidence)

    def paper(u, c_v, c_h):
        return reference.paper_fields(u, c_v, c_h, evidence, layers)

    for got, wanted in zip(
        jax.jit(jax.value_and_grad(weighted(network), (0, 1, 2)))(u, c_v, c_h),
        jax.jit(jax.value_and_grad(weighted(paper), (0, 1, 2)))(u, c_v, c_h),
        strict=True,
    ):
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_stored_and_recomputed_messages_give_the_same_gradient(monkeypatch, x64):
    args = problem(5)
    gradients = []
    for small in (2**28, 0):
        monkeypatch.setattr(retrace, "SMALL", small)
        gradients.append(jax.jit(jax.grad(weighted(ours(7)), (0, 1, 2)))(*args))
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_huge_evidence_is_finite_with_finite_gradients():
    gradient = jax.jit(jax.value_and_grad(weighted(ours(4)), (0, 1, 2)))
    for scale in (0.5, 60.0):
        w, v, h = problem(1, scale)
        signs = jnp.sign(v) * (jnp.arange(V) % 3 > 0)[None]
        for size in (1000.0, 1e9):
            value, slopes = gradient(w, size * signs, h)
            assert all(bool(jnp.isfinite(a).all()) for a in (value, *slopes))


def test_one_choice_of_form_for_a_stack_of_models(x64):
    """vmap over models keeps a choice between ratios and logs, and the answers of each model."""
    many = [problem(seed, scale) for seed, scale in ((0, 0.1), (1, 60.0))]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *many)
    stack = jax.jit(jax.vmap(ours(5)))
    got = stack(*stacked)
    for one, args in zip(got, many, strict=True):
        np.testing.assert_allclose(one, jax.jit(plain(5))(*args), rtol=1e-8, atol=1e-8)
    text = stack.lower(*stacked).as_text()
    assert "stablehlo.case" in text or "stablehlo.if" in text


@eqx.filter_jit
def logits_of(network, evidence):
    return network.logits(evidence)


@eqx.filter_jit
def answer_of(network, evidence):
    return network.probabilities(evidence)


def evidence_rows(rng, n):
    """Hard and soft evidence on some units of each row."""
    return jnp.asarray(rng.choice([-1000.0, 1000.0, 0.0, 0.0, 0.7], size=(2, n)))


@pytest.mark.parametrize("case", [zoo.rbm, zoo.label_rbm, zoo.torus_ising])
def test_any_pairwise_model_has_the_beliefs_of_the_generic_inference(x64, case):
    """Temperature in the messages: the library's belief is of the field divided by T."""
    model, _ = case(1)
    n, T, layers = model.layout.n_visible, 0.5, 5
    evidence = jnp.asarray(np.random.default_rng(0).normal(size=(2, n)))
    infer = BeliefPropagation(layers, None, temperature=T, parallel=True)
    p = model.lower()

    @jax.jit
    def both(evidence):
        fields = jnp.tile(p.unary, (2, 1)).at[:, :n].add(evidence)
        generic = jax.vmap(lambda f: infer(potentials(p.layout, f, p.factors)).unary[:n])(fields)
        logits = QueryNetwork(model, 1 / T, layers, "message", True).logits(evidence)
        units = Layout(tuple(block for block in p.layout.blocks if block.visible))
        return generic, means(units, logits, T)

    np.testing.assert_allclose(*both(evidence), atol=1e-8)


def test_belief_temperature_scales_only_the_final_log_odds(x64):
    model, _ = zoo.rbm(2)
    evidence = evidence_rows(np.random.default_rng(1), 5)
    once, thrice = (
        logits_of(QueryNetwork(model, strength, 3), evidence) for strength in (1.0, 3.0)
    )
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-12)


@pytest.mark.parametrize("seed", [0])
def test_trees_are_answered_exactly(x64, seed):
    """Enough sweeps on a tree give exact conditionals; so does one free visible unit of an RBM."""
    model, truth = zoo.tree_ising(seed)
    mask = np.zeros(8, bool)
    mask[[1, 3, 5]] = True
    x = np.random.default_rng(seed).integers(0, 2, 8).astype(float)
    evidence = jnp.where(mask, 1e9 * (2 * x - 1), 0.0)[None]
    got = answer_of(QueryNetwork(model, 1.0, layers=8), evidence)[0]
    np.testing.assert_allclose(got, truth.given(mask, x).means, atol=1e-8)
    model, truth = zoo.rbm(seed)
    mask = np.arange(8) < 4
    x = np.array([1.0, 0, 1, 1, 0, 0, 0, 0])
    evidence = jnp.where(mask, 1000 * (2 * x - 1), 0.0)[None, :5]
    got = answer_of(QueryNetwork(model, 1.0, layers=2), evidence)[0, 4]
    np.testing.assert_allclose(got, truth.given(mask, x).means[4], atol=1e-8)


def test_no_evidence_is_the_same_as_evidence_of_zero(x64):
    model, _ = zoo.rbm(4)
    p = model.lower()
    free = clamp(p, jnp.zeros(5, bool), jnp.zeros(5))
    infer = BeliefPropagation(6, None, parallel=True)
    got = answer_of(QueryNetwork(model, 1.0, 6, symmetric_start=True), jnp.zeros((1, 5)))[0]
    np.testing.assert_allclose(got, infer(free).unary[:5], atol=1e-10)


def test_a_model_without_hidden_units_answers_by_its_biases():
    model = RBM(jnp.zeros((4, 0)), jnp.arange(4.0), jnp.zeros(0))
    for layers in (1, 2):
        logits = logits_of(QueryNetwork(model, 1.0, layers), jnp.zeros((2, 4)))
        np.testing.assert_allclose(logits, jnp.tile(jnp.arange(4.0), (2, 1)))


def test_two_sides_of_an_rbm():
    sides = two_sides(zoo.rbm(0)[0].lower())
    assert sides is not None
    np.testing.assert_array_equal(sides[0], np.arange(5))
    np.testing.assert_array_equal(sides[1], np.arange(5, 8))
    assert two_sides(zoo.dense_ising(0)[0].lower()) is None


@pytest.mark.slow
def test_memory_grows_like_the_square_root_of_the_layers():
    """Bytes of the compiled gradient, for messages too large to be all stored."""
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((500, 200), (500, 500), (500, 200))]

    def peak(layers):
        def loss(w, v, h):
            return unrolled_fields(w, v, h, layers).sum()

        compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*shapes).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    few, many = peak(10), peak(40)
    assert many < 2 * few
    assert many < 8 * 2**30


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"temperature": "cold"}, "pass 'belief' or 'message'"),
        ({"strength": -1.0}, "strength is -1.0"),
    ],
    ids=["layers", "temperature", "strength"],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        QueryNetwork(zoo.rbm(0)[0], **settings)
