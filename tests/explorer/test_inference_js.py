"""The inference of the page against the Python engine, on random models, to 1e-5."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import undirected as un
from tests.explorer.node import ask, evidence_of, needs_node, run_node
from tests.tasks import test_enumerated_coupled as coupled
from undirected.core.potentials import clamp, lowered
from undirected.explorer.payload import harmonium, network
from undirected.io.uai import UaiModel
from undirected.tasks.files import as_tables

pytestmark = [needs_node, pytest.mark.usefixtures("x64")]
CLOSE = {"atol": 1e-5, "rtol": 0}


def rbm(rng, V=7, H=5, label=0, scale=0.8):
    return un.RBM(
        jnp.asarray(rng.normal(0, scale, (V, H))),
        jnp.asarray(rng.normal(0, 0.5, V)),
        jnp.asarray(rng.normal(0, 0.5, H)),
        label,
    )


def mixed(rng, kinds, H=4):
    model = un.MixedRBM.create(kinds, H, seed=0)
    V, C = model.n_visible, len(model.log_variance)
    return un.MixedRBM(
        jnp.asarray(rng.normal(0, 0.6, (V, H))),
        jnp.asarray(rng.normal(0, 0.5, V)),
        jnp.asarray(rng.normal(0, 0.5, H)),
        jnp.asarray(rng.normal(-0.5, 0.3, C)),
        model.table,
    )


def mixture(rng, V=6, H=3, K=3):
    sizes = (V, H), (V, K), (V,), (H,), (K,)
    return un.MixtureRBM(*(jnp.asarray(rng.normal(0, 0.7, size)) for size in sizes))


ROWS = {
    "rbm": [np.nan, 1, np.nan, 0, np.nan, np.nan, np.nan],
    "open rbm": [np.nan] * 7,
    "label": [np.nan, 1, 0, np.nan, np.nan, np.nan, np.nan],
    "mixture": [np.nan, 1, np.nan, 0, np.nan, np.nan],
    "kinds": [1, np.nan, np.nan, 2, 0.3, np.nan, np.nan, 0.7],
    "lines": [np.nan, np.nan, -0.4, np.nan, 1.2],
}


def zoo(name):
    rng = np.random.default_rng(list(ROWS).index(name))
    if name == "label":
        return rbm(rng, 9, 4, 3)
    if name == "mixture":
        return mixture(rng)
    if name == "kinds":
        return mixed(rng, ["binary", "binary", 3, 3, "real", "real", "nonnegative", "nonnegative"])
    if name == "lines":
        return mixed(rng, ["binary", "real", "real", "nonnegative", "nonnegative"])
    return rbm(rng)


def unit_row(model, name):
    row = np.array(ROWS[name], float)
    if name == "label":  # six pixels, then a softmax unit of three states
        return np.concatenate([row[:6], np.full(3, np.nan)])
    return model.to_units(row[None])[0] if hasattr(model, "table") else row


def potentials(model, name):
    """The model's potentials with the row as evidence."""
    p, row = lowered("test", model), unit_row(model, name)
    full = np.concatenate([row, np.full(p.layout.n - len(row), np.nan)])
    known = ~np.isnan(full)
    return clamp(p, jnp.asarray(known), jnp.asarray(np.where(known, full, 0.0)))


def evidence(name):
    return evidence_of(np.array(ROWS[name], float))


ROUTINES = {
    "bp": un.SumProduct(2000, 1e-11),
    "mf": un.MeanField(5000, 1e-12),
    "tap": un.TAP(2, 5000, 1e-12),
}
OPTIONS = {"tolerance": 1e-11, "iterations": 5000}


QUICK = ("rbm",)
"""Models that `make test` puts before the compiled engine; the others are for `make slow`."""


def cases():
    for name, method in itertools.product(ROWS, ROUTINES):
        if method != "tap" or name in ("rbm", "open rbm"):
            yield name, method


def marked():
    for name, method in cases():
        yield pytest.param(name, method, marks=[] if name in QUICK else pytest.mark.slow)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """All questions to node at once, before any test."""
    questions, names = [], []
    with jax.enable_x64(True):
        payloads = {name: harmonium(lowered("test", zoo(name)), "float64") for name in ROWS}
    for name, method in [*cases(), *((name, "exact") for name in ROWS)]:
        names.append((name, method))
        options = OPTIONS if method != "tap" else {"tolerance": 1e-12, "iterations": 5000}
        questions.append(
            {"model": payloads[name], "evidence": evidence(name), "method": method}
            | ({} if method == "exact" else {"options": options})
        )
    found = ask(tmp_path_factory.mktemp("node"), questions)
    return dict(zip(names, found, strict=True)), payloads


@pytest.mark.parametrize(("name", "method"), list(marked()))
def test_harmoniums_agree_with_the_engine(told, name, method):
    model, answer = zoo(name), told[0][name, method]
    beliefs = ROUTINES[method](potentials(model, name))
    n = len(answer["mean"])
    assert answer["converged"] and bool(beliefs.converged)
    np.testing.assert_allclose(answer["mean"], beliefs.unary[:n], **CLOSE)
    np.testing.assert_allclose(answer["hidden"], beliefs.unary[n:], **CLOSE)
    np.testing.assert_allclose(answer["logZ"], beliefs.log_z, **CLOSE)


def brute_force(model, row):
    """log Z and means of the units by plain sums, continuous units by quadrature, one at a time."""
    n, V = model.layout.n, model.layout.n_visible
    fields = np.asarray(model.lower().unary)
    W = np.zeros((V, n - V))
    for f in model.lower().factors:
        if hasattr(f, "cols"):
            a, b = model.layout.blocks[f.rows], model.layout.blocks[f.cols]
            W[a.slice, b.start - V : b.stop - V] = f.weight
    r = np.zeros(V)
    for f in model.lower().factors:
        if not hasattr(f, "cols"):
            r[model.layout.blocks[f.block].slice] = -2 * np.asarray(f.weight)
    states = [
        list(np.eye(b.size))
        if b.size == b.states and b.name in ("component",)
        else [np.array(s, float) for s in itertools.product([0, 1], repeat=b.size)]
        for b in model.layout.blocks
        if not b.visible
    ]
    total, means, hidden = 0.0, np.zeros(V), np.zeros(n - V)
    for parts in itertools.product(*states):
        h = np.concatenate(parts)
        weight, own = one_state(model, fields[:V] + W @ h, r, row)
        weight *= np.exp(fields[V:] @ h + float(model.lower().offset))
        total, means, hidden = total + weight, means + weight * own, hidden + weight * h
    return np.log(total), means / total, hidden / total


def one_state(model, f, r, row):
    """The weight of a hidden state, and the means of the visible units in it."""
    weight, means = 1.0, np.zeros(len(f))
    for b in model.layout.blocks:
        if not b.visible:
            continue
        for at in range(b.start, b.stop, b.width):
            where = slice(at, at + b.width)
            x, w, kind = row[where], f[where], b.domain.value
            if not np.isnan(x).any():
                z, means[where] = np.exp((x * w - 0.5 * r[where] * x * x).sum()), x
            elif kind == "binary":
                z = 1 + np.exp(w[0])
                means[where] = np.exp(w) / z
            elif kind == "categorical":
                z = np.exp(w).sum()
                means[where] = np.exp(w) / z
            else:
                low = 0.0 if kind == "nonnegative" else -30.0
                grid = np.linspace(low, 30.0, 60001)
                density = np.exp(w[0] * grid - 0.5 * r[at] * grid**2)
                z = integrate.simpson(density, x=grid)
                means[where] = integrate.simpson(density * grid, x=grid) / z
            weight *= z
    return weight, means


@pytest.mark.parametrize("name", list(ROWS))
def test_exact_answers_are_those_of_brute_force(told, name):
    model, answer = zoo(name), told[0][name, "exact"]
    log_z, means, hidden = brute_force(model, unit_row(model, name))
    np.testing.assert_allclose(answer["logZ"], log_z, **CLOSE)
    np.testing.assert_allclose(answer["mean"], means, **CLOSE)
    np.testing.assert_allclose(answer["hidden"], hidden, **CLOSE)


def test_the_first_rounds_are_the_same_too(told, tmp_path):
    """Not only the end: messages start neutral, and are sent in the same order."""
    model = zoo("rbm")
    with_row, without = potentials(model, "rbm"), lowered("test", model)
    # Messages from what is known are damped in the engine, and folded into the fields on a page.
    cases = [(1, 0, with_row), (2, 0, with_row), (3, 0.5, without)]
    asked = [
        {
            "model": told[1]["rbm"],
            "evidence": evidence("rbm") if p is with_row else {},
            "method": "bp",
            "rounds": rounds,
            "options": {"damping": damping},
        }
        for rounds, damping, p in cases
    ]
    for (rounds, damping, p), answer in zip(cases, ask(tmp_path, asked), strict=True):
        beliefs = un.SumProduct(rounds, None, damping)(p)
        np.testing.assert_allclose(answer["mean"], beliefs.unary[:7], **CLOSE)
        np.testing.assert_allclose(answer["logZ"], beliefs.log_z, **CLOSE)


VECTORS = {"tolerance": 2e-6, "iterations": 5000}


@pytest.fixture(scope="module")
def by_vectors(told, tmp_path_factory):
    """The same questions to the kernels in single precision, which large models are given to."""
    names = [(name, method) for name in ("rbm", "open rbm") for method in ROUTINES]
    asked = [
        {"model": told[1][name], "evidence": evidence(name), "method": method, "vectors": True}
        | {"options": VECTORS}
        for name, method in names
    ]
    return dict(zip(names, ask(tmp_path_factory.mktemp("node"), asked), strict=True))


@pytest.mark.parametrize("method", list(ROUTINES))
def test_vectors_agree_with_the_engine(by_vectors, method):
    answer, beliefs = by_vectors["rbm", method], ROUTINES[method](potentials(zoo("rbm"), "rbm"))
    assert answer["converged"]
    np.testing.assert_allclose(answer["mean"], beliefs.unary[:7], **CLOSE)
    np.testing.assert_allclose(answer["hidden"], beliefs.unary[7:], **CLOSE)
    np.testing.assert_allclose(answer["logZ"], beliefs.log_z, **CLOSE)


@pytest.mark.parametrize("method", list(ROUTINES))
def test_vectors_agree_with_plain_loops(told, by_vectors, method):
    for key in ("mean", "hidden", "logZ"):
        plain = told[0]["open rbm", method][key]
        np.testing.assert_allclose(by_vectors["open rbm", method][key], plain, **CLOSE)


@pytest.mark.parametrize("scale", [1.0, 6.0, 12.0], ids=["gentle", "steep", "steepest"])
def test_rounds_of_vectors_are_those_of_plain_loops(tmp_path, scale):
    """Held hidden units, many rows, weights up to 40, and a second run of the model in between."""
    rng = np.random.default_rng(5)
    weights = np.clip(rng.normal(0, scale, (50, 9)), -39, 39)
    biases = rng.normal(0, 3 * scale, 50), rng.normal(0, scale, 9)
    model = un.RBM(*map(jnp.asarray, (weights, *biases)))
    row = [None, 1, 0, None, 1] * 10
    question = {
        "model": harmonium(lowered("test", model), "float64"),
        "evidence": {"visible": row, "hidden": {"2": 1, "7": 0}},
        "beside": {"visible": row[1:]},
        "method": "bp",
    }
    plain, quick = (question | {"vectors": v} for v in (False, True))
    asked = [q | {"rounds": rounds} for rounds in (1, 2, 5) for q in (plain, quick)]
    found = ask(tmp_path, asked)
    for left, right in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_allclose(right["mean"], left["mean"], **CLOSE)
        np.testing.assert_allclose(right["hidden"], left["hidden"], **CLOSE)
        np.testing.assert_allclose(right["logZ"], left["logZ"], rtol=2e-6)


REFUSED = """
import { readFileSync } from "node:fs";
import { modelOf } from "./inference.mjs";
globalThis.WebAssembly = undefined;
const { model, evidence } = JSON.parse(readFileSync(0, "utf-8"));
const found = modelOf(model);
found.vectors = true;
const { mean } = found.run("bp", evidence).settle().beliefs();
process.stdout.write(JSON.stringify({ none: found.kernels === null, mean: Array.from(mean) }));
"""


def test_where_vectors_are_refused_plain_loops_answer(told, tmp_path):
    asked = {"model": told[1]["rbm"], "evidence": evidence("rbm")}
    found = run_node(tmp_path, REFUSED, asked)
    assert found["none"]
    np.testing.assert_allclose(found["mean"], told[0]["rbm", "bp"]["mean"], atol=1e-4)


def test_clamped_hidden_units_are_evidence(told, tmp_path):
    model = zoo("mixture")
    p = lowered("test", model)
    known = np.zeros(p.layout.n, bool)
    value = np.zeros(p.layout.n)
    known[[1, 6, 8, 9, 10, 11]] = True  # a pixel, two hidden units, the component
    value[[1, 6, 10]] = 1
    beliefs = un.Exact()(clamp(p, jnp.asarray(known), jnp.asarray(value)))
    held = {"visible": [None, 1], "hidden": {"0": 1, "2": 0}, "component": 1}
    methods = [("exact", {}), ("bp", OPTIONS)]
    asked = [
        {"model": told[1]["mixture"], "evidence": held, "method": m, "options": o}
        for m, o in methods
    ]
    for answer in ask(tmp_path, asked):  # what is left is a tree, so both are exact
        np.testing.assert_allclose(answer["mean"], beliefs.unary[:6], **CLOSE)
        np.testing.assert_allclose(answer["hidden"], beliefs.unary[6:], **CLOSE)
        np.testing.assert_allclose(answer["logZ"], beliefs.log_z, **CLOSE)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("rbm", "tempered"),
        ("kinds", "gibbs"),
        pytest.param("mixture", "gibbs", marks=pytest.mark.slow),
        pytest.param("mixture", "tempered", marks=pytest.mark.slow),
        pytest.param("kinds", "tempered", marks=pytest.mark.slow),
    ],
)
def test_chains_have_the_exact_means(told, tmp_path, name, method):
    """Fixed seed. 5,000 sweeps: errors of means are near 0.01, four of them allowed.

    The broken twin is the same chain without the evidence, which must be farther off.
    """
    options = {"iterations": 5000, "chains": 4, "seed": 3}
    question = {"model": told[1][name], "evidence": evidence(name), "method": method}
    without = question | {"evidence": {}, "options": options}
    right, wrong = ask(tmp_path, [question | {"options": options}, without])
    exact = np.array(told[0][name, "exact"]["mean"])
    assert np.abs(np.array(right["mean"]) - exact).max() < 0.04
    assert np.abs(np.array(wrong["mean"]) - exact).max() > 0.1


def test_the_best_completion_is_the_best_of_all(told, tmp_path):
    model = zoo("rbm")
    states = np.array(list(itertools.product([0.0, 1.0], repeat=7)))
    row = np.array(ROWS["rbm"], float)
    seen = ~np.isnan(row)
    states = states[(states[:, seen] == row[seen]).all(1)]
    values = -np.asarray(model.free_energy(jnp.asarray(states)))
    question = {
        "model": told[1]["rbm"],
        "evidence": evidence("rbm"),
        "completion": [told[0]["rbm", "bp"]["mean"], told[0]["rbm", "mf"]["mean"]],
    }
    (found,) = ask(tmp_path, [question])
    np.testing.assert_allclose(found["value"], values.max(), **CLOSE)
    np.testing.assert_array_equal(found["x"], states[values.argmax()])


def test_rectified_units_keep_their_precision_in_the_tail(told, tmp_path):
    from undirected.core.rectified import cumulants, log_normaliser

    l = np.array([-300.0, -40.0, -3.001, -2.999, -0.5, 0.0, 2.0, 12.0, 60.0])
    r = np.array([1.0, 2.0, 1.0, 1.0, 0.3, 1.0, 4.0, 1.0, 2.0])
    (found,) = ask(tmp_path, [{"model": told[1]["rbm"], "rectified": list(zip(l, r, strict=True))}])
    mean, variance = cumulants(jnp.asarray(l), jnp.asarray(r))[:2]
    np.testing.assert_allclose([u["mean"] for u in found], mean, rtol=1e-9)
    np.testing.assert_allclose([u["variance"] for u in found], variance, rtol=1e-7)
    expected = log_normaliser(jnp.asarray(l), jnp.asarray(r))
    np.testing.assert_allclose([u["logZ"] for u in found], expected, rtol=1e-9, atol=1e-9)


def test_what_a_method_cannot_do_is_said(told, tmp_path):
    asked = [{"model": told[1][name], "refusal": "tap"} for name in ("kinds", "mixture", "rbm")]
    several, softmax, fine = ask(tmp_path, asked)
    assert "several states" in several and "several states" in softmax and fine is None


def random_network(seed, n=7, zero=False, most=3):
    """A loopy network of variables of two to `most` states, with factors of one to three."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, most + 1, n)
    scopes = [(i, (i + 1) % n) for i in range(n)] + [(0, 2, 4), (1,), (5, 3)]
    tables = [np.exp(rng.normal(0, 0.5, [cards[v] for v in s])) for s in scopes]
    if zero:
        tables[0][0, 0] = 0.0
    return un.markov_network(cards.tolist(), list(zip(scopes, tables, strict=True)))


@pytest.mark.parametrize(
    ("most", "zero"),
    [
        (2, False),
        pytest.param(3, False, marks=pytest.mark.slow),
        pytest.param(3, True, marks=pytest.mark.slow),
    ],
)
def test_factor_graphs_agree_with_the_engine(tmp_path, most, zero):
    net = random_network(1, zero=zero, most=most)
    payload = network(as_tables(lowered("test", net)))
    given = {"2": 1}
    methods = ["exact", "bp", "mf"] if not zero else ["exact", "bp"]
    options = {"tolerance": 1e-12, "iterations": 20000}
    asked = [
        {"model": payload, "evidence": given, "method": m, "options": options} for m in methods
    ]
    asked.append({"model": payload, "evidence": given, "method": "exact", "best": True})
    *found, best = ask(tmp_path, asked)
    p = un.observe(net.lower(), {2: 1})
    routines = [un.Elimination(), un.SumProduct(5000, 1e-12), un.MeanField(20000, 1e-13)]
    for answer, routine in zip(found, routines, strict=False):
        beliefs = routine(p)
        assert answer["converged"]
        np.testing.assert_allclose(answer["logZ"], beliefs.log_z, **CLOSE)
        for v, shares in enumerate(shares_of(net.layout, np.asarray(beliefs.unary))):
            np.testing.assert_allclose(answer["marginals"][v], shares, **CLOSE)
    weights = {x: np.exp(-float(energy(net, x))) for x in all_states(payload["cards"], {2: 1})}
    top = max(weights, key=weights.get)
    assert tuple(best["x"]) == top
    np.testing.assert_allclose(best["value"], np.log(weights[top]), **CLOSE)
    np.testing.assert_allclose(found[0]["logZ"], np.log(sum(weights.values())), **CLOSE)


def shares_of(layout, unary):
    """The probabilities of the states of every variable, in the order of the network."""
    for v in layout.order:
        first, width = int(layout.variables.first[v]), int(layout.variables.width[v])
        own = unary[first : first + width]
        yield [1 - own[0], own[0]] if width == 1 else own


def all_states(cards, given):
    ranges = [[given[v]] if v in given else range(k) for v, k in enumerate(cards)]
    return itertools.product(*ranges)


def energy(net, x):
    """Minus the log of the product of all tables, from the tables themselves."""
    found = as_tables(lowered("test", net))
    with np.errstate(divide="ignore"):
        logs = [
            np.log(t[tuple(x[v] for v in s)])
            for s, t in zip(found.scopes, found.tables, strict=True)
        ]
    return -sum(logs)


def packed(cards, scopes, tables):
    """The payload of a network, from plain arrays."""
    return network(UaiModel(tuple(cards), tuple(map(tuple, scopes)), tuple(tables)))


def grid(side, seed):
    """A square grid of binary variables in a random order: pairs, fields, payload."""
    rng = np.random.default_rng(seed)
    name = rng.permutation(side * side).reshape(side, side)
    across, down = rng.normal(0, 1, (side, side - 1)), rng.normal(0, 1, (side - 1, side))
    fields = rng.normal(0, 0.3, (side, side))
    same = np.array([[1, -1], [-1, 1]])
    scopes, tables = [], []
    for a, b, w in [(name[:, :-1], name[:, 1:], across), (name[:-1], name[1:], down)]:
        for u, v, x in zip(a.flat, b.flat, w.flat, strict=True):
            scopes.append([int(u), int(v)])
            tables.append(np.exp(x * same))
    for v, x in zip(name.flat, fields.flat, strict=True):
        scopes.append([int(v)])
        tables.append(np.exp(x * np.array([0.0, 1.0])))
    return name, (across, down, fields), packed([2] * side * side, scopes, tables)


def by_rows(couplings, seen):
    """Log Z and P(x = 1) of a grid by transfer from row to row; `seen` is NaN where free."""
    across, down, fields = couplings
    side = len(fields)
    x = np.array(list(itertools.product([0, 1], repeat=side)), float)
    s = 2 * x - 1

    def inside(r):
        known = np.where(np.isnan(seen[r]), x, seen[r])
        log = x @ fields[r] + (s[:, 1:] * s[:, :-1]) @ across[r]
        return np.where((known == x).all(1), log, -np.inf)

    def between(log, r):  # one variable of the next row after the other
        log = log.reshape([2] * side)
        for c in range(side):
            w = down[r, c] * np.array([[1, -1], [-1, 1]])
            log = np.logaddexp.reduce(np.expand_dims(np.moveaxis(log, c, -1), -2) + w, axis=-1)
            log = np.moveaxis(log, -1, c)
        return log.ravel()

    above, below = [inside(0)], [np.zeros(2**side)]
    for r in range(side - 1):
        above.append(between(above[-1], r) + inside(r + 1))
        last = side - 2 - r
        below.insert(0, between(below[0] + inside(last + 1), last))
    log_z = np.logaddexp.reduce(above[-1])
    shares = [np.exp(a + b - log_z) @ x for a, b in zip(above, below, strict=True)]
    return log_z, np.array(shares)


@pytest.mark.parametrize("side", [3, 10, pytest.param(14, marks=pytest.mark.slow)])
def test_narrow_grids_are_answered_exactly(tmp_path, side):
    """As many states as a sum over all of them could never visit, and names in no order."""
    name, couplings, payload = grid(side, seed=side)
    seen = np.full((side, side), np.nan)
    seen[1, 1], seen[2, 0] = 1, 0
    given = {str(name[1, 1]): 1, str(name[2, 0]): 0}
    free, held = ask(
        tmp_path,
        [{"model": payload, "evidence": e, "method": "exact"} for e in ({}, given)],
    )
    for answer, known in [(free, np.full((side, side), np.nan)), (held, seen)]:
        log_z, shares = by_rows(couplings, known)
        np.testing.assert_allclose(answer["logZ"], log_z, rtol=1e-10)
        found = np.array(answer["marginals"])[name][..., 1]
        np.testing.assert_allclose(found, shares, atol=1e-9)
    if side == 3:  # the oracle itself, by a sum over all states
        total = dict.fromkeys(itertools.product([0, 1], repeat=9), 0.0)
        across, down, fields = couplings
        for x in total:
            v = np.array(x).reshape(3, 3)
            s = 2 * v - 1
            total[x] = (v * fields).sum() + (s[:, 1:] * s[:, :-1] * across).sum()
            total[x] += (s[1:] * s[:-1] * down).sum()
        np.testing.assert_allclose(free["logZ"], np.logaddexp.reduce([*total.values()]))


@pytest.mark.parametrize("seed", range(4))
def test_random_narrow_networks_are_those_of_brute_force(tmp_path, seed):
    """Tables over one to three of nine variables, some entries 0, some tables of any size."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 4, 9).tolist()
    scopes = [rng.choice(9, rng.integers(1, 4), replace=False).tolist() for _ in range(11)]
    shapes = [[cards[v] for v in scope] for scope in scopes]
    tables = [rng.gamma(0.5, 1.0, shape) * 10.0 ** rng.integers(-200, 200) for shape in shapes]
    max(tables, key=np.size).flat[0] = 0.0
    given = {} if seed % 2 else {"3": cards[3] - 1}
    known = {int(v): s for v, s in given.items()}
    asked = {"model": packed(cards, scopes, tables), "evidence": given, "method": "exact"}
    answer, best = ask(tmp_path, [asked, asked | {"best": True}])
    with np.errstate(divide="ignore"):
        logs = [np.log(t) for t in tables]
    states = list(all_states(cards, known))
    weight = [
        sum(t[tuple(x[v] for v in scope)] for t, scope in zip(logs, scopes, strict=True))
        for x in states
    ]
    log_z = np.logaddexp.reduce(weight)
    np.testing.assert_allclose(answer["logZ"], log_z, rtol=1e-10)
    for v in range(9):
        shares = [
            np.exp(
                np.logaddexp.reduce(
                    [w - log_z for x, w in zip(states, weight, strict=True) if x[v] == s]
                    or [-np.inf]
                )
            )
            for s in range(cards[v])
        ]
        np.testing.assert_allclose(answer["marginals"][v], shares, atol=1e-10)
    assert tuple(best["x"]) == states[int(np.argmax(weight))]
    np.testing.assert_allclose(best["value"], max(weight), rtol=1e-10)


def test_networks_too_wide_for_a_page_are_refused(tmp_path):
    """All pairs of 30 variables: one table would have 2^30 entries; with 20 known, 2^10."""
    pairs = [list(pair) for pair in itertools.combinations(range(30), 2)]
    payload = packed([2] * 30, pairs, [np.array([[1.0, 2.0], [2.0, 1.0]])] * len(pairs))
    given = {str(v): 0 for v in range(20)}
    wide, narrow = ask(
        tmp_path,
        [
            {"model": payload, "evidence": e, "method": "exact", "refused": True}
            for e in ({}, given)
        ],
    )
    assert "would need tables of more than" in wide["refused"]
    differ = np.array([sum(x) * (10 - sum(x)) + 20 * sum(x) for x in all_states([2] * 10, {})])
    right = np.logaddexp.reduce(np.log(2.0) * differ)
    np.testing.assert_allclose(narrow["logZ"], right, rtol=1e-10)


def test_gibbs_on_tables_has_the_exact_marginals(tmp_path):
    """Fixed seed; 5,000 sweeps, errors near 0.006, four allowed; the twin has no evidence."""
    payload = network(as_tables(lowered("test", random_network(2))))
    options = {"iterations": 5000, "seed": 5}
    asked = [
        {"model": payload, "evidence": {"2": 1}, "method": "exact"},
        {"model": payload, "evidence": {"2": 1}, "method": "gibbs", "options": options},
        {"model": payload, "evidence": {}, "method": "gibbs", "options": options},
    ]
    exact, right, wrong = (np.concatenate(a["marginals"]) for a in ask(tmp_path, asked))
    assert np.abs(right - exact).max() < 0.025
    assert np.abs(wrong - exact).max() > 0.1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("MARKOV 1 2 1 1 0 2 0.3 0.7", None),
        ("BAYES\n1\n2\n1\n1 0\n2\n0.3 0.7\n", None),
        ("GRAPH 1 2", "starts with “GRAPH”"),
        ("", "line 1: the file ends where MARKOV or BAYES should be"),
        ("MARKOV\n1\n2\n1\n1 5\n2 1 1", "line 5: scope 0 is (5); variables are 0 to 0"),
        ("MARKOV\n1\n2\n1\n1 0\n3 1 1 1", "line 6: table 0 has 3 entries"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 -1", "is not a number of 0 or more"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 nan", "is not a number of 0 or more"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1", "the file ends where an entry of table 0"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 1 7", "comes after the last table"),
        ("MARKOV\n-1\n", "a whole number"),
        ("MARKOV\n99999999999\n", "a page shows up to"),
        ("MARKOV 2 2 2 1 2 0 0 4 1 1 1 1", "names a variable twice"),
    ],
)
def test_uai_files(tmp_path, text, complaint):
    (found,) = ask(tmp_path, [{"uai": text}])
    if complaint is None:
        assert found == {"cards": [2], "scopes": [[0]], "tables": [[0.3, 0.7]]}
    else:
        assert complaint in found["error"]


def test_half_precision_is_read_back(tmp_path):
    model = zoo("rbm")
    payload = harmonium(lowered("test", model), "float16")
    (answer,) = ask(tmp_path, [{"model": payload, "evidence": {}, "method": "exact"}])
    half = un.RBM(
        jnp.asarray(np.asarray(model.weights, np.float16), jnp.float64),
        jnp.asarray(np.asarray(model.visible_bias, np.float32), jnp.float64),
        jnp.asarray(np.asarray(model.hidden_bias, np.float32), jnp.float64),
    )
    np.testing.assert_allclose(answer["logZ"], un.Exact()(half).log_z, **CLOSE)


def test_coupled_real_units_have_the_means_of_the_energy(tmp_path):
    """Exact answers to 1e-4 of sums on a grid, chains of 5,000 sweeps to 0.05 (fixed seed).

    The broken twin is the chain without the evidence, which must be farther off.
    """
    ours, at = coupled.random_rbm(), 240
    with jax.enable_x64(False):
        payload = harmonium(lowered("test", ours.model()), "float64")
    p, line = coupled.density(ours), coupled.LINE
    given = p[:, at] / p[:, at].sum()
    second = given.sum(0) @ line
    variance = given.sum(0) @ (line - second) ** 2
    held = {"visible": [None, line[at], None]}
    options = {"iterations": 5000, "chains": 4, "seed": 3}
    asked = [
        {"model": payload, "evidence": held, "method": "exact"},
        {"model": payload, "evidence": {}, "method": "exact"},
        {"model": payload, "evidence": held, "method": "gibbs", "options": options},
        {"model": payload, "evidence": held, "method": "tempered", "options": options},
        {"model": payload, "evidence": {}, "method": "gibbs", "options": options},
    ]
    exact, free, gibbs, tempered, wrong = ask(tmp_path, asked)
    wanted = [given[1].sum(), line[at], second]
    np.testing.assert_allclose(exact["mean"], wanted, atol=1e-4)
    np.testing.assert_allclose(exact["variance"][2], variance, atol=1e-4)
    np.testing.assert_allclose(free["logZ"], ours.log_z, atol=1e-3)
    means = [p[1].sum(), p.sum((0, 2)) @ line, p.sum((0, 1)) @ line]
    np.testing.assert_allclose(free["mean"], means, atol=1e-3)
    for chains in gibbs, tempered:
        assert np.abs(np.array(chains["mean"]) - wanted).max() < 0.05
    assert np.abs(np.array(wrong["mean"]) - wanted).max() > 0.1
    (refused,) = ask(tmp_path, [{"model": payload, "refusal": "bp"}])
    assert "couples its real columns" in refused
