"""Sum-product on a dense bipartite model against float64 NumPy, in range and at its limits."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.potentials import shift
from undirected.inference import MixedProduct, SumProduct
from undirected.learning import stack
from undirected.models import RBM
from undirected.ops import bipartite, on_chip


def plain(w, rows, cols, iterations: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log messages into the rows, and the sums at rows and columns."""
    w, rows, cols = (np.asarray(a, np.float64) for a in (w, rows, cols))
    to_rows = 0.5 * w
    to_cols = to_rows
    for _ in range(iterations):
        cavity = (rows + to_rows.sum(1))[:, None] - to_rows
        to_cols = np.logaddexp(0, cavity + w) - np.logaddexp(0, cavity)
        cavity = cols + to_cols.sum(0) - to_cols
        to_rows = np.logaddexp(0, cavity + w) - np.logaddexp(0, cavity)
    return to_rows, to_rows.sum(1), to_cols.sum(0)


def random_model(a: int, b: int, scale: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    parts = scale * rng.normal(size=(a, b)), rng.normal(size=a), rng.normal(size=b)
    return [jnp.asarray(part, jnp.float32) for part in parts]


@pytest.mark.parametrize("gentle", [True, False])
@pytest.mark.parametrize(("a", "b"), [(50, 37), (3, 2)])
def test_messages_and_sums(a, b, gentle):
    model = random_model(a, b, 0.2)
    found = jax.jit(partial(bipartite.sum_product, gentle=gentle), static_argnums=(4, 5))(
        *model, 5, None, 0.0
    )
    for got, wanted in zip(found[:3], plain(*model, 5), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("length", [0, 5, 16, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_log_products_of_any_length(axis, length):
    ratio = np.exp(np.random.default_rng(1).normal(size=(length, 7) if axis == 0 else (7, length)))
    found = bipartite.log_product(jnp.asarray(ratio, jnp.float32), axis, gentle=True)
    np.testing.assert_allclose(found, np.log(ratio).sum(axis), atol=1e-5)


@pytest.mark.parametrize(
    ("weight", "field"), list(itertools.product([4.9, 60.0, 200.0], [3.0, 1000.0]))
)
def test_steep_models_are_finite_and_in_order(weight, field):
    """Weights and fields of either sign: beliefs are those of float64, and none is NaN."""
    rng = np.random.default_rng(2)
    w = jnp.asarray(weight * rng.choice([-1.0, 1.0], size=(6, 5)), jnp.float32)
    rows, cols = (jnp.asarray(field * rng.uniform(-1, 1, size=n), jnp.float32) for n in (6, 5))
    beliefs = infer(RBM(w, rows, cols).lower())
    assert np.isfinite(beliefs).all()
    _, at_rows, at_cols = plain(w, rows, cols, 3)
    total = np.concatenate([rows + at_rows, cols + at_cols])
    np.testing.assert_allclose(beliefs, 1 / (1 + np.exp(-np.clip(total, -80, 80))), atol=1e-4)


infer = jax.jit(lambda p: SumProduct(3, None)(p).unary)


def shifted_model():
    w, rows, cols = random_model(30, 20, 0.3)
    shift = jnp.asarray(np.random.default_rng(3).normal(size=(2, 1)), jnp.float32)
    return w, rows[None] + shift, cols[None] - shift


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_messages_stay_on_chip(tolerance):
    """Interpreted, so a team is one program; on a GPU `benchmarks.gpu` checks whole teams.

    Two sets of weights, two instances of each, and a bound of its own for every one of them.
    """
    w, rows, cols = shifted_model()
    weights = jnp.stack([w, 0.5 * w])
    fields = [jnp.stack([part, 2 * part]) for part in (rows, cols)]
    bounds = jnp.asarray([[1, 4], [30, 2]], jnp.int32)
    found = on_chip.run(weights, *fields, bounds, tolerance, split=(2, 2))
    for k, i in itertools.product(range(2), range(2)):
        own = weights[k], fields[0][k, i], fields[1][k, i]
        *messages, change, made = (part[k, i] for part in found)
        early = tolerance is not None and bounds[k, i] == 30
        assert made < 30 if early else made == bounds[k, i]
        for got, exact in zip(messages, plain(*own, int(made)), strict=True):
            np.testing.assert_allclose(got, exact, atol=2e-5)
        moved = movements(*own, int(made))
        np.testing.assert_allclose(change, moved[-1], atol=2e-5)
        if early:  # found out one iteration late
            assert moved[-2] <= tolerance < moved[-3]


def movements(w, rows, cols, iterations: int) -> list[float]:
    """The largest change of a sum of messages, of every iteration."""
    sums = [np.concatenate([0.5 * w.sum(1), 0.5 * w.sum(0)])]
    sums += [np.concatenate(plain(w, rows, cols, t + 1)[1:]) for t in range(iterations)]
    return [float(np.abs(b - a).max()) for a, b in itertools.pairwise(sums)]


def in_one_tile(monkeypatch, wait=None):
    """Small tiles for a small model; the list says how often messages stayed on chip."""
    ran, run = [], on_chip.run
    monkeypatch.setattr(on_chip, "run", lambda *a: ran.append(1) or run(*a, split=(1, 1)))
    if wait is not None:
        monkeypatch.setattr(on_chip, "_wait", wait)
    return ran


plainly = partial(bipartite.sum_product, tolerance=None, damping=0.0, gentle=False)


def test_a_batch_goes_on_chip_and_is_differentiable(monkeypatch):
    ran = in_one_tile(monkeypatch)
    w, rows, cols = shifted_model()
    on_the_chip = partial(on_chip.sum_product, iterations=3, tolerance=None)

    def loss(function, w):
        found = jax.vmap(function, (None, 0, 0))(w, rows, cols)
        return jnp.square(found[1]).sum() + found[0].sum(), found

    exactly = partial(plainly, iterations=3)
    (_, found), got = jax.jit(jax.value_and_grad(partial(loss, on_the_chip), has_aux=True))(w)
    (_, wanted), exact = jax.jit(jax.value_and_grad(partial(loss, exactly), has_aux=True))(w)
    np.testing.assert_allclose(got, exact, atol=1e-4)
    found = jax.jit(jax.vmap(on_the_chip, (None, 0, 0)))(w, rows, cols)
    assert len(ran) == 1
    for a, c in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, c, atol=1e-5)


def test_sets_of_models_go_on_chip(monkeypatch):
    """Seeds side by side: weights and the number of iterations are of a set, fields of a row."""
    ran = in_one_tile(monkeypatch)
    w, rows, cols = shifted_model()
    weights, bounds = jnp.stack([w, 0.5 * w, -w]), jnp.asarray([2, 3, 4])

    def of_set(function, w, bound):
        own = partial(function, iterations=bound)
        return jax.vmap(own, (None, 0, 0))(w, rows, cols)

    on_the_chip = partial(on_chip.sum_product, tolerance=None)
    found, wanted = (
        jax.jit(jax.vmap(partial(of_set, function)))(weights, bounds)
        for function in (on_the_chip, plainly)
    )
    assert ran and found[4].tolist() == [[2, 2], [3, 3], [4, 4]]
    for a, c in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, c, atol=1e-5)
    each = partial(on_the_chip, iterations=3)
    alone = jax.jit(jax.vmap(each))(weights, rows[:1].repeat(3, 0), cols[:1].repeat(3, 0))
    for a, c in zip(alone, plainly(-w, rows[0], cols[0], 3), strict=True):
        np.testing.assert_allclose(a[2], c, atol=1e-5)
    deep = jax.vmap(jax.vmap(jax.vmap(each, (None, 0, 0)), (0, None, None)), (None, 0, 0))
    found = jax.jit(deep)(weights, rows[None], cols[None])
    for a, c in zip(found, plainly(w, rows[1], cols[1], 3), strict=True):
        np.testing.assert_allclose(a[0, 0, 1], c, atol=1e-5)


def test_who_waits_in_vain_is_answered_by_the_plain_form(monkeypatch):
    """A team that does not come together has wrong sums, which must not pass."""
    late = in_one_tile(monkeypatch, wait=lambda *a: jnp.int32(1))
    w, rows, cols = shifted_model()
    bounds = jnp.full((1, 2), 4, jnp.int32)
    broken = on_chip.run(w[None], rows[None], cols[None], bounds, None)
    assert np.isnan(broken[3]).all()
    assert np.abs(broken[1][0, 0] - plain(w, rows[0], cols[0], 4)[1]).max() > 1e-3
    each = partial(on_chip.sum_product, iterations=4, tolerance=None)
    found = jax.jit(jax.vmap(each, (None, 0, 0)))(w, rows, cols)
    assert len(late) > 1
    np.testing.assert_allclose(found[1][0], plain(w, rows[0], cols[0], 4)[1], atol=1e-5)
    assert found[4].tolist() == [4, 4]


def test_models_that_are_no_numbers_say_so(monkeypatch):
    in_one_tile(monkeypatch)
    w, rows, cols = shifted_model()
    each = partial(on_chip.sum_product, iterations=4, tolerance=1e-3)
    found = jax.jit(jax.vmap(each, (None, 0, 0)))(w, rows.at[0, 0].set(jnp.nan), cols)
    assert np.isnan(found[3][0]) and np.isfinite(found[3][1])


def test_the_kernel_is_written_for_gpus(monkeypatch):
    """Programs that interpret well may still be none for a GPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    shapes = (3, 784, 256), (3, 10, 784), (3, 10, 256)
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    bounds = jax.ShapeDtypeStruct((3, 10), jnp.int32)
    traced = jax.jit(partial(on_chip.run, tolerance=1e-3)).trace(*arrays, bounds)
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("tolerance", [None, 1e-3])
def test_sum_product_takes_the_kernel_where_it_fits(tolerance, monkeypatch):
    ran, routine = in_one_tile(monkeypatch), SumProduct(6, tolerance)
    models = stack([RBM.create(6, 4, seed=i, scale=scale) for i, scale in enumerate((0.3, 2.0))])
    shifts = jax.random.normal(jax.random.key(0), (3, 10))

    def beliefs():
        def of(model, shifts):
            found = routine.infer(shift(model.lower(), shifts), None)
            return found.unary, found.log_z, found.factors[0].weight

        return eqx.filter_vmap(lambda m: jax.vmap(lambda s: of(m, s))(shifts))(models)

    plain = jax.jit(beliefs)()
    assert not ran
    monkeypatch.setattr(on_chip, "fits", lambda *shape: True)
    on_the_chip = jax.jit(lambda: beliefs())()
    assert ran
    for a, b in zip(on_the_chip, plain, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3 if tolerance else 2e-5)


def stacked(routine, models):
    """`unary` of the beliefs about every model of a stack, as a function without arguments."""
    infer = eqx.filter_vmap(lambda model: routine.infer(model.lower(), None).unary)
    return lambda: infer(models)


ROUTINES = {
    "all rounds": SumProduct(6, None),
    "until at rest": SumProduct(6, 1e-3),
    "mixed": MixedProduct(6),
}


@pytest.mark.parametrize("name", ROUTINES)
def test_models_of_a_stack_choose_their_form_together(name, monkeypatch):
    """Each as if alone, gentle beside steep; a choice for each would be computed both ways."""
    routine = ROUTINES[name]
    alone = [RBM.create(6, 4, seed=i, scale=scale) for i, scale in enumerate((0.3, 4.0, 60.0))]
    models = stack(alone)
    wanted = np.stack([routine(model).unary for model in alone])
    np.testing.assert_allclose(jax.jit(stacked(routine, models))(), wanted, atol=2e-5)
    assert "cond[" in str(jax.make_jaxpr(stacked(routine, models))())
    monkeypatch.setattr(bipartite, "steepest", lambda weight: jnp.abs(weight).max())
    assert "cond[" not in str(jax.make_jaxpr(stacked(routine, models))())
