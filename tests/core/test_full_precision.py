"""Answers are computed with all digits on machines that round the factors of products."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from undirected.core.numerics import full_precision
from undirected.inference import Exact, Inference
from undirected.models import RBM
from undirected.ops.hidden_states import log_z_over_hidden

ROWS = np.array([[0, 1, 1], [1, 0, 1]])


def asked() -> str | None:
    """The precision of products that are traced now."""
    return jax.config.jax_default_matmul_precision


class Watched(RBM):
    """An RBM that notes under which precision its energies are computed."""

    seen: list = eqx.field(static=True, default_factory=list)

    def energy(self, x):
        self.seen.append(asked())
        return super().energy(x)

    def hidden_fields(self, v):
        self.seen.append(asked())
        return super().hidden_fields(v)


class Noting(Inference):
    """A routine that notes the precision it is traced under."""

    seen: list = eqx.field(static=True)

    def infer(self, p, key):
        self.seen.append(asked())
        return Exact().infer(p, key)


@pytest.fixture
def rounding(monkeypatch):
    """A machine that rounds, as far as the library can see."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")


def watched() -> Watched:
    model = RBM.create(3, 2, seed=0)
    return Watched(model.weights, model.visible_bias, model.hidden_bias)


def path_to(model):
    return un.ModelPath(jax.tree.map(jnp.zeros_like, model), model)


def ais(model):
    un.ais(path_to(model), un.BlockGibbs(), seed=0, betas=5)


def population(model):
    settings = {"seed": 0, "betas": 5, "populations": 2, "members": 4}
    un.population_annealing(path_to(model), un.BlockGibbs(), **settings)


def likelihood(model):
    un.log_likelihood(model, ROWS, 3.0)


def ladder(model):
    kernel = un.ParallelTempering(un.BlockGibbs(), un.tempered, (1.0, 0.5, 0.0))
    state = kernel.init(model, jnp.zeros((4, 5)), jax.random.key(0))
    kernel.log_partitions(model, state, jax.random.key(1), samples=3)


@pytest.mark.parametrize("ask", [ais, population, likelihood, ladder])
def test_free_energies_are_computed_with_all_digits(ask, rounding):
    model = watched()
    ask(model)
    assert model.seen
    assert set(model.seen) == {"highest"}


def test_inference_and_queries_use_all_digits(rounding):
    seen = []
    model, routine = RBM.create(3, 2, seed=0), Noting(seen)
    routine(model)
    un.query(model, np.array([[1, np.nan, 0.0]]), method=routine)
    assert seen
    assert set(seen) == {"highest"}


def test_inference_inside_of_a_program_keeps_the_precision_of_that(rounding):
    seen = []
    jax.jit(lambda m: Noting(seen)(m).log_z)(RBM.create(3, 2, seed=0))
    assert set(seen) == {None}


def test_sums_over_hidden_states_use_all_digits(rounding):
    model = RBM.create(3, 2, seed=0)
    program = str(jax.make_jaxpr(lambda m: log_z_over_hidden(*_arrays(m)))(model))
    assert program.count("dot_general") == program.count("Precision.HIGHEST") // 2 > 0


def _arrays(model):
    return model.weights, model.visible_bias, model.hidden_bias


def test_what_the_user_has_set_stays(rounding):
    with jax.default_matmul_precision("tensorfloat32"), full_precision():
        assert asked() == "tensorfloat32"
    with full_precision():
        assert asked() == "highest"
    assert asked() is None


def test_cpus_need_nothing():
    with full_precision():
        assert asked() is None
