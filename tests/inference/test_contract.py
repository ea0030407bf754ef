"""What every inference routine promises: batches without vmap, and clear refusals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from tests.marks import mostly_slow
from undirected import inference
from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.core.potentials import Beliefs, Status, clamp, shift
from undirected.inference import (
    MPLP,
    TAP,
    BeliefPropagation,
    Downs,
    Elimination,
    Exact,
    ImprovedSusceptibility,
    LinearProgram,
    MaxProduct,
    MeanField,
    MixedProduct,
    Quadrature,
    SumProduct,
    Susceptibility,
    Transfer,
    TreeReweighted,
    predict,
)
from undirected.inference.base import Inference, finished
from undirected.models import RBM, Ising, NonnegativeBM
from undirected.sampling import PerturbAndMap

GRID = graph.grid(2, 2)


def ising() -> Ising:
    rng = np.random.default_rng(0)
    return Ising(jnp.asarray(rng.normal(size=4)), jnp.asarray(rng.normal(size=4)), GRID)


def rbm() -> RBM:
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2)
    return RBM(*(jnp.asarray(a) for a in parts))


def nonnegative() -> NonnegativeBM:
    matrix = jnp.asarray([[0.3, 0.05, 0.0], [0.05, 0.3, 0.1], [0.0, 0.1, 0.3]])
    return NonnegativeBM.from_matrix(matrix, jnp.asarray([-3.5, -4.0, -3.0]))


SOME = [
    "sum",
    "max",
    "mean field, dense",
    "exact",
    "elimination",
    "cut",
    "tree reweighted",
    "improved",
    "quadrature",
]
ROUTINES = {
    "sum": (SumProduct(), ising),
    "max": (MaxProduct(), ising),
    "any temperature": (BeliefPropagation(temperature=0.5, damping=0.3), ising),
    "sum, dense": (SumProduct(), rbm),
    "mean field": (MeanField(), ising),
    "mean field, dense": (MeanField(), rbm),
    "exact": (Exact(), ising),
    "transfer": (Transfer.plan(GRID), ising),
    "elimination": (Elimination(), ising),
    "highs": (LinearProgram(), ising),
    "cut": (LinearProgram("cut"), ising),
    "mplp": (MPLP(), ising),
    "tree reweighted": (TreeReweighted(), ising),
    "tap": (TAP(), ising),
    "susceptibility": (Susceptibility(), ising),
    "improved": (ImprovedSusceptibility(), rbm),
    "mixed": (MixedProduct(), rbm),
    "downs": (Downs(), nonnegative),
    "quadrature": (Quadrature(nodes=20), nonnegative),
}


def test_every_routine_is_in_the_table():
    here = {type(routine) for routine, _ in ROUTINES.values()}
    exported = {getattr(inference, name) for name in inference.__all__}
    routines = {c for c in exported if isinstance(c, type) and issubclass(c, Inference)}
    assert routines - {Inference} <= here


@pytest.mark.parametrize("name", mostly_slow(ROUTINES, SOME))
def test_batches_need_no_vmap(name):
    """Two leading axes: the answers of one instance after the other."""
    routine, make = ROUTINES[name]
    p = make().lower()
    fields = 0.3 * np.random.default_rng(2).normal(size=(2, 3, p.layout.n))
    found = routine(shift(p, jnp.asarray(fields)))
    assert found.unary.shape == fields.shape
    assert found.log_z.shape == found.status.shape == found.iterations.shape == (2, 3)
    alone = [routine(shift(p, jnp.asarray(own))) for own in fields.reshape(6, -1)]
    wanted = jax.tree.map(lambda *a: np.stack(a).reshape(2, 3, *a[0].shape), *alone)
    batched = [f.weight for f in found.factors]
    single = [f.weight for f in wanted.factors]
    ours, theirs = (found.unary, found.log_z, *batched), (wanted.unary, wanted.log_z, *single)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    np.testing.assert_array_equal(found.status, wanted.status)
    assert np.isfinite(found.log_z).all()
    assert np.ptp(np.asarray(found.log_z)) > 0.05


@pytest.mark.parametrize("name", ["max", "highs", "mplp", "elimination", "exact best"])
def test_best_states_of_batches(name):
    routine = {**ROUTINES, "exact best": (Exact(0.0), ising)}[name][0]
    p = ising().lower()
    fields = np.random.default_rng(3).normal(size=(2, 3, 4))
    if isinstance(routine, Elimination):
        routine = Elimination(0.0)
    found = routine.decode(shift(p, jnp.asarray(fields)))
    assert found.x.shape == fields.shape and found.status.shape == (2, 3)
    for place in np.ndindex(2, 3):
        alone = routine.decode(shift(p, jnp.asarray(fields[place])))
        np.testing.assert_array_equal(found.x[place], alone.x)


def test_bounds_of_batches():
    p = ising().lower()
    fields = np.random.default_rng(3).normal(size=(2, 3, 4))
    batched = shift(p, jnp.asarray(fields))
    found = MPLP().dual(batched)
    for place in np.ndindex(2, 3):
        alone = MPLP().dual(shift(p, jnp.asarray(fields[place])))
        np.testing.assert_allclose(found[place], alone, atol=1e-5)
    with pytest.raises(UndirectedError, match=r"potentials of \(2, 3\) instances; relax one"):
        LinearProgram().relax(batched)


@pytest.mark.parametrize("infer", [MaxProduct(), LinearProgram("cut")], ids=["max", "cut"])
def test_samples_of_batches(infer):
    """Fields that decide every unit: each instance has its own state, whatever the noise."""
    p = Ising(jnp.zeros(4), jnp.zeros(4), GRID).lower()
    states = np.random.default_rng(5).integers(0, 2, (2, 3, 4))
    sampler, key = PerturbAndMap(infer, samples=2), jax.random.key(0)
    batched = shift(p, jnp.asarray(100.0 * (2 * states - 1)))
    draws, beliefs = sampler.draw(batched, key), sampler(batched, key)
    assert draws.x.shape == (2, 3, 2, 4) and draws.log_z.shape == (2, 3, 2)
    np.testing.assert_array_equal(draws.x, np.broadcast_to(states[:, :, None], draws.x.shape))
    np.testing.assert_array_equal(beliefs.unary, states)
    assert beliefs.log_z.shape == (2, 3)
    if isinstance(infer, BeliefPropagation):
        inside = jax.jit(lambda q: sampler.draw(q, key).x)(batched)
        np.testing.assert_array_equal(inside, draws.x)


WRONG = {
    "ndarray": np.zeros(4),
    "ArrayImpl": jnp.zeros(4),
    "dict": {"a": 1},
    "str": "model",
    "NoneType": None,
    "list": [],
    "the class Ising": Ising,
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", ROUTINES)
def test_what_is_no_model_is_refused_by_name(name, kind):
    routine = ROUTINES[name][0]
    with pytest.raises(UndirectedError, match=f"got .*{kind}.*; pass a model"):
        routine(WRONG[kind])
    with pytest.raises(UndirectedError, match=r"pass a model|not a best state"):
        routine.decode(WRONG[kind])


@pytest.mark.parametrize(
    ("routine", "make", "words"),
    [
        (Transfer.plan(GRID), rbm, "Transfer: needs one Edges group .*, got Bilinear"),
        (MixedProduct(), ising, "mixed-product: needs one Bilinear group"),
        (Downs(), rbm, "Downs: .* nonnegative units; use TAP"),
        (Quadrature(), rbm, "quadrature: 5 units"),
        (MeanField(), nonnegative, "mean field: block '.*' is nonnegative"),
        (Exact(), nonnegative, "exact.*: block '.*' is nonnegative"),
        (SumProduct(), nonnegative, "belief propagation: a Squares group offers no"),
        (Elimination(), nonnegative, "nonnegative"),
        (LinearProgram("cut"), nonnegative, "needs binary units, block '.*' is nonnegative"),
        (MPLP(), nonnegative, "MPLP: a Squares group offers no tables"),
    ],
)
def test_models_of_another_kind_are_refused(routine, make, words):
    with pytest.raises(UndirectedError, match=words):
        routine(make())


def test_a_plan_of_another_graph_is_refused():
    with pytest.raises(UndirectedError, match="planned for 4 units and 4 edges, .* has 6 and 7"):
        Transfer.plan(GRID)(Ising.create(graph.grid(2, 3)))
    with pytest.raises(UndirectedError, match=r"this model has 4 and 6; use Transfer.plan"):
        Transfer.plan(GRID)(Ising.create(graph.complete(4)))


class Chain(eqx.Module):
    """Five outputs along a chain, whose fields are a linear map of three features."""

    couplings: jax.Array
    features: jax.Array

    def at(self, x: jax.Array) -> Ising:
        return Ising(self.couplings, self.features @ x, graph.chain(5))


def test_predict_takes_every_conditional_model():
    """Chunks of two rows, of all rows, and a routine on the host: the enumerated marginals."""
    rng = np.random.default_rng(4)
    couplings, features, x = (rng.normal(size=shape) for shape in (4, (5, 3), (7, 3)))
    model = Chain(jnp.asarray(couplings), jnp.asarray(features))
    edges = np.stack([np.arange(4), np.arange(1, 5)], 1)
    matrix = oracle.edge_matrix(5, edges, couplings)
    wanted = np.stack([oracle.pairwise(matrix, features @ row).means for row in x])
    key = jax.random.key(0)
    for infer, budget in ((SumProduct(), 2**30), (SumProduct(), 2000), (Elimination(), 2**30)):
        found = predict(model, x, infer, key, budget=budget)
        np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert predict(model, x[:0], SumProduct(), key).shape == (0, 5)
    with pytest.raises(UndirectedError, match="predict: got a Ising; pass a conditional model"):
        predict(ising(), x, SumProduct(), key)
    with pytest.raises(UndirectedError, match=r"features have shape \(3,\)"):
        predict(model, x[0], SumProduct(), key)


def test_the_sampler_by_maxima_refuses_routines_of_marginals():
    for infer in (SumProduct(), BeliefPropagation(temperature=0.5), MeanField(), Exact(), TAP()):
        with pytest.raises(UndirectedError, match=r"finds marginals, .* needs best states"):
            PerturbAndMap(infer)
    PerturbAndMap(MaxProduct())


@pytest.mark.parametrize("solver", ["highs", "cut"])
def test_a_relaxation_that_is_no_state_says_so(solver):
    """A triangle that repels: all marginals are one half; a chain has a state."""
    loop = graph.from_edges(3, [(0, 1), (1, 2), (2, 0)])
    frustrated = Ising.from_spins(jnp.full(3, -1.0), jnp.asarray([0.1, 0.2, -0.1]), loop)
    found = LinearProgram(solver)(frustrated)
    assert int(found.status) == Status.FRACTIONAL and not found.converged
    np.testing.assert_allclose(LinearProgram(solver).relax(frustrated).unary, 0.5, atol=1e-6)
    np.testing.assert_array_equal(found.unary, [1, 1, 0])  # each follows its field
    assert int(LinearProgram(solver).decode(frustrated).status) == Status.FRACTIONAL
    plain = Ising.from_spins(jnp.full(3, 1.0), jnp.asarray([0.1, 0.2, -0.1]), loop)
    assert int(LinearProgram(solver)(plain).status) == Status.CONVERGED


class OnHost(Inference):
    """What units are held at and, where they are free, noise: on the host."""

    on_host = True

    def infer(self, p, key):
        noise = jax.random.uniform(key, p.unary.shape)
        means = jnp.where(p.evidence > 0, noise if p.held is None else p.held, noise)
        return Beliefs(means, (), jnp.zeros(()), *finished())


def test_instances_on_the_host_have_keys_and_held_values_of_their_own(key):
    found = OnHost()(shift(ising().lower(), jnp.zeros((3, 4))), key).unary
    assert len(np.unique(found)) == 12
    values = jnp.asarray([[1.5, 0.0, 0.0], [2.5, 0.0, 0.0]])
    held = clamp(nonnegative().lower(), jnp.asarray([True, False, False]), values)
    np.testing.assert_array_equal(OnHost()(held, key).unary[:, 0], [1.5, 2.5])


def test_no_instances_at_all():
    p = ising().lower()
    none = shift(p, jnp.zeros((0, 4)))
    with pytest.raises(UndirectedError, match="0 instances; pass at least one"):
        Elimination()(none)
    assert SumProduct()(none).unary.shape == (0, 4)


@pytest.mark.parametrize("number", [np.int64, np.float64, np.float32])
def test_numbers_of_numpy_are_settings(number):
    """As data of a compiled program they would be no sizes, and a temperature of 0 would be NaN."""
    model = Ising(jnp.zeros(4), jnp.array([1.0, -2.0, 0.5, 0.0]), GRID)
    whole = np.int64 if number is np.int64 else int
    exact = Exact(number(0), chunk=whole(4), most=number(100))
    assert exact == Exact(0, chunk=4, most=100)
    np.testing.assert_array_equal(exact.decode(model).x[:3], [1, 0, 1])
    assert float(exact(model).log_z) == pytest.approx(1.5)
    assert Elimination(number(0)).decode(model).x[1] == 0
    found = BeliefPropagation(whole(20), number(1), temperature=number(0))
    assert found.finds_best_state and bool(found(model).converged)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("iterations", -1),
        ("iterations", 2.5),
        ("tolerance", -1.0),
        ("tolerance", float("nan")),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("chunk", 0),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting, value):
    routines = MPLP, TreeReweighted, MeanField, BeliefPropagation, Exact, Elimination
    takes = [r for r in routines if setting in r.__dataclass_fields__]
    assert takes
    for routine in takes:
        with pytest.raises(UndirectedError, match=setting):
            routine(**{setting: value})
