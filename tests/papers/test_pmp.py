"""Every experiment of the paper runs at its smallest size; closed forms and scores are right."""

import numpy as np
import pytest

from undirected.data.deconvolution import FEATURES
from undirected.experiments import record, runner
from undirected.papers.pmp.deconvolution import best_overlaps


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["toy", "logz", "structured"])
def test_smoke(name, tmp_path):
    result = runner.run(f"pmp/{name}", "smoke", out=tmp_path)
    assert all(np.isfinite(row.ours) for row in result.rows)
    assert record.read(runner.record_path(tmp_path, f"pmp/{name}", "smoke")).rows == result.rows


@pytest.mark.smoke
def test_models_of_several_seeds_are_learned_side_by_side(tmp_path):
    result = runner.run("pmp/toy", "smoke", out=tmp_path, seeds=3)
    theta = next(row for row in result.rows if row.metric == "learned theta")
    assert theta.n == len(set(theta.values)) == 3


@pytest.mark.smoke
@pytest.mark.data
@pytest.mark.parametrize("name", ["zeros", "relaxation", "rbm", "deconvolution"])
def test_smoke_on_data(name, tmp_path):
    result = runner.run(f"pmp/{name}", "smoke", out=tmp_path)
    assert all(np.isfinite(row.ours) for row in result.rows)
    assert (tmp_path / "pmp" / result.images[0]["file"]).is_file()


@pytest.mark.smoke
@pytest.mark.data
def test_rbms_of_seeds_side_by_side(tmp_path):
    methods = 'methods=["PMP", "PCD-1"]'
    result = runner.run("pmp/rbm", "smoke", out=tmp_path, seeds=2, overrides=[methods])
    assert {row.method for row in result.rows} == {"PMP", "Gibbs-reset", "PCD-1"}
    for row in result.rows:
        first, second = row.values
        assert first != second


def test_overlap_of_features_finds_the_best_shift():
    found = np.zeros((5, 6, 6))
    found[0, 1:, :5] = FEATURES[0]
    found[1, :5, 1:] = FEATURES[1]
    found[2, :4] = np.pad(FEATURES[2][1:], ((0, 0), (0, 1)))
    found[3, :5, :5] = FEATURES[3]
    found[3, 2, 2] = 1
    overlaps = best_overlaps(found)
    assert overlaps[:2].tolist() == [1, 1]
    assert overlaps[2] == pytest.approx((FEATURES[2].sum() - 1) / FEATURES[2].sum())
    assert overlaps[3] == pytest.approx(FEATURES[3].sum() / (FEATURES[3].sum() + 1))
