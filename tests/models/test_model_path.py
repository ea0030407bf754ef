"""Paths between models: an RBM on the way from independent units shares its products."""

import re
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.numerics import between
from undirected.evaluation import ais
from undirected.evaluation.ais import _block
from undirected.models import RBM, ModelPath, tempered
from undirected.sampling import BlockGibbs, TemperedTransitions, ladder

BETA = 0.3


def make(labels: int = 0) -> RBM:
    rng = np.random.default_rng(3)
    parts = (jnp.asarray(rng.normal(0, 1, shape)) for shape in ((5, 3), 5, 3))
    return RBM(*parts, labels)


def states_of(labels: int) -> np.ndarray:
    """All joint states of 5 visible and 3 hidden units; the last `labels` visible are one-hot."""
    every = np.array(list(product([0.0, 1.0], repeat=8)))
    return every[every[:, 5 - labels : 5].sum(1) == 1] if labels else every


def energies(weights, b, c, x):
    """-v'Wh - b'v - c'h, in NumPy."""
    v, h = x[:, :5], x[:, 5:]
    return -np.einsum("rv,vh,rh->r", v, np.asarray(weights), h) - v @ b - h @ c


@pytest.fixture(params=[0, 3])
def path(request, x64):
    model = make(request.param)
    return ModelPath(model.independent(jnp.linspace(0.2, 0.4, 5)), model)


def truth(path: ModelPath, x: np.ndarray) -> np.ndarray:
    mix = [
        (1 - BETA) * np.asarray(getattr(path.base, name))
        + BETA * np.asarray(getattr(path.target, name))
        for name in ("weights", "visible_bias", "hidden_bias")
    ]
    return energies(*mix, x)


def test_a_traced_point_of_the_path_is_the_model_there(path):
    x = states_of(path.target.label_states)
    want = truth(path, x)
    assert np.allclose(eqx.filter_jit(lambda p, b: p(b).energy(x))(path, jnp.asarray(BETA)), want)
    hidden = {}
    for row, value in zip(x, want, strict=True):
        hidden.setdefault(tuple(row[:5]), []).append(-value)
    free = [-np.logaddexp.reduce(values) for values in hidden.values()]
    v = np.array(list(hidden))
    free_energy = eqx.filter_jit(lambda p, b: p(b).free_energy(v))
    assert np.allclose(free_energy(path, jnp.asarray(BETA)), free)


def test_its_fields_and_potentials_are_those_of_the_plain_model(path):
    x = states_of(path.target.label_states)
    plain = path(BETA)
    assert isinstance(plain, RBM)

    def asked(model):
        fields = [model.conditional(i, x) for i in range(len(model.layout.blocks))]
        return fields, model.lower(), model.log_odds(x[:, :5]), model.weights

    seen = eqx.filter_jit(lambda p, b: asked(p(b)))(path, jnp.asarray(BETA))
    for ours, want in zip(jax.tree.leaves(seen), jax.tree.leaves(asked(plain)), strict=True):
        assert np.allclose(ours, want)
    kinds = []
    jax.eval_shape(lambda b: kinds.append(path(b).layout), jnp.asarray(BETA))
    assert kinds == [plain.layout]


def test_a_base_with_weights_is_mixed_with_the_target(x64):
    base, target = make(), eqx.tree_at(lambda m: m.weights, make(), -make().weights)
    path, x = ModelPath(base, target), states_of(0)
    assert not path.uncoupled
    energy = eqx.filter_jit(lambda p, b: p(b).energy(x))
    assert np.allclose(energy(path, jnp.asarray(BETA)), truth(path, x))
    wrong = ModelPath(base, target, uncoupled=True)
    assert not np.allclose(energy(wrong, jnp.asarray(BETA)), truth(path, x))


def large_products(fn, *args) -> int:
    """Products of two matrices in the compiled program."""
    text = jax.jit(fn).lower(*args).compile().as_text()
    return len(re.findall(r"= \w+\[\d\d+,\d\d+\]\S* (?:dot|custom-call)\(.*contracting", text))


def test_a_step_of_annealing_makes_two_products():
    model = RBM.create(40, 30, seed=0)
    start, key = jnp.zeros((20, 70)), jax.random.key(0)
    betas = np.linspace(0, 1, 5)

    def run(path):
        def lead(x, key):
            return _block(path, BlockGibbs(), (x, jnp.zeros(20), key), jnp.asarray(betas), 1, 4)

        return large_products(lead, start, key)

    assert run(ModelPath(model.independent(), model)) == 2
    assert run(ModelPath(model.independent(), model, uncoupled=False)) > 2


def test_a_level_of_a_tempered_run_makes_two_products():
    model = RBM.create(40, 30, seed=0)
    free, key = jnp.ones(70, bool), jax.random.key(0)

    def run(make_path):
        kernel = TemperedTransitions(BlockGibbs(), make_path, ladder(0.5, 5))
        state = kernel.init(model, jnp.zeros((20, 70)), key)
        return large_products(lambda s, k: kernel.step(model, s, free, k), state, key)

    assert run(tempered) == 2 * 2  # there and back
    assert run(lambda m: ModelPath(tempered(m).base, m, uncoupled=False)) > 2 * 2


def test_ais_along_it_finds_log_z(x64):
    model = make()
    path = ModelPath(model.independent(), model)
    exact = np.logaddexp.reduce(-truth_at_one(model))
    found = ais(path, BlockGibbs(), seed=0, chains=200, betas=200)
    assert abs(float(found.log_z) - exact) < 5 * float(found.stderr) + 1e-3


def truth_at_one(model: RBM) -> np.ndarray:
    parts = (np.asarray(a) for a in (model.weights, model.visible_bias, model.hidden_bias))
    return energies(*parts, states_of(0))


class Doubled(RBM):
    """An RBM of its own kind, at half the temperature."""

    def energy(self, x):
        return 2 * super().energy(x)


def test_a_model_of_another_class_keeps_its_own_methods(x64):
    model, x = make(), states_of(0)
    own = Doubled(model.weights, model.visible_bias, model.hidden_bias)
    path = ModelPath(eqx.tree_at(lambda m: m.weights, own, jnp.zeros((5, 3))), own)
    seen = eqx.filter_jit(lambda p, b: p(b).energy(x))(path, jnp.asarray(BETA))
    assert np.allclose(seen, 2 * truth(path, x))
    seen = eqx.filter_jit(lambda m, b: tempered(m)(b).energy(x))(own, jnp.asarray(BETA))
    assert np.allclose(seen, 2 * BETA * truth_at_one(model))


def test_what_the_target_forbids_is_allowed_up_to_its_end(x64):
    base, target = jnp.array([0.0, 2.0, -1e9, 0.0]), jnp.array([-1e9, -2e9, -1e9, 4.0])
    assert between(0.0, base, target).tolist() == base.tolist()
    assert between(1.0, base, target).tolist() == target.tolist()
    assert np.allclose(between(0.5, base, target), [-5.0, -3.0, -1e9, 2.0])
    late = between(1 - 1e-3, base, target)
    assert np.allclose(late[:2], [-4995, -4993])
