"""The experiments run at their smallest size; their parts do what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from undirected.experiments import record, runner
from undirected.models import RBM, GaussianRBM, Stack
from undirected.papers.tempered import _common, norb, two_modes
from undirected.papers.tempered._images import classify
from undirected.sampling import BlockGibbs


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["two-modes", "figure1-rbm10", "srbm-mnist", "figure2", "map"])
def test_smoke(name, tmp_path):
    result = runner.run(f"tempered/{name}", "smoke", out=tmp_path)
    assert all(np.isfinite(row.ours) for row in result.rows)
    assert (
        record.read(runner.record_path(tmp_path, f"tempered/{name}", "smoke")).rows == result.rows
    )


@pytest.mark.smoke
@pytest.mark.data
def test_smoke_on_data(tmp_path):
    """Two seeds, side by side above the same features, give two models."""
    result = runner.run("tempered/fashion", "smoke", out=tmp_path, seeds=2)
    assert all(np.isfinite(row.ours) for row in result.rows)
    (score,) = [row for row in result.rows if row.metric.startswith("test log-probability")]
    assert score.values is not None
    assert len(set(score.values)) == 2
    assert (tmp_path / "tempered" / result.images[0]["file"]).is_file()


def test_updates_at_equal_gibbs_updates():
    """Footnote 4: 50,000 + 50,000 * 2 / 3, but for the two ends that the ladder shares."""
    config = {
        "gibbs": 100_000,
        "chains": 100,
        "rungs": 5,
        "tempered": {"betas": 51, "lowest": 0.9, "every": 200, "after": 50_000},
    }
    for fair, wanted in ((True, 83_333), (False, 100_000)):
        _, steps = _common.learner("Trans-SAP", config | {"fair": fair}, BlockGibbs())
        assert steps == wanted
    for fair in (True, False):
        for learner in (_common.learner, _common.learner_of_seeds):
            assert learner(_common.FAIR, config | {"fair": fair}, BlockGibbs())[1] == 83_333
    assert _common.learner("PT-SAP", config | {"fair": True}, BlockGibbs())[1] == 20_000
    assert _common.learner("SAP", config | {"fair": True}, BlockGibbs())[1] == 100_000


def test_rows_of_each_seed_are_those_that_it_keeps():
    config = {"images": "mnist5k", "train": 700, "valid": 500, "test": 10}
    whole = _common.data.load("mnist5k").train
    for seed in (0, 3):
        digits = _common.load_digits(config, seed)
        rows = _common.training_rows(config, seed)
        np.testing.assert_array_equal(whole.x[rows], digits.x)
        np.testing.assert_array_equal(whole.y[rows], digits.y)


@pytest.mark.smoke
def test_seeds_side_by_side_smoke(tmp_path):
    """A longer Trans-SAP that goes on from the shorter one is the same as one of its own."""
    found = {}
    for methods in ('["SAP", "Trans-SAP"]', f'["SAP", "{_common.FAIR}", "Trans-SAP"]'):
        change = [f"methods={methods}"]
        result = runner.run(
            "tempered/srbm-mnist",
            "smoke",
            out=tmp_path / str(len(found)),
            seeds=2,
            overrides=change,
        )
        assert all(len(row.values) == 2 for row in result.rows)
        found[methods] = {row.name: row.values for row in result.rows}
    short, long = found.values()
    assert {name: long[name] for name in short} == short
    assert {method for _, method, _ in long.keys() - short.keys()} == {_common.FAIR}


def test_the_two_modes(x64):
    """Nearly all probability is in two states, whose shares the page gives."""
    model = two_modes.two_modes({"visible": 10, "hidden": 4, "weight": 5.0, "tilt": 0.05})
    truth = oracle.rbm(*(np.asarray(leaf) for leaf in jax.tree.leaves(model)))
    on = truth.states[:, :10].sum(1) > 5
    share = truth.probabilities[on].sum()
    assert float(two_modes._share_exactly(model)) == pytest.approx(share, abs=1e-4)
    assert 1 - two_modes._chance_to_stay(model) < 1e-6


def test_fovea_keeps_the_middle_and_the_means():
    pairs = np.random.default_rng(0).random((3, 2, 96, 96)).astype(np.float32)
    rows = norb.fovea(pairs)
    assert rows.shape == (3, 2 * (64 * 64 + 320))
    back = norb.unfold(rows)
    np.testing.assert_array_equal(back[:, :, 16:80, 16:80], pairs[:, :, 16:80, 16:80])
    np.testing.assert_allclose(
        back[:, :, :4, 8:12].mean((2, 3)), pairs[:, :, :4, 8:12].mean((2, 3))
    )
    np.testing.assert_allclose(norb.fovea(back), rows, atol=1e-6)
    moved = norb._shift(pairs, 3, np.random.default_rng(1))
    assert moved.shape == pairs.shape
    assert (moved != pairs).any()


def test_betas_of_ais_rise_from_0_to_1():
    betas = _common.annealing(300)
    assert betas[0] == 0
    assert betas[-1] == 1
    assert (np.diff(betas) > 0).all()
    assert (betas > 0.9).mean() == pytest.approx(0.4, abs=0.01)


def test_logistic_regression_separates_what_can_be():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = (np.eye(3)[y] + 0.1 * rng.normal(size=(300, 3))).astype(np.float32)
    how = {"epochs": 20, "rate": 0.1, "batch": 50}
    assert classify(x[:200], y[:200], x[200:], y[200:], how, 0).mean() == 0
    assert classify(x[:200], y[:200], x[200:], (y[200:] + 1) % 3, how, 0).mean() == 1


def test_stack():
    keys = jax.random.split(jax.random.key(0), 3)
    stack = Stack(GaussianRBM.create(4, 3, keys[0]), RBM.create(3, 2, keys[1]))
    v = jnp.ones((5, 4))
    features = stack.features(v, keys[2])
    assert set(np.unique(features)) <= {0.0, 1.0}
    assert stack.activities(v).shape == (5, 2)
    assert stack.show(features).shape == (5, 4)
    with pytest.raises(ValueError, match="both must be as many"):
        Stack(stack.bottom, RBM.create(4, 2, keys[1]))
