"""What was compiled once serves every later call: new values of the same shapes compile nothing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import undirected as un
import undirected.inference
import undirected.sampling
from tests.compiled import compilations
from tests.marks import mostly_slow
from undirected.core.graph import chain
from undirected.evaluation import (
    ais,
    bracket,
    log_likelihood,
    pseudo_log_likelihood,
    reconstruction_error,
)
from undirected.inference import (
    MPLP,
    TAP,
    BeliefPropagation,
    Downs,
    Elimination,
    Exact,
    ImprovedSusceptibility,
    Inference,
    LinearProgram,
    MaxProduct,
    MeanField,
    MixedProduct,
    Quadrature,
    QueryNetwork,
    SumProduct,
    Susceptibility,
    Transfer,
    TreeReweighted,
    predict,
)
from undirected.learning import (
    Batches,
    Conditional,
    ContrastiveDivergence,
    Ensemble,
    ImportanceSampled,
    MaskQueries,
    MaxMargin,
    PerceptronLoss,
    Persistent,
    PseudoLikelihood,
    QueryTraining,
    Scheduled,
    TwoPhase,
    answers,
    fit,
    hold_then_decay,
    stack,
)
from undirected.models import (
    RBM,
    ConditionalRBM,
    GaussianRBM,
    Ising,
    MixedRBM,
    MixtureRBM,
    ModelPath,
    NonnegativeBM,
    TrainingPath,
    tempered,
)
from undirected.sampling import (
    Alternating,
    AnyScale,
    BlockGibbs,
    DiscreteLangevin,
    ExactHamiltonian,
    GaussianGibbs,
    Gibbs,
    GibbsWithGradients,
    HammingBall,
    Houdayer,
    MixedGibbs,
    MixtureGibbs,
    MultipleTry,
    ParallelTempering,
    PathAuxiliary,
    PerturbAndMap,
    RectifiedGibbs,
    ReflectiveHamiltonian,
    SwendsenWang,
    TemperedTransitions,
    Wolff,
    ladder,
    run_chains,
)


def check(call: Callable[[int], Any]) -> None:
    """call(seed) makes its own values: the first call compiles, the second one must not."""
    jax.block_until_ready(call(0))
    with compilations() as second:
        jax.block_until_ready(call(1))
    assert second == []


def test_the_instrument_sees_new_programs_alone():
    double = jax.jit(lambda x: 2 * x)
    for shape, wanted in ((3, 1), (3, 0), (4, 1)):
        with compilations() as made:
            double(np.ones(shape))
        assert len(made) == wanted


def normal(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def rbm(seed: int) -> RBM:
    return RBM(normal(seed, 4, 3), normal(seed + 1, 4), normal(seed + 2, 3))


def ising(seed: int) -> Ising:
    return Ising(normal(seed, 8), normal(seed + 1, 9), chain(9))


def gaussian(seed: int) -> GaussianRBM:
    return GaussianRBM(normal(seed, 4, 3), normal(seed + 1, 4), normal(seed + 2, 3))


def mixed(seed: int) -> MixedRBM:
    return MixedRBM.create(["binary", 3, "real"], 3, seed=seed, scale=1.0)


def mixture(seed: int) -> MixtureRBM:
    parts = normal(seed, 4, 3), normal(seed + 1, 4, 2), normal(seed + 2, 4)
    return MixtureRBM(*parts, normal(seed + 3, 3), normal(seed + 4, 2))


def nonnegative(seed: int, n: int = 3) -> NonnegativeBM:
    a = 0.1 * np.random.default_rng(seed).random((n, n))
    return NonnegativeBM.from_matrix(jnp.asarray(a + a.T + np.eye(n), jnp.float32), normal(seed, n))


def conditional(seed: int) -> ConditionalRBM:
    return ConditionalRBM.create(4, 3, 2, jax.random.key(seed), scale=1.0)


def binary(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(np.float32)


INFERENCE: dict[Callable, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    MPLP: (MPLP, ising),
    TreeReweighted: (TreeReweighted, ising),
    TAP: (TAP, rbm),
    BeliefPropagation: (lambda: BeliefPropagation(5, None, 0.5, 0.5), ising),
    Downs: (Downs, nonnegative),
    Elimination: (Elimination, ising),
    Exact: (Exact, rbm),
    ImprovedSusceptibility: (ImprovedSusceptibility, nonnegative),
    LinearProgram: (LinearProgram, ising),
    MaxProduct: (MaxProduct, rbm),
    MeanField: (MeanField, ising),
    MixedProduct: (MixedProduct, rbm),
    Quadrature: (lambda: Quadrature(20), nonnegative),
    SumProduct: (SumProduct, rbm),
    Susceptibility: (Susceptibility, nonnegative),
    Transfer: (lambda: Transfer.plan(chain(9)), ising),
}


def test_every_routine_is_here():
    exported = {getattr(undirected.inference, name) for name in undirected.inference.__all__}
    routines = {a for a in exported if isinstance(a, type) and issubclass(a, Inference)}
    assert routines - {Inference} == set(INFERENCE) - {MaxProduct, SumProduct}


@pytest.mark.parametrize("kind", INFERENCE, ids=lambda kind: kind.__name__)
def test_inference(kind):
    make, model = INFERENCE[kind]
    check(lambda seed: make()(model(seed), jax.random.key(seed)))


@pytest.mark.parametrize("kind", [MPLP, MaxProduct], ids=lambda kind: kind.__name__)
def test_best_states(kind):
    make, model = INFERENCE[kind]
    check(lambda seed: make().decode(model(seed), jax.random.key(seed)).x)


def test_answers_of_conditional_models_and_query_networks():
    x = binary(0, 5, 4)
    check(
        lambda seed: answers(QueryNetwork(rbm(seed), layers=3), np.where(x, x, np.nan) + 0 * seed)
    )
    check(lambda seed: predict(conditional(seed), x[:, :2], SumProduct(), jax.random.key(seed)))


@pytest.mark.parametrize("method", ["bp", "exact", "gibbs"])
def test_more_rows_of_a_query(method):
    def ask(seed: int) -> Any:
        some = binary(seed, 100 + seed, 4)
        some[:, seed] = np.nan
        return un.query(rbm(seed), some, method=method, seed=seed)

    check(ask)


LADDER = ladder(0.5, 3)
KERNELS: dict[type, tuple[Callable[[], Any], Callable[[int], Any]]] = {
    AnyScale: (AnyScale, ising),
    DiscreteLangevin: (DiscreteLangevin, ising),
    HammingBall: (lambda: HammingBall(2), ising),
    MultipleTry: (MultipleTry, ising),
    PathAuxiliary: (lambda: PathAuxiliary(2), ising),
    Alternating: (
        lambda: Alternating(
            BlockGibbs(), TemperedTransitions(BlockGibbs(), tempered, LADDER), every=2
        ),
        rbm,
    ),
    BlockGibbs: (BlockGibbs, rbm),
    ExactHamiltonian: (ExactHamiltonian, nonnegative),
    MixtureGibbs: (MixtureGibbs, mixture),
    GaussianGibbs: (GaussianGibbs, gaussian),
    Gibbs: (Gibbs, ising),
    GibbsWithGradients: (GibbsWithGradients, ising),
    Houdayer: (lambda: Houdayer(Gibbs()), ising),
    ParallelTempering: (lambda: ParallelTempering(BlockGibbs(), tempered, LADDER), rbm),
    MixedGibbs: (MixedGibbs, mixed),
    PerturbAndMap: (lambda: PerturbAndMap(MaxProduct(5, None, 0.5, parallel=True)), ising),
    RectifiedGibbs: (RectifiedGibbs, nonnegative),
    ReflectiveHamiltonian: (ReflectiveHamiltonian, nonnegative),
    SwendsenWang: (SwendsenWang, ising),
    TemperedTransitions: (lambda: TemperedTransitions(BlockGibbs(), tempered, LADDER), rbm),
    Wolff: (Wolff, ising),
}


def test_every_kernel_is_here():
    exported = {getattr(undirected.sampling, name) for name in undirected.sampling.__all__}
    assert {a for a in exported if isinstance(a, type) and hasattr(a, "step")} == set(KERNELS)


SOME_KERNELS = [BlockGibbs, Gibbs, ParallelTempering, PerturbAndMap]


@pytest.mark.parametrize("kind", mostly_slow(KERNELS, SOME_KERNELS), ids=lambda k: k.__name__)
def test_chains(kind):
    make, model = KERNELS[kind]
    check(
        lambda seed: run_chains(
            make(), model(seed), None, jax.random.key(seed), samples=4, chains=3, burn_in=2
        )
    )


@pytest.mark.slow
def test_a_training_path_is_data():
    pt = ParallelTempering(BlockGibbs(), TrainingPath.along, LADDER)
    check(
        lambda seed: run_chains(
            pt,
            TrainingPath.through([rbm(seed), rbm(seed + 1)]),
            None,
            jax.random.key(seed),
            samples=4,
            chains=3,
        )
    )


def test_perturbed_beliefs():
    check(lambda seed: PerturbAndMap(MaxProduct(), samples=4)(ising(seed), jax.random.key(seed)))


def rows(seed: int) -> np.ndarray:
    return binary(seed, 12, 4)


def pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    return binary(seed, 12, 2), rows(seed)


def scheduled() -> Scheduled:
    return Scheduled(lambda step: TwoPhase(MeanField(5 + step, None)))


FITS: dict[str, tuple[Callable[[], Any], Callable[[int], Any], Callable[[int], Any]]] = {
    "conditional": (lambda: Conditional(TwoPhase(SumProduct(5, None))), conditional, pairs),
    "contrastive divergence": (lambda: ContrastiveDivergence(BlockGibbs()), rbm, rows),
    "ensemble": (
        lambda: Ensemble(PseudoLikelihood(), rates=[1.0, 0.5]),
        lambda seed: stack([rbm(seed), rbm(seed + 1)]),
        rows,
    ),
    "importance": (lambda: ImportanceSampled(BlockGibbs(), 10, 10), rbm, rows),
    "max margin": (lambda: MaxMargin(MixedProduct(5)), rbm, rows),
    "perceptron": (lambda: PerceptronLoss(BlockGibbs()), rbm, rows),
    "persistent": (lambda: Persistent(BlockGibbs(), 5), rbm, rows),
    "pseudo-likelihood": (PseudoLikelihood, rbm, rows),
    "query training": (
        lambda: QueryTraining(MaskQueries(np.eye(4, dtype=bool))),
        lambda seed: QueryNetwork(rbm(seed), jnp.asarray(1.0), layers=3),
        rows,
    ),
    "scheduled": (scheduled, rbm, rows),
    "two-phase": (lambda: TwoPhase(Exact()), rbm, rows),
}


@pytest.mark.parametrize(
    "name", mostly_slow(FITS, ["conditional", "persistent", "query training", "two-phase"])
)
def test_learning(name):
    """With the optimiser and the transform made anew, and a validation between."""
    make, model, data = FITS[name]

    def learn(seed: int) -> Any:
        def keep(batch: Any, key: Any) -> Any:
            return jax.tree.map(lambda leaf: 1.0 * leaf, batch)

        def validate(model: Any, key: Any) -> float:
            known = isinstance(model, RBM) and model.weights.ndim == 2
            return pseudo_log_likelihood(model, rows(seed)).mean if known else 0.0

        optimiser = optax.chain(
            optax.clip_by_global_norm(1.0), optax.adam(hold_then_decay(0.01, 3, 2.0))
        )
        batches = Batches(data(seed), 4, seed=seed, transform=keep)
        key = jax.random.key(seed)
        settings = {"steps": 4, "log_every": 2, "validate": validate}
        return fit(model(seed), make(), optimiser, batches, key, **settings).model

    check(learn)


@pytest.mark.slow  # the keys of these are tested beside `learning/structure.py`
@pytest.mark.parametrize(
    "optimiser",
    [
        lambda: optax.sgd(0.1, momentum=0.9),
        lambda: optax.adamw(optax.cosine_decay_schedule(0.1, 10), weight_decay=0.1),
        lambda: optax.inject_hyperparams(optax.rmsprop)(learning_rate=0.01),
        lambda: optax.multi_transform(
            {"slow": optax.sgd(0.01), "fast": optax.lion(0.1)}, lambda m: jax.tree.map(_speed, m)
        ),
    ],
    ids=["sgd", "adamw", "injected", "several"],
)
def test_optimisers_made_anew(optimiser):
    def learn(seed: int) -> Any:
        batches = Batches(rows(seed), 4)
        key = jax.random.key(seed)
        return fit(rbm(seed), PseudoLikelihood(), optimiser(), batches, key, steps=2).model

    check(learn)


@pytest.mark.parametrize("method", [pytest.param("auto", marks=pytest.mark.slow), "query-training"])
def test_tables(method):
    """The whole way from a table to a model, validation included."""

    def learn(seed: int) -> Any:
        settings = un.Settings(hidden=3, epochs=2, method=method, seed=seed, components=2)
        return un.train_table(binary(seed, 60, 4), settings).model

    check(learn)


def _speed(leaf: jax.Array) -> str:
    return "slow" if leaf.ndim == 2 else "fast"


def test_log_partition_and_likelihood():
    def path(seed: int) -> ModelPath:
        model = rbm(seed)
        return ModelPath(model.independent(jnp.full(4, 0.3)), model)

    settings = {"chains": 5, "betas": 40}
    check(lambda seed: ais(path(seed), BlockGibbs(), jax.random.key(seed), **settings).samples)
    check(
        lambda seed: bracket(path(seed), BlockGibbs(), jax.random.key(seed), **settings).lower.log_z
    )
    check(lambda seed: log_likelihood(rbm(seed), rows(seed), 3.0).mean)
    check(lambda seed: pseudo_log_likelihood(rbm(seed), rows(seed)).mean)
    check(lambda seed: reconstruction_error(rbm(seed), rows(seed)).mean)
