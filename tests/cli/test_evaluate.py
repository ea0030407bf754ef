"""`undirected evaluate` on every registered model: the right answer, or one line that says why."""

import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from tests import oracle, rectified_oracle
from tests.marks import mostly_slow
from undirected import factors
from undirected.cli import main
from undirected.core.graph import chain, torus
from undirected.io.model_files import save_model
from undirected.models import (
    RBM,
    REGISTRY,
    ConditionalRBM,
    DeepBM,
    FactorGraph,
    GaussianRBM,
    GridMRF,
    Ising,
    MixtureRBM,
    NonnegativeBM,
    Potts,
    SemiRestrictedBM,
    discrete,
)

QUICK = ["--chains", 50, "--betas", 50]


@pytest.fixture
def evaluate(monkeypatch, tmp_path, capsys):
    """Save a model and a table, and call the program; gives (exit code, stdout, stderr)."""

    def call(model, rows, *more):
        save_model(tmp_path / "model", model)
        np.save(tmp_path / "rows.npy", np.asarray(rows, np.float32))
        arguments = ["evaluate", tmp_path / "model", tmp_path / "rows.npy", *more]
        monkeypatch.setattr(sys, "argv", ["undirected", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


def random(model, scale=0.7):
    """The same model with normal parameters."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda a: (
            jnp.asarray(scale * rng.normal(size=a.shape), jnp.float32)
            if eqx.is_inexact_array(a)
            else a
        ),
        model,
    )


def nonnegative() -> NonnegativeBM:
    matrix = jnp.array([[1.5, 0.8, -0.4], [0.8, 1.0, 0.5], [-0.4, 0.5, 2.0]])
    return NonnegativeBM.from_matrix(matrix, jnp.array([0.7, -0.5, 1.2]))


def tables() -> FactorGraph:
    layout = discrete(bits=2, kinds=(1, 3))
    group = factors.tables(layout, [[0, 2], [1, 2]], np.arange(12.0).reshape(2, 2, 3) / 6)
    return FactorGraph.create(layout, [group], jnp.linspace(-1, 1, 5))


def log_weights(model, x):
    """-E of joint states in plain NumPy, by the definition of each model."""
    x = np.asarray(x, np.float64)

    def a(value):
        return np.asarray(value, np.float64)

    match model:
        case RBM():
            v, h = x[:, : model.n_visible], x[:, model.n_visible :]
            pairs = np.einsum("ri,ij,rj->r", v, a(model.weights), h)
            return pairs + v @ a(model.visible_bias) + h @ a(model.hidden_bias)
        case SemiRestrictedBM():
            v = x[:, : model.n_visible]
            lateral = np.triu(a(model.lateral), 1)
            return log_weights(model.rbm, x) + np.einsum("ri,ij,rj->r", v, lateral, v)
        case MixtureRBM():
            h = model.n_visible + model.n_hidden
            v, z = x[:, : model.n_visible], x[:, h:]
            pairs = np.einsum("ri,ij,rj->r", v, a(model.components), z)
            rbm = RBM(model.weights, model.visible_bias, model.hidden_bias)
            return log_weights(rbm, x[:, :h]) + pairs + z @ a(model.component_bias)
        case DeepBM():
            layers = np.split(x, np.cumsum(model.sizes)[:-1], 1)
            total = x @ np.concatenate([a(b) for b in model.biases])
            for below, above, w in zip(layers, layers[1:], model.weights, strict=False):
                total = total + np.einsum("ri,ij,rj->r", below, a(w), above)
            return total
        case Ising():
            w = 0.5 * (a(model.weights) + a(model.weights).T)
            np.fill_diagonal(w, 0)
            return 0.5 * np.einsum("ri,ij,rj->r", x, w, x) + x @ a(model.bias) + a(model.offset)
        case Potts():
            s = x.reshape(len(x), 3, 3).argmax(2)
            total = x @ a(model.fields).ravel() + a(model.offset)
            for (i, j), table in zip(((0, 1), (1, 2)), a(model.couplings), strict=True):
                total = total + table[s[:, i], s[:, j]]
            return total
        case FactorGraph():
            (group,) = model.factors
            kind = x[:, 2:].argmax(1)
            total = x @ a(model.unary)
            for bit in (0, 1):
                total = total + a(group.weight)[bit][x[:, bit].astype(int), kind]
            return total


CASES = {
    "RBM": lambda: random(RBM.create(4, 3, jax.random.key(0))),
    "SemiRestrictedBM": lambda: random(SemiRestrictedBM.create(4, 3, jax.random.key(0))),
    "MixtureRBM": lambda: random(
        MixtureRBM.from_mixture(np.log([0.5, 0.3, 0.2]), np.full((3, 4), 0.5), 3, seed=0)
    ),
    "Ising": lambda: random(Ising.create(4)),
    "DeepBM": lambda: random(DeepBM.create([4, 3, 3], jax.random.key(0))),
    "FactorGraph": tables,
    "Potts": lambda: random(Potts.create(chain(3), 3)),
    "NonnegativeBM": nonnegative,
    "GaussianRBM": lambda: random(GaussianRBM.create(3, 2, jax.random.key(0))),
}
REFUSED = {
    "ConditionalRBM": (
        lambda: ConditionalRBM.create(4, 3, 2, jax.random.key(0)),
        "gives outputs for features",
    ),
    "GridMRF": (
        lambda: GridMRF.create((2, 2), (1, 1), jax.random.key(0)),
        "does not lower to potentials: its log Z is out of reach; judge its answers",
    ),
}


def test_every_model_has_its_case():
    # Rows of a mixed RBM are of another kind, and tested with it.
    assert {*CASES, *REFUSED} == set(REGISTRY) - {"MixedRBM"}


def exact(model) -> tuple[np.ndarray, float, np.ndarray]:
    """Rows, log Z and log-likelihoods by sums over all states, or by quadrature."""
    if isinstance(model, NonnegativeBM):
        rows = np.array([[0.2, 0.0, 1.0], [1.0, 2.0, 0.5]])
        matrix, bias = np.asarray(model.matrix, float), np.asarray(model.bias, float)
        log_z = rectified_oracle.integrate(bias, matrix).log_z
        weights = rows @ bias - 0.5 * np.einsum("ri,ij,rj->r", rows, matrix, rows)
        return rows, log_z, weights - log_z
    if isinstance(model, GaussianRBM):
        rows = np.array([[0.2, -1.0, 1.0], [1.0, 2.0, 0.5]])
        w, b, c = (
            np.asarray(a, float) for a in (model.weights, model.visible_mean, model.hidden_bias)
        )
        h = oracle.binary_states(2)
        means = b + h @ w.T
        mixed = h @ c + 0.5 * (means**2).sum(1) - 0.5 * (b**2).sum() + 1.5 * np.log(2 * np.pi)
        sums = np.logaddexp(0, rows @ w + c).sum(1) - 0.5 * ((rows - b) ** 2).sum(1)
        return rows, logsumexp(mixed), sums - logsumexp(mixed)
    layout = model.layout
    groups = [b.width for b in layout.blocks for _ in range(b.variables)]
    x = oracle.grouped_states(groups)
    weights = log_weights(model, x)
    log_z = logsumexp(weights)
    rows = np.unique(x[:, : layout.n_visible], axis=0)[1:7]
    own = [logsumexp(weights[(x[:, : layout.n_visible] == row).all(1)]) for row in rows]
    return rows, log_z, np.array(own) - log_z


@pytest.mark.parametrize("name", mostly_slow(CASES, ["RBM", "FactorGraph", "Potts"]))
def test_the_answer_is_right(evaluate, name):
    model = CASES[name]()
    rows, log_z, values = exact(model)
    code, out, err = evaluate(model, rows, *QUICK, "--json")
    assert code == 0, err
    found = json.loads(out)
    if found["log_z_method"] == "exact":
        assert name != "NonnegativeBM"
        assert found["log_z"] == pytest.approx(log_z, abs=1e-4)
        assert found["log_likelihood"] == pytest.approx(values.mean(), abs=1e-4)
    else:
        low, high = found["log_z_interval"]
        assert low <= log_z <= high
        assert high - low < 0.5
        wanted = values.mean() + log_z - found["log_z"]
        assert found["log_likelihood"] == pytest.approx(wanted, abs=1e-4)
    assert found["rows"] == len(rows)
    assert (found["pseudo_log_likelihood"] is None) == (name in ("DeepBM", "GaussianRBM"))


def test_rows_with_holes_count_by_what_is_observed(evaluate):
    model = CASES["RBM"]()
    states = oracle.grouped_states([1] * 7)
    weights = log_weights(model, states)
    rows = np.array([[1, np.nan, 0, 1], [np.nan, np.nan, 1, 0], [0, 1, 1, 0]])
    wanted = [
        logsumexp(weights[(np.isnan(row) | (states[:, :4] == row)).all(1)]) - logsumexp(weights)
        for row in rows
    ]
    found = json.loads(evaluate(model, rows, *QUICK, "--json")[1])
    assert found["log_likelihood"] == pytest.approx(np.mean(wanted), abs=1e-4)
    assert (found["rows"], found["complete_rows"]) == (3, 1)
    assert 0 < found["bits_per_held_out_entry"] < 5
    out = evaluate(model, rows, *QUICK)[1]
    assert "rows have missing entries; their likelihood is that of what is there" in out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SemiRestrictedBM", "DeepBM", "MixtureRBM"])
def test_annealing_comes_near(evaluate, name):
    """Fixed seeds: with fresh ones the 99 % interval would miss less than once in 50."""
    model = CASES[name]()
    rows, log_z, values = exact(model)
    code, out, err = evaluate(model, rows, *QUICK, "--json", "--method", "ais")
    assert code == 0, err
    found = json.loads(out)
    assert found["log_z_method"] == "ais"
    assert found["hidden_sums"] == ("ais" if name == "DeepBM" else "exact")
    assert found["log_z_interval"][0] <= log_z <= found["log_z_interval"][1]
    assert found["log_likelihood"] == pytest.approx(values.mean(), abs=0.1)
    assert found["log_z_settled"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_line(evaluate, name):
    make, wanted = REFUSED[name]
    code, out, err = evaluate(make(), np.eye(8)[:, :4])
    assert (code, out) == (1, "")
    assert err.startswith("error:")
    assert len(err.strip().splitlines()) == 1
    assert wanted in err


def test_a_wide_interval_is_said(evaluate):
    """Two betas on strong couplings: the sides meet, tens of nats apart."""
    model = random(Ising.create(torus(6, 6)), scale=3.0)
    rows = np.zeros((3, 36))
    arguments = ["--method", "ais", "--chains", 20, "--betas", 2]
    found = json.loads(evaluate(model, rows, *arguments, "--json")[1])
    low, high = found["log_z_interval"]
    assert found["log_z_sides_meet"]
    assert not found["log_z_settled"]
    assert found["log_z_width"] == pytest.approx(high - low)
    assert high - low > 10
    assert (
        f"log Z is known within {high - low:.3g} nats only" in evaluate(model, rows, *arguments)[1]
    )
    found = json.loads(evaluate(model, rows, "--json")[1])
    assert found["log_z_method"] == "exact"
    assert low <= found["log_z"] <= high


@pytest.mark.slow
def test_models_of_more_states_than_a_float_can_count(evaluate):
    """2^3600 states, and no narrow order: exact sums are refused, annealing answers."""
    model = random(Ising.create(torus(60, 60)), scale=0.1)
    code, _, err = evaluate(model, np.zeros((2, 3600)), "--method", "exact")
    assert code == 1
    assert "2^3600 states to sum over" in err
    assert "use method 'ais'" in err


def test_exact_where_there_is_none_is_refused(evaluate):
    code, _, err = evaluate(nonnegative(), np.ones((2, 3)), "--method", "exact")
    assert code == 1
    assert "block 'visible' is nonnegative" in err
    assert "use method 'ais'" in err


def test_hard_constraints_beyond_exact_are_refused(evaluate):
    """Random ORs of 8 of 69 units: the graph is not narrow, and no path weakens a constraint."""
    layout = discrete(units=70)
    rng = np.random.default_rng(0)
    parents = np.stack([rng.permutation(69)[:8] for _ in range(60)])
    model = FactorGraph.create(layout, [factors.logical_or(layout, parents, np.full(60, 69))])
    code, _, err = evaluate(model, np.zeros((2, 70)), *QUICK)
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    assert "no Gibbs sampler takes this FactorGraph" in err or "has hard constraints" in err
