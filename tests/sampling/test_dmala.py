"""Langevin moves, plain, any-scale and of several tries: exact transitions, broken twins."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import mostly_slow
from tests.sampling import cases
from tests.sampling.kernels import one_step_p_value, step
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.potentials import clamp
from undirected.models import FactorGraph, Ising
from undirected.sampling import AnyScale, DiscreteLangevin, MultipleTry, run_chains
from undirected.sampling.adjusted import place
from undirected.sampling.dmala import BALANCES, log_proposal, roughness

NAMES = ["rbm", "labelled rbm", "dense", "path", "labelled lateral"]


@dataclass(frozen=True)
class Unadjusted(DiscreteLangevin):
    """Broken: every proposal is accepted."""

    def log_ratio(self, p, here, there, free, numbers):
        return jnp.zeros(len(here.x), here.x.dtype)


@dataclass(frozen=True)
class OneWay(DiscreteLangevin):
    """Broken: the way back is taken for as likely as the way there."""

    def log_ratio(self, p, here, there, free, numbers):
        away, back = (self.odds(p.layout, at, numbers) for at in (here, there))
        way = log_proposal(p.layout, away, there.x, free)
        way = way - log_proposal(p.layout, back, here.x, free)
        return super().log_ratio(p, here, there, free, numbers) + way


@dataclass(frozen=True)
class HalfBack(AnyScale):
    """Broken: the way back is weighed with half the slope whatever the balance."""

    def log_ratio(self, p, here, there, free, numbers):
        right = super().log_ratio(p, here, there, free, numbers)
        half = numbers | {"balance": jnp.asarray(0.5)}
        back, wrong = (
            log_proposal(p.layout, self.odds(p.layout, there, n), here.x, free)
            for n in (numbers, half)
        )
        return right - back + wrong


@dataclass(frozen=True)
class Greedy(MultipleTry):
    """Broken: what is picked is accepted."""

    def log_accept(self, there, back):
        return jnp.zeros_like(there[0])


@dataclass(frozen=True)
class Forgetful(MultipleTry):
    """Broken: the way back is weighed without the state that was left."""

    def log_accept(self, there, back):
        return super().log_accept(there, back.at[0].set(back[1]))


@eqx.filter_jit
def _moves(kernel, p, x, moved, free):
    numbers, here, there = kernel.numbers(p), place(p, x), place(p, moved)
    odds = kernel.odds(p.layout, here, numbers)
    proposed = log_proposal(p.layout, odds, moved, free)
    return proposed, kernel.log_ratio(p, here, there, free, numbers)


def all_moves(kernel, p, states, free=None):
    """Q[start, end], and the log ratio of every proposal."""
    S, n = states.shape
    free = np.ones((S * S, n), bool) if free is None else np.broadcast_to(free, (S * S, n))
    x, moved = np.repeat(states, S, 0), np.tile(states, (S, 1))
    there, ratio = (np.asarray(a) for a in _moves(kernel, p, *map(jnp.asarray, (x, moved, free))))
    proposed = np.exp(there).reshape(S, S)
    np.testing.assert_allclose(proposed.sum(1), 1, atol=1e-10)
    return proposed, ratio.reshape(S, S)


def exact_matrix(kernel, p, states, free=None):
    """P[start, end]: proposed and accepted, or else nothing happens."""
    proposed, ratio = all_moves(kernel, p, states, free)
    if isinstance(kernel, MultipleTry):
        return two_tries(kernel, proposed, 0.5 * ratio)
    return with_rest(proposed * np.exp(np.minimum(ratio, 0)))


def with_rest(matrix):
    """What is not accepted stays where it is."""
    matrix = matrix.copy()
    matrix[np.arange(len(matrix)), np.arange(len(matrix))] += 1 - matrix.sum(1)
    return matrix


def two_tries(kernel, proposed, weights):
    """P[x, y] of two tries: over the try not picked, and the other one of the way back."""
    assert kernel.tries == 2
    S = len(proposed)
    matrix = np.zeros((S, S))
    for x in range(S):
        y, other, back = np.indices((S, S, S))
        chance = proposed[x, other] * proposed[y, back]
        picked = 1 / (1 + np.exp(weights[x, other] - weights[x, y]))
        there = jnp.asarray(np.stack([weights[x, y], weights[x, other]]))
        ratio = kernel.log_accept(there, jnp.asarray(np.stack([weights[y, x], weights[y, back]])))
        accepted = np.exp(np.minimum(np.asarray(ratio), 0))
        matrix[x] = 2 * proposed[x] * (chance * picked * accepted).sum((1, 2))
    return with_rest(matrix)


def fitted(kernel, case):
    """With a diagonal of the model's size where the kernel has one."""
    if not isinstance(kernel, AnyScale):
        return kernel
    variables = len(case.model.layout.variables)
    return replace(kernel, diagonal=tuple(np.linspace(0.3, 1.7, variables).tolist()))


RIGHT = [
    *((DiscreteLangevin(size), name) for size in (0.2, 2.0) for name in NAMES),
    *((AnyScale(0.7, 0.8), name) for name in NAMES),
    (MultipleTry(2.0, tries=2), "rbm"),
]
WRONG = [
    *((kernel, name) for kernel in (Unadjusted(2.0), OneWay(2.0)) for name in NAMES[1:3]),
    *((HalfBack(2.0, 0.9), name) for name in NAMES[1:3]),
    *((kernel(2.0, tries=2), "rbm") for kernel in (Greedy, Forgetful)),
]


@pytest.mark.parametrize(("kernel", "name"), RIGHT, ids=str)
def test_transition_matrix_is_reversible(x64, kernel, name):
    case = cases.make(name)
    matrix = exact_matrix(fitted(kernel, case), case.model.lower(), case.truth.states)
    assert (matrix > 0).all()
    flow = case.truth.probabilities[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)


@pytest.mark.parametrize(("broken", "name"), WRONG, ids=str)
def test_transition_matrix_of_broken_kernels_moves_the_truth(x64, name, broken):
    case = cases.make(name)
    pi = case.truth.probabilities
    moved = pi @ exact_matrix(fitted(broken, case), case.model.lower(), case.truth.states)
    assert np.abs(moved - pi).max() > 1e-3


@pytest.mark.parametrize(
    "kernel", [DiscreteLangevin(), AnyScale(0.5, 0.7), MultipleTry(1.0, tries=2)], ids=str
)
def test_held_units_stay_and_the_conditional_is_invariant(x64, kernel):
    case = cases.make("labelled rbm")
    held = np.zeros(case.model.layout.n, bool)
    held[[0, -1]] = True
    given = case.truth.given(held, case.truth.states[-1])
    matrix = exact_matrix(fitted(kernel, case), case.model.lower(), given.states, ~held)
    np.testing.assert_allclose(given.probabilities @ matrix, given.probabilities, atol=1e-12)


PAIRS = [
    (DiscreteLangevin(2.0, updates=3), Unadjusted(2.0, updates=3)),
    (AnyScale(2.0, 0.9, updates=3), HalfBack(2.0, 0.9, updates=3)),
    (MultipleTry(2.0, tries=3, updates=3), Greedy(2.0, tries=3, updates=3)),
]


@pytest.mark.parametrize(("kernel", "broken"), PAIRS, ids=str)
@pytest.mark.parametrize("name", ["labelled rbm", "dense"])
def test_compiled_steps_keep_draws_from_the_truth(name, kernel, broken):
    """Fails by chance once in 10^5 runs a case; the broken kernel must fail."""
    case = cases.make(name)
    assert one_step_p_value(fitted(kernel, case), case) > cases.RATE
    assert one_step_p_value(fitted(broken, case), case) < cases.RATE


def test_one_try_of_several_is_the_plain_kernel(x64):
    """One try picked: the weights of both ways are roots of the ratio and of its inverse."""
    case = cases.make("labelled rbm")
    p = case.model.lower()
    here = place(p, jnp.asarray(case.truth.states))
    free, key = jnp.ones(here.x.shape, bool), jax.random.key(3)
    kernel = MultipleTry(2.0, tries=1)
    there, ratio = kernel.move(p, here, free, key, kernel.numbers(p))
    want = DiscreteLangevin(2.0).log_ratio(p, here, there, free, kernel.numbers(p))
    np.testing.assert_allclose(ratio, want, atol=1e-12)


def test_evidence_in_potentials_is_obeyed(x64):
    case = cases.make("dense")
    held = np.array([True, False, False, False, False])
    p = clamp(case.model.lower(), jnp.asarray(held), jnp.ones(5))
    model = FactorGraph(p.unary, p.factors, p.offset, p.layout)
    model = eqx.tree_at(lambda m: m.unary, model, p.fields)
    x = np.concatenate([np.zeros((50, 1)), np.ones((50, 4))], 1)
    kernel = DiscreteLangevin(updates=20)
    state, _ = step(kernel, model, x, np.ones(5, bool), jax.random.key(0))
    assert (np.asarray(state.x)[:, 0] == 1).all()


def uneven(n=30):
    """Half of the units coupled strongly with each other, the others not at all."""
    rng = np.random.default_rng(5)
    weight, bias = rng.normal(size=(n, n)), rng.normal(size=n)
    weight[n // 2 :] = weight[:, n // 2 :] = 0
    return Ising(jnp.asarray(weight), jnp.asarray(bias))


@pytest.mark.parametrize(
    "kernel",
    mostly_slow([DiscreteLangevin(5.0), AnyScale(5.0), MultipleTry(5.0)], [DiscreteLangevin(5.0)]),
    ids=str,
)
def test_adapted_kernels_are_accepted_as_often_as_asked(kernel):
    model = uneven()
    start = jnp.zeros((64, 30))
    before = run_chains(kernel, model, start, samples=50, seed=1)
    tuned, state = kernel.adapted(model, start, jax.random.key(0), target=0.7, steps=400)
    after = run_chains(tuned, model, state, samples=200, seed=1)
    assert float(before.info["accepted"].mean()) < 0.6
    assert abs(float(after.info["accepted"].mean()) - 0.7) < 0.03
    if isinstance(tuned, AnyScale):
        diagonal = np.array(tuned.diagonal)
        assert diagonal[:15].min() > 2 * diagonal[15:].max()


def test_the_diagonal_follows_the_couplings():
    """The root of the sum of squared couplings, from 256 random states: within 20 %."""
    rng = np.random.default_rng(6)
    weight = rng.normal(size=(12, 12)) * np.linspace(0.5, 2, 12)[:, None]
    model = Ising(jnp.asarray(weight), jnp.zeros(12))
    found = roughness(model, jnp.zeros((3, 12)), jnp.ones(12, bool), jax.random.key(0))
    both = 0.5 * (weight + weight.T)
    np.fill_diagonal(both, 0)
    wanted = np.sqrt((both**2).sum(0))
    np.testing.assert_allclose(found, wanted / np.median(wanted), rtol=0.2)
    assert wanted.max() > 1.5 * wanted.min()


def test_held_units_stay_in_adaptation():
    model, free = uneven(), np.arange(30) % 2 == 0
    kernel = AnyScale(5.0)
    _, state = kernel.adapted(model, jnp.zeros((8, 30)), jax.random.key(0), steps=20, free=free)
    assert (np.asarray(state.x)[:, ~free] == 0).all()
    assert (np.asarray(state.x)[:, free] != 0).any()


def test_all_balances_that_adaptation_tries_are_allowed():
    assert list(BALANCES) == sorted(BALANCES)
    assert [AnyScale(balance=one).balance for one in BALANCES] == list(BALANCES)


def test_refusals_say_what_is_wrong():
    with pytest.raises(UndirectedError, match="DiscreteLangevin: step_size is 0"):
        DiscreteLangevin(0.0)
    with pytest.raises(UndirectedError, match="updates is 0; pass a whole number from 1"):
        DiscreteLangevin(updates=0)
    with pytest.raises(UndirectedError, match=r"balance is 1\.5"):
        AnyScale(balance=1.5)
    with pytest.raises(UndirectedError, match="tries is 0"):
        MultipleTry(tries=0)
    with pytest.raises(UndirectedError, match=r"tries is 1\.5; pass a whole number"):
        MultipleTry(tries=1.5)
    with pytest.raises(UndirectedError, match="step_size is 'small'; pass a number above 0"):
        DiscreteLangevin("small")
    with pytest.raises(UndirectedError, match="updates is nan; pass a whole number"):
        AnyScale(updates=np.nan)
    case, key = cases.make("dense"), jax.random.key(0)
    with pytest.raises(UndirectedError, match=r"diagonal has 2 entries, the model 5"):
        step(AnyScale(diagonal=(1.0, 1.0)), case.model, np.zeros((3, 5)), np.ones(5, bool), key)
    with pytest.raises(UndirectedError, match="1 steps to a share"):
        DiscreteLangevin().adapted(case.model, jnp.zeros((2, 5)), key, steps=1)
    with pytest.raises(UndirectedError, match=r"shape \(3,\).*5"):
        DiscreteLangevin().init(case.model, jnp.zeros(3), key)
    with pytest.raises(UnsupportedFactor, match="int does not lower"):
        DiscreteLangevin().init(3, jnp.zeros(3), key)
    assert DiscreteLangevin().reversed() == DiscreteLangevin()
