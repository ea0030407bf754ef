"""What two columns tell of each other, against enumeration and closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import undirected as un
from tests import oracle
from undirected.core.columns import Column, Schema
from undirected.tasks import dependences
from undirected.tasks.dependences import strongest_dependences

STATES = (2, 3, 2, 2)


def schema(*kinds):
    """Columns a, b, c ... of so many states, or of a kind."""
    columns = []
    for name, kind in zip("abcdefgh", kinds, strict=False):
        words = tuple(map(str, range(kind))) if isinstance(kind, int) else ()
        name_of = {2: "binary"}.get(kind, "category") if words else kind
        columns.append(Column(name, name_of, words))
    return Schema(tuple(columns))


def discrete(hidden, size, seed):
    """A model of columns with these states, and p of every joint state, by enumeration."""
    rng = np.random.default_rng(seed)
    kinds = ["binary" if s == 2 else s for s in STATES]
    model = un.MixedRBM.create(kinds, hidden, seed=0)
    W = rng.normal(0, size, model.weights.shape)
    b, c = -W.sum(1) / 2, -W[:3].sum(0) / 2 - W[3:].mean(0)  # all states are about as likely
    model = un.MixedRBM(
        *(jnp.asarray(a, jnp.float32) for a in (W, b, c)), model.log_variance, model.table
    )
    h, cells = oracle.binary_states(hidden), np.indices(STATES).reshape(len(STATES), -1).T
    # Units: the binary columns a, c, d in turn, then one for each state of b.
    units = np.hstack([cells[:, [0, 2, 3]], np.eye(3)[cells[:, 1]]])
    logs = logsumexp(units @ b[:, None] + (units @ W + c) @ h.T, axis=1)
    return model, np.exp(logs - logsumexp(logs)).reshape(STATES)


def given_others(p, i, k):
    """I(x_i; x_k | the others) in bits, and the covariance given them."""
    p = np.moveaxis(p, (i, k), (0, 1)).reshape(p.shape[i], p.shape[k], -1)
    both, first, second = p.sum((0, 1)), p.sum(1), p.sum(0)
    bits = (p * np.log2(p * both / (first[:, None] * second[None]))).sum()
    at = np.arange(2)
    apart = p[:2, :2] - (first[:, None] * second[None] / both)[:2, :2]
    return bits, np.einsum("ikr,i,k->", apart, at, at)


@pytest.mark.parametrize("hidden", [3, 12])
def test_bits_are_those_of_enumeration(hidden):
    """Enumerated hidden units, and more of them, whose samples are of chains.

    The mean over 64 contexts has an error of up to 15 % for bits of this size.
    """
    model, p = discrete(hidden, *((2.5, 5) if hidden == 3 else (1.2, 4)))
    found = {
        (pair.first, pair.second): pair.bits
        for pair in strongest_dependences(model, schema(*STATES))
    }
    assert len(found) == 6
    sizes = np.abs(list(found.values()))
    assert (np.diff(sizes) <= 0).all()
    for (first, second), bits in found.items():
        i, k = "abcd".index(first), "abcd".index(second)
        wanted, covariance = given_others(p, i, k)
        assert abs(bits) == pytest.approx(wanted, rel=0.2, abs=0.004)
        sign = 1 if "b" in (first, second) else np.sign(covariance)
        assert np.sign(bits) == sign


def normal(precision):
    """Real columns with this precision, and no hidden unit."""
    n = len(precision)
    root = np.linalg.cholesky(precision)
    own = np.diag(root)
    model = un.MixedRBM.create(["real"] * n, 0, seed=0)
    logs = -2 * np.log(own)
    lateral = np.tril(root / own[:, None], -1)
    return un.MixedRBM(
        model.weights,
        model.visible_bias,
        model.hidden_bias,
        jnp.asarray(logs, jnp.float32),
        model.table,
        jnp.asarray(lateral, jnp.float32),
    )


def test_bits_of_coupled_numbers_are_those_of_a_normal_vector():
    precision = np.array(
        [[2.0, -1.2, 0.5, 0.0], [-1.2, 2.0, 0.0, 0.0], [0.5, 0.0, 1.0, 0.4], [0.0, 0.0, 0.4, 1.0]]
    )
    found = {
        (p.first, p.second): p.bits
        for p in strongest_dependences(normal(precision), schema(*["real"] * 4))
    }
    spread = np.sqrt(np.diag(precision))
    partial = -precision / np.outer(spread, spread)
    for i, k in ((0, 1), (0, 2), (2, 3)):
        wanted = np.copysign(-0.5 * np.log2(1 - partial[i, k] ** 2), partial[i, k])
        assert found.pop(("abcd"[i], "abcd"[k])) == pytest.approx(wanted, rel=0.15)
    assert not found  # what is not coupled is not named


def test_a_strong_hidden_unit_does_not_count_more_than_a_bit():
    """Two columns that are always alike share a bit, however large the weights are."""
    model = un.MixedRBM.create(["binary", "binary", "binary"], 1, seed=0)
    for size in (8.0, 40.0):
        W = jnp.asarray([[size], [-size], [0.0]])
        model = un.MixedRBM(
            W,
            jnp.asarray([-size / 2, size / 2, 0.0]),
            jnp.zeros(1),
            model.log_variance,
            model.table,
        )
        (pair,) = strongest_dependences(model, schema(2, 2, 2))
        assert pair[:2] == ("a", "b")
        off = 1 / (1 + np.exp(size / 2))
        differ = np.array([2 * off * (1 - off), 1 - 2 * off * (1 - off)])
        assert pair.bits == pytest.approx(-1 + entropy(differ), abs=1e-3)


def entropy(p):
    """In bits."""
    return -(p * np.log2(p)).sum()


BINARY = {
    "ising": un.Ising(
        jnp.asarray([[0, 2.0, 0], [2.0, 0, 0], [0, 0, 0]]), jnp.asarray([-1.0, -1, 0])
    ),
    "rbm": un.RBM(jnp.asarray([[6.0], [6.0], [0.0]]), jnp.asarray([-3.0, -3.0, 0.0]), jnp.zeros(1)),
    "mixture": un.MixtureRBM.from_mixture(
        np.log([0.5, 0.5]), [[0.9, 0.8, 0.5], [0.1, 0.2, 0.5]], 2, scale=0.0
    ),
}


@pytest.mark.parametrize("name", BINARY)
def test_models_of_binary_columns(name):
    model = BINARY[name]
    x = oracle.binary_states(3)
    logs = -np.asarray(model.energy(x) if name == "ising" else model.free_energy(x), float)
    p = np.zeros((2, 2, 2))
    p[tuple(x.astype(int).T)] = np.exp(logs - logsumexp(logs))
    wanted, _ = given_others(p, 0, 1)
    (pair,) = strongest_dependences(model, schema(2, 2, 2))
    assert pair[:2] == ("a", "b")
    assert pair.bits == pytest.approx(wanted, rel=0.01)  # c tells nothing: one context is all


def test_a_model_whose_hidden_units_stay_gives_none():
    deep = un.DeepBM.create([3, 2, 2], seed=0)
    assert strongest_dependences(deep, schema(2, 2, 2)) == []
    assert strongest_dependences(un.Ising.create(1), schema(2)) == []


def test_columns_of_one_value_and_rare_states_do_no_harm():
    still = un.Ising(jnp.asarray([[0, 1.0], [1.0, 0]]), jnp.asarray([-60.0, 0.0]))
    assert strongest_dependences(still, schema(2, 2)) == []
    assert dependences._values(np.full(9, 0.5), is_discrete=False)[0] == pytest.approx([0.5])


def test_a_table_model_tells_them():
    rng = np.random.default_rng(0)
    a, c = rng.integers(0, 2, (2, 200))
    table = {"a": a, "b": np.where(rng.random(200) < 0.1, 1 - a, a), "c": c}
    model = un.fit_table(table, model="ising")
    first, *rest = model.dependences()
    assert first[:2] == ("a", "b")
    assert 0.2 < first.bits < 0.6  # 0.53 where one in ten is turned over
    assert all(abs(pair.bits) < 0.05 for pair in rest)
    assert model.notes["dependences"] == [list(pair) for pair in (first, *rest)]
    with pytest.raises(un.UndirectedError, match="dependences: a conditional model answers"):
        un.fit_table(table, given=["a"], epochs=2).dependences()
