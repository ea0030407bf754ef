"""Conditional models: their RBMs, marginal MAP, and their learners against the oracle."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import oracle
from tests.zoo import CASES
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.potentials import clamp
from undirected.inference import Exact, MeanField, MixedProduct, SumProduct, predict
from undirected.learning import (
    Batches,
    Conditional,
    ContrastiveDivergence,
    MaxMargin,
    PerceptronLoss,
    Persistent,
    Scheduled,
    TwoPhase,
    fit,
)
from undirected.models import RBM, ConditionalRBM, DeepBM, SemiRestrictedBM
from undirected.sampling import BlockGibbs, ChainState

pytestmark = pytest.mark.usefixtures("x64")
SHAPES = {
    "weights": (3, 2),
    "visible_features": (3, 4),
    "hidden_features": (2, 4),
    "visible_bias": (3,),
    "hidden_bias": (2,),
}


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def model_of(arrays):
    return ConditionalRBM(**{name: jnp.asarray(a) for name, a in arrays.items()})


def pairs(rows=5, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 4)), rng.integers(0, 2, (rows, 3)).astype(float)


def truth_at(arrays, x):
    """The joint distribution over (v, h) given features (crbm-bp, eq. 2), enumerated."""
    return oracle.rbm(
        arrays["weights"],
        arrays["visible_bias"] + arrays["visible_features"] @ x,
        arrays["hidden_bias"] + arrays["hidden_features"] @ x,
    )


def scores(truth, hidden):
    """s(v) of every visible state: log sum_h or max_h of -E."""
    if hidden == "sum":
        return oracle.visible_marginal(truth, 3)
    best = {}
    for state, weight in zip(truth.states, truth.log_weights, strict=True):
        v = tuple(state[:3].astype(int).tolist())
        best[v] = max(weight, best.get(v, -np.inf))
    return best


def assert_gradient(objective, value, seed=0):
    """The objective's gradient is that of `value(arrays, x, v)`, averaged over rows."""
    arrays, (x, v) = parameters(seed), pairs()
    batch = jnp.asarray(x), jnp.asarray(v)

    def loss(model):
        return Conditional(objective)(model, batch, None, jax.random.key(0))[0]

    gradient = eqx.filter_grad(loss)(model_of(arrays))
    for name in SHAPES:

        def at(a, name=name):
            changed = {**arrays, name: a}
            return np.mean([value(changed, *row) for row in zip(x, v, strict=True)])

        want = oracle.finite_difference(at, arrays[name])
        assert np.allclose(getattr(gradient, name), want, atol=1e-6), name


def negative_log_likelihood(arrays, x, v):
    truth = truth_at(arrays, x)
    return truth.log_z - scores(truth, "sum")[tuple(v.astype(int))]


def margin(hidden):
    def value(arrays, x, v):
        s = scores(truth_at(arrays, x), hidden)
        rival = max(np.abs(np.array(u) - v).sum() + level for u, level in s.items())
        return rival - s[tuple(v.astype(int))]

    return value


class MarginalMap:
    """Marginal MAP by enumeration inside JAX, so that max-margin learning can be exact."""

    def __call__(self, p, key):
        states = jnp.asarray(oracle.binary_states(3))
        weight = p.factors[0].weight
        level = states @ p.unary[:3] + jax.nn.softplus(states @ weight + p.unary[3:][None]).sum(1)
        best = states[jnp.argmax(level)]
        return SumProduct(1, None)(
            eqx.tree_at(lambda q: q.unary, p, p.unary.at[:3].set(jnp.where(best > 0, 1e9, -1e9)))
        )


def test_at_is_the_energy_of_the_paper():
    arrays, (x, _) = parameters(), pairs()
    truth = truth_at(arrays, x[0])
    rbm = model_of(arrays).at(jnp.asarray(x[0]))
    assert np.allclose(-rbm.energy(jnp.asarray(truth.states)), truth.log_weights)


def test_likelihood_gradient_with_exact_inference():
    assert_gradient(TwoPhase(Exact()), negative_log_likelihood)


def test_missing_targets_are_marginalised():
    arrays, (x, v) = parameters(), pairs()
    v[:, 1] = np.nan
    loss, _ = Conditional(TwoPhase(Exact(), Exact()))(
        model_of(arrays), (jnp.asarray(x), jnp.asarray(v)), None, jax.random.key(0)
    )
    assert np.isfinite(float(loss))

    def value(weights):
        total = 0.0
        for row, target in zip(x, np.nan_to_num(v), strict=True):
            truth = truth_at({**arrays, "weights": weights}, row)
            mask = np.array([True, False, True, False, False])
            seen = truth.given(mask, np.concatenate([target, [0, 0]]))
            total += truth.log_z - seen.log_z
        return total / len(x)

    def objective(model):
        batch = jnp.asarray(x), jnp.asarray(v)
        return Conditional(TwoPhase(Exact(), Exact()))(model, batch, None, jax.random.key(0))[0]

    gradient = eqx.filter_grad(objective)(model_of(arrays)).weights
    assert np.allclose(gradient, oracle.finite_difference(value, arrays["weights"]), atol=1e-6)


def test_max_margin_gradients_with_exact_inference():
    assert_gradient(MaxMargin(MarginalMap()), margin("sum"))
    assert_gradient(MaxMargin(Exact(0.0), hidden="max"), margin("max"))


@pytest.mark.parametrize(
    ("objective", "hidden"),
    [(MaxMargin(MarginalMap()), "sum"), (MaxMargin(Exact(0.0), hidden="max"), "max")],
)
def test_max_margin_reports_the_violation(objective, hidden):
    """The mean over rows of what enumeration says, as the loss and in the report."""
    arrays, (x, v) = parameters(), pairs()
    batch = jnp.asarray(x), jnp.asarray(v)
    loss, (_, info) = Conditional(objective)(model_of(arrays), batch, None, jax.random.key(0))
    each = [margin(hidden)(arrays, *row) for row in zip(x, v, strict=True)]
    assert np.mean(each) > 0.1
    assert float(loss) == pytest.approx(np.mean(each), abs=1e-6)
    assert float(info["violation"]) == pytest.approx(np.mean(each), abs=1e-6)


def test_max_margin_reports_the_share_of_units_that_the_rival_turns_over():
    """Without costs and couplings the rival is the sign of the biases."""
    bias = jnp.array([1.0, -1.0, 1.0])
    model = RBM(jnp.zeros((3, 2)), bias, jnp.zeros(2))
    rows = jnp.array([[1.0, 0, 1], [1, 1, 1], [0, 1, 1], [1, 0, 0]])
    free = MaxMargin(Exact(0.0), hidden="max", loss=lambda v: (0 * v, 0 * v))
    _, (_, info) = free(model, rows, None, jax.random.key(0))
    assert float(info["flipped"]) == pytest.approx((0 + 1 + 2 + 1) / 12)


def test_perceptron_loss_is_the_gap_to_the_best_state_met():
    """A long search on a tiny model meets every state, so the loss is exact."""

    def value(arrays, x, v):
        s = scores(truth_at(arrays, x), "sum")
        return max(s.values()) - s[tuple(v.astype(int))]

    assert_gradient(PerceptronLoss(BlockGibbs(), 300), value)


class Flip:
    """A kernel without chance: each step turns the next visible unit over."""

    def init(self, model, x, key):
        return ChainState(x)

    def step(self, model, state, free, key):
        turned = jnp.roll(state.x[..., :3], 1, axis=-1).at[..., 0].add(1) % 2
        return ChainState(state.x.at[..., :3].set(turned)), {}


@pytest.mark.parametrize("steps", [1, 2])
def test_perceptron_loss_from_the_data_compares_with_the_end_of_the_chain(steps):
    """Rows whose chain ends at a state of higher free energy than their own add nothing."""
    w, b, c = (np.random.default_rng(0).normal(size=shape) for shape in ((3, 2), 3, 2))
    table = oracle.visible_marginal(oracle.rbm(w, b, c), 3)
    rows = oracle.binary_states(3)
    ends = rows.copy()
    for _ in range(steps):
        ends = np.roll(ends, 1, axis=1)
        ends[:, 0] = (ends[:, 0] + 1) % 2

    def score(states):
        return np.array([table[tuple(row.astype(int).tolist())] for row in states])

    gaps = score(ends) - score(rows)
    assert (gaps > 0).any() and (gaps < 0).any()
    objective = PerceptronLoss(Flip(), steps, start="data")
    model = RBM(*map(jnp.asarray, (w, b, c)))
    loss, (_, info) = objective(model, jnp.asarray(rows), None, jax.random.key(0))
    assert float(loss) == pytest.approx(np.maximum(gaps, 0).mean(), abs=1e-6)
    assert float(info["beaten"]) == pytest.approx((gaps > 0).mean())
    with pytest.raises(UndirectedError, match="start is 'truth'; pass 'best' or 'data'"):
        PerceptronLoss(Flip(), steps, start="truth")


def test_perceptron_loss_never_meets_a_label_of_two_states():
    """All label units have positive biases, and still exactly one of them is on."""
    rng = np.random.default_rng(0)
    w, b, c = rng.normal(size=(5, 2)), np.array([0.3, -0.2, 1.0, 1.5, 2.0]), rng.normal(size=2)
    table = oracle.visible_marginal(oracle.rbm(w, b, c, 3), 5)
    v = np.array([[1.0, 0, 1, 0, 0], [0, 1, 0, 1, 0]])
    wanted = np.mean([max(table.values()) - table[tuple(r.astype(int).tolist())] for r in v])
    model = RBM(*map(jnp.asarray, (w, b, c)), 3)
    loss, _ = PerceptronLoss(BlockGibbs(), 300)(model, jnp.asarray(v), None, jax.random.key(0))
    assert float(loss) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.slow
def test_contrastive_divergence_runs_on_rows_of_their_own():
    x, v = pairs()
    loss, (_, info) = Conditional(ContrastiveDivergence(BlockGibbs(), 3))(
        model_of(parameters()), (jnp.asarray(x), jnp.asarray(v)), None, jax.random.key(0)
    )
    assert np.isfinite(float(loss))
    assert 0 <= float(info["flips"]) <= 1


@pytest.mark.slow
def test_contrastive_divergence_may_start_at_random():
    """From a long chain's end the start does not matter; after one step it does."""
    x, v = pairs(1)
    arrays = parameters()
    arrays["weights"] *= 6

    def loss(steps, start):
        objective = Conditional(ContrastiveDivergence(BlockGibbs(), steps, start=start))
        batch = jnp.asarray(x.repeat(4000, 0)), jnp.asarray(v.repeat(4000, 0))
        return float(objective(model_of(arrays), batch, None, jax.random.key(1))[0])

    at_data, at_random = loss(1, "data"), loss(1, "random")
    assert at_random - at_data > 0.5
    assert loss(60, "data") == pytest.approx(loss(60, "random"), abs=0.1)
    with pytest.raises(UndirectedError, match="pass 'data' or 'random'"):
        ContrastiveDivergence(BlockGibbs(), start="here")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seed", range(6))
def test_mixed_product_is_exact_on_trees(seed):
    """One hidden unit makes a star: marginal MAP by enumeration, and the means given it."""
    rng = np.random.default_rng(seed)
    weights, b, c = 3 * rng.normal(size=(6, 1)), rng.normal(size=6), rng.normal(size=1)
    table = oracle.visible_marginal(oracle.rbm(weights, b, c), 6)
    best = max(table, key=lambda v: table[v])
    beliefs = MixedProduct(50)(RBM(*map(jnp.asarray, (weights, b, c))).lower())
    assert float(beliefs.log_z) == pytest.approx(table[best], abs=1e-9)
    assert tuple(np.asarray(beliefs.unary[:6]).astype(int)) == best
    hidden = 1 / (1 + np.exp(-(c + np.array(best) @ weights)))
    assert np.allclose(beliefs.unary[6:], hidden)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("held", [0, 1])
def test_mixed_product_weighs_states_beside_a_hidden_unit_that_is_held(held, dtype):
    """The evidence of 1e9 does not hide the differences, in single precision either."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        weights, b, c = 2 * rng.normal(size=(4, 1)), rng.normal(size=4), rng.normal(size=1)
        model = RBM(*(jnp.asarray(a, dtype) for a in (weights, b, c)))
        p = clamp(model.lower(), jnp.arange(5) == 4, jnp.full(5, held, dtype))
        beliefs = MixedProduct(20)(p)
        best = (b + held * weights[:, 0] > 0).astype(float)
        assert np.array_equal(beliefs.unary[:4], best)
        wanted = b @ best + held * (c[0] + best @ weights[:, 0])
        assert float(beliefs.log_z) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0])
def test_mixed_product_follows_its_messages(scale):
    """Round by round the equations of Algorithm 1 with logarithms, also for steep weights."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        weights, b, c = (scale * rng.normal(size=s) for s in ((9, 35), (9,), (35,)))
        v = b > 0
        met = []
        for _ in range(4):
            field = c + v @ weights
            cavity = field[None, :] - weights * v[:, None]
            sent = np.logaddexp(0, cavity + weights) - np.logaddexp(0, cavity)
            met.append(v)
            v = b + sent.sum(1) > 0
        met.append(v)
        value = [np.where(v, b, 0).sum() + np.logaddexp(0, c + v @ weights).sum() for v in met]
        beliefs = MixedProduct(4)(RBM(*map(jnp.asarray, (weights, b, c))).lower())
        assert np.array_equal(beliefs.unary[:9], met[int(np.argmax(value))])
        assert float(beliefs.log_z) == pytest.approx(max(value), rel=1e-9)


def test_mixed_product_beats_greedy_search_on_average():
    """100 random 8 x 6 models: its -free energy is at least that of iterated conditional modes."""
    gap = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        model = RBM(*(jnp.asarray(rng.normal(size=s)) for s in ((8, 6), (8,), (6,))))
        ours = float(MixedProduct(50)(model.lower()).log_z)
        gap.append(ours + float(model.free_energy(jnp.asarray(_greedy(model)))))
    assert np.mean(gap) >= 0


def _greedy(model):
    weights, b, c = (np.asarray(a) for a in (model.weights, model.visible_bias, model.hidden_bias))
    v, h = (b > 0).astype(float), (c > 0).astype(float)
    for _ in range(100):
        v = (weights @ h + b > 0).astype(float)
        h = (weights.T @ v + c > 0).astype(float)
    return v


def test_mean_field_at_temperature_zero_is_greedy_search():
    """Iterated conditional modes, half by half: no half-step can do better at its end."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model = RBM(*(jnp.asarray(rng.normal(size=s)) for s in ((8, 6), (8,), (6,))))
        x = MeanField(50, temperature=0.0)(model.lower()).unary
        v, h = np.asarray(x[:8]), np.asarray(x[8:])
        assert set(np.unique(x)) <= {0.0, 1.0}
        assert np.array_equal(v, np.asarray(model.weights) @ h + model.visible_bias > 0)
        assert np.array_equal(h, v @ np.asarray(model.weights) + model.hidden_bias > 0)


def test_predictions_in_chunks_equal_those_at_once(key):
    model = model_of(parameters())
    x, _ = pairs(7)
    whole = predict(model, x, SumProduct(20, None), key)
    assert np.allclose(predict(model, x, SumProduct(20, None), key, budget=200), whole, atol=1e-6)
    exact = np.stack([truth_at(parameters(), row).means[:3] for row in x])
    assert np.allclose(predict(model, x, Exact(), key), exact, atol=1e-6)


def test_a_logistic_regression_is_the_model_without_hiddens(key):
    model = ConditionalRBM.create(3, 0, 4, key)
    x, v = (a.astype(np.float64) for a in pairs(200))
    v = (x[:, :3] > 0).astype(float)
    result = fit(
        model,
        Conditional(TwoPhase(SumProduct(1, None))),
        optax.adam(0.05),
        Batches((x, v), 50),
        key,
        epochs=30,
    )
    answer = predict(result.model, x, SumProduct(1, None), key) > 0.5
    assert (answer == v).mean() > 0.95


def test_a_schedule_sees_the_step(key):
    x, v = pairs(8)
    seen = []
    objective = Scheduled(lambda step: Conditional(TwoPhase(SumProduct(1 + step, 0.0))))
    fit(
        model_of(parameters()),
        objective,
        optax.sgd(0.0),
        Batches((x, v), 8),
        key,
        steps=4,
        log_every=1,
        on_event=lambda p: seen.append(p.metrics.get("iterations")),
    )
    assert seen[1:] == [1, 2, 3, 4]


def test_refusals(key):
    model = model_of(parameters())
    x, v = (jnp.asarray(a) for a in pairs())
    with pytest.raises(UndirectedError, match="keeps chains"):
        Conditional(Persistent(BlockGibbs())).init(model, (x, v), key)
    with pytest.raises(UndirectedError, match=r"features are \(5, 3\).*wants \(rows, 4\)"):
        Conditional(TwoPhase(Exact())).init(model, (v, x), key)
    with pytest.raises(UndirectedError, match=r"has no at\(x\)"):
        Conditional(TwoPhase(Exact())).init(RBM.create(3, 2, key), (x, v), key)
    with pytest.raises(UndirectedError, match="feature 2 of row 1 is nan"):
        predict(model, x.at[1, 2].set(jnp.nan), Exact(), key)
    with pytest.raises(UndirectedError, match=r"pass \(rows, 4\)"):
        predict(model, v, Exact(), key)
    with pytest.raises(UndirectedError, match="hidden_features are"):
        ConditionalRBM(**{**parameters(), "hidden_features": np.zeros((3, 4))})
    with pytest.raises(UndirectedError, match="iterations is 0"):
        MixedProduct(0)
    with pytest.raises(UndirectedError, match="hidden is 'mean'"):
        MaxMargin(MixedProduct(), hidden="mean")
    lateral = SemiRestrictedBM.create(2, 1, jax.random.key(0))
    with pytest.raises(UndirectedError, match="SemiRestrictedBM is no RBM"):
        MaxMargin(Exact(0.0), hidden="max").init(lateral, jnp.zeros((1, 2)), jax.random.key(0))
    deep = DeepBM.create((2, 1, 1), jax.random.key(0))
    with pytest.raises(UndirectedError, match="DeepBM has no free energy"):
        MaxMargin(Exact(0.0)).init(deep, jnp.zeros((1, 2)), jax.random.key(0))
    lattice = CASES["torus_ising"](0)[0].lower()
    with pytest.raises(UnsupportedFactor, match="mixed-product"):
        MixedProduct()(lattice)
