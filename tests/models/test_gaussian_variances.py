"""The Gaussian RBM with learned variances: energies, sampling, log Z by AIS."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from tests import oracle
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.potentials import inner, statistics
from undirected.evaluation import bracket
from undirected.inference import TAP
from undirected.io.model_files import load_model, save_model
from undirected.learning import ContrastiveDivergence, TwoPhase
from undirected.models import RBM, GaussianRBM, ModelPath
from undirected.sampling import BlockGibbs, ChainState, GaussianGibbs, GibbsWithGradients

RATE = 1e-5


def make(V=3, H=2, seed=0, scale=0.8):
    rng = np.random.default_rng(seed)
    w, b, c = scale * rng.normal(size=(V, H)), rng.normal(size=V), rng.normal(size=H)
    log_variance = 0.5 * rng.normal(size=V)
    return GaussianRBM(*map(jnp.asarray, (w, b, c, log_variance))), (w, b, c, log_variance)


def hidden_log_weights(w, b, c, log_variance):
    """All hidden states and their log weights, the visibles integrated out."""
    h, s = oracle.binary_states(len(c)), np.exp(0.5 * log_variance)
    pull = h @ w.T
    log_weights = h @ c + pull @ (b / s) + 0.5 * (pull**2).sum(1)
    return h, log_weights + np.log(2 * np.pi) * len(b) / 2 + np.log(s).sum()


def test_energy_free_energy_and_lowering(x64):
    model, (w, b, c, log_variance) = make()
    rng, s = np.random.default_rng(1), np.exp(0.5 * log_variance)
    v, h = rng.normal(size=3), oracle.binary_states(2)
    wanted = 0.5 * (((v - b) / s) ** 2).sum() - h @ c - h @ ((v / s) @ w)
    x = jnp.asarray(np.concatenate([np.tile(v, (4, 1)), h], 1))
    np.testing.assert_allclose(model.energy(x), wanted, atol=1e-12)
    p = model.lower()
    lowered = jnp.stack([inner(p, statistics(p, row)) for row in x])
    np.testing.assert_allclose(-lowered, wanted, atol=1e-12)
    np.testing.assert_allclose(model.free_energy(x[0, :3]), -logsumexp(-wanted), atol=1e-12)
    odds = (wanted[0] - wanted[[2, 1]]).tolist()
    np.testing.assert_allclose(model.conditional(1, x[0]), odds, atol=1e-12)
    fixed = GaussianRBM(*map(jnp.asarray, (w, b, c)))
    one = GaussianRBM(*map(jnp.asarray, (w, b, c, np.zeros(3))))
    np.testing.assert_allclose(fixed.energy(x), one.energy(x), atol=1e-12)


@dataclasses.dataclass(frozen=True)
class Narrow(GaussianGibbs):
    """Broken: the visibles are drawn with too little noise."""

    def step(self, model, state, free, key):
        after, info = super().step(model, state, free, key)
        mean, _ = model.visible_given(after.x[..., 3:])
        v = mean + 0.7 * (after.x[..., :3] - mean)
        return ChainState(jnp.concatenate([v, after.x[..., 3:]], -1)), info


def p_values(kernel, chains=20_000):
    """Fit of the hidden states (chi-square) and of the first visible (Kolmogorov-Smirnov)."""
    model, parts = make()
    h, log_weights = hidden_log_weights(*parts)
    p = np.exp(log_weights - logsumexp(log_weights))
    state = kernel.init(model, jnp.zeros((chains, 5)), jax.random.key(0))
    free = jnp.ones(5, bool)

    def move(i, state):
        return kernel.step(model, state, free, jax.random.fold_in(jax.random.key(1), i))[0]

    x = np.asarray(jax.jit(lambda s: jax.lax.fori_loop(0, 30, move, s))(state).x)
    counts = np.bincount((x[:, 3:] @ [2, 1]).astype(int), minlength=4)
    w, b, _, log_variance = parts
    s = np.exp(0.5 * log_variance[0])
    centres = b[0] + s * (h @ w[0])

    def cdf(v):
        return (p * stats.norm.cdf(v[:, None], centres, s)).sum(1)

    return stats.chisquare(counts, p * chains).pvalue, stats.kstest(x[:, 0], cdf).pvalue


@pytest.mark.slow
def test_gibbs_follows_the_model(x64):
    assert min(p_values(GaussianGibbs())) > RATE
    assert min(p_values(GaussianGibbs().reversed())) > RATE
    assert min(p_values(Narrow())) < RATE


def test_clamped_units_stay(x64):
    model, _ = make()
    free = jnp.array([True, False, True, False, True])
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 5)))
    kernel = GaussianGibbs(sweeps=2)
    after, _ = kernel.step(model, kernel.init(model, x, jax.random.key(0)), free, jax.random.key(1))
    np.testing.assert_array_equal(after.x[:, ~free], x[:, ~free])
    assert (after.x[:, free] != x[:, free]).any()


def test_log_z_by_annealing():
    """Both directions hold the exact log Z at 99 %; a kernel of another model does not."""
    model, parts = make(6, 8, seed=3, scale=0.5)
    model = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    exact = logsumexp(hidden_log_weights(*parts)[1])
    path = ModelPath(model.independent(jnp.zeros(6), jnp.full(6, 2.0)), model)
    found = bracket(path, GaussianGibbs(), jax.random.key(0), chains=200, betas=300)
    assert found.interval[0] <= exact <= found.interval[1]
    assert found.interval[1] - found.interval[0] < 1
    assert abs(found.lower.log_z - exact) < 0.2
    assert abs(found.upper.log_z - exact) < 0.2
    assert abs(found.lower.log_z + 0.5 * np.log(2) * 6 - exact) > 1  # another base's log Z


def test_contrastive_divergence_takes_it():
    """A finite loss, and a gradient for every variance."""
    model, _ = make()
    v = jnp.asarray(np.random.default_rng(5).normal(size=(6, 3)), jnp.float32)
    model = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    objective = ContrastiveDivergence(GaussianGibbs())
    loss = jax.jit(jax.value_and_grad(lambda m: objective(m, v, None, jax.random.key(0))[0]))
    value, gradient = loss(model)
    assert np.isfinite(float(value))
    assert (np.asarray(gradient.log_variance) != 0).all()


def test_two_phase_learning_takes_it(x64):
    """Without couplings TAP is exact, and the gradient is that of the likelihood."""
    _, parts = make(scale=0.0)
    v = np.random.default_rng(6).normal(size=(4, 3))

    def loss(flat):
        w, b, c, log_variance = np.split(flat, np.cumsum([6, 3, 2]))
        w, s = w.reshape(3, 2), np.exp(0.5 * log_variance)
        free = 0.5 * (((v - b) / s) ** 2).sum(1) - np.logaddexp(0, v / s @ w + c).sum(1)
        return free.mean() + logsumexp(hidden_log_weights(w, b, c, log_variance)[1])

    model, objective = GaussianRBM(*map(jnp.asarray, parts)), TwoPhase(TAP())
    objective.init(model, jnp.asarray(v), jax.random.key(0))
    slope = jax.grad(lambda m: objective(m, jnp.asarray(v), None, jax.random.key(0))[0])(model)
    found = np.concatenate([np.ravel(a) for a in jax.tree.leaves(slope)])
    wanted = oracle.finite_difference(loss, np.concatenate([np.ravel(a) for a in parts]))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    with pytest.raises(UnsupportedFactor, match="'visible' is real"):
        TwoPhase(TAP(), TAP()).init(model, jnp.asarray(v), jax.random.key(0))


def test_files_and_refusals(tmp_path):
    model = GaussianRBM.create(4, 3, jax.random.key(0), learn_variance=True)
    save_model(tmp_path / "model", model)
    back = load_model(tmp_path / "model")
    np.testing.assert_array_equal(back.log_variance, model.log_variance)
    with pytest.raises(UnsupportedFactor, match="GaussianGibbs"):
        model.conditional(0, jnp.zeros(7))
    with pytest.raises(UnsupportedFactor):
        BlockGibbs().step(
            model, ChainState(jnp.zeros((1, 7))), jnp.ones(7, bool), jax.random.key(0)
        )
    with pytest.raises(UnsupportedFactor, match="'visible' is real"):
        GibbsWithGradients().init(model, jnp.zeros((1, 7)), jax.random.key(0))
    with pytest.raises(UnsupportedFactor, match="RBM has no real visible units; use BlockGibbs"):
        GaussianGibbs().init(RBM.create(2, 1, jax.random.key(0)), jnp.zeros(3), jax.random.key(0))
    with pytest.raises(UndirectedError, match="one entry for each"):
        GaussianRBM(jnp.zeros((2, 3)), jnp.zeros(2), jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(UndirectedError, match="fixed at one"):
        GaussianRBM.create(2, 2, jax.random.key(0)).independent(variances=jnp.ones(2))
