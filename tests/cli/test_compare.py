"""`undirected compare`: samplers side by side."""

import json
import sys

import numpy as np
import pytest

from undirected.cli import compare, main
from undirected.core import graph
from undirected.factors import third_order
from undirected.models import FactorGraph, Ising, discrete, markov_network

pytestmark = pytest.mark.slow


NAMES = {
    "Gibbs",
    "block Gibbs",
    "Gibbs with gradients",
    "discrete Langevin",
    "any-scale",
    "path-auxiliary",
    "multiple-try",
    "Hamming ball",
    "Swendsen-Wang",
    "Wolff",
    "tempered transitions",
    "parallel tempering",
    "tempering and Houdayer",
    "perturb-and-max-product",
}


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["undirected", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr()

    return run


def test_every_sampler_gets_near_the_rows(call, tmp_path):
    """Columns that are copies of one bit: samples that ignore the model would be far away."""
    rng = np.random.default_rng(0)
    bit = rng.integers(0, 2, (300, 1))
    np.save("table.npy", np.where(rng.random((300, 6)) < 0.1, 1 - bit, bit).astype(float))
    how = ["--method", "exact", "--hidden", 3, "--learning-rate", 0.05, "--epochs", 60]
    assert not call("fit", "table.npy", "--out", "model", *how)[0]
    asked = ["--sweeps", "1,20", "--chains", 200, "--json"]
    code, said = call("compare", "model", "table.npy", *asked)
    assert not code
    found = json.loads(said.out)
    assert set(found["samplers"]) == NAMES
    noise = rng.integers(0, 2, (200, 6))
    far = _log_mmd(noise, np.load("table.npy"))
    for name, result in found["samplers"].items():
        margin = 0.0 if name.startswith("perturb") else 0.5  # that one is not exact
        assert result["log_mmd"][-1] < far - margin
        assert all(seconds > 0 for seconds in result["seconds"])
        assert result["effective"] > 1
        for kind, each in (("energies", "per_energy"), ("gradients", "per_gradient")):
            assert (result[each] is None) == (result[kind] == 0)
            assert result[each] is None or 0 < result[each] <= 4  # chains may be antithetic
    work = {name: (one["energies"], one["gradients"]) for name, one in found["samplers"].items()}
    assert work["Gibbs"] == work["block Gibbs"] == work["Wolff"] == (0, 1)
    assert work["discrete Langevin"] == (0, 2)
    assert work["parallel tempering"] == (28, 10)
    assert work["perturb-and-max-product"] == (1, 20)
    assert "perturb-and-max-product" in (tmp_path / "samplers.html").read_text()
    for wrong in ("0,3", "many"):
        code, said = call("compare", "model", "table.npy", "--sweeps", wrong)
        assert code and "pass whole numbers from 1" in said.err


def _log_mmd(x, y):
    kernel = [
        np.exp(-np.abs(a[:, None] - b[None]).mean(-1)).mean() for a, b in ((x, x), (y, y), (x, y))
    ]
    return np.log(kernel[0] + kernel[1] - 2 * kernel[2])


def test_samplers_that_do_not_fit_are_left_out(monkeypatch, capsys):
    """A sparse Ising model has no blocks; factors of three variables have no clusters."""
    pairs = Ising.create(graph.chain(6))
    assert set(compare._samplers(pairs, 8, 20)) == NAMES - {"block Gibbs"}
    layout = discrete(x=6)
    three = FactorGraph.create(layout, [third_order(layout, [[0, 1, 2]], 0.5)])
    found, clusters = compare._samplers(three, 8, 20), {"Swendsen-Wang", "Wolff"}
    assert "Hamming ball" in found and not {*clusters, "block Gibbs"} & set(found)
    assert found["discrete Langevin"][1] == (2, 2)
    monkeypatch.setattr(compare, "MOST_BONDS", 39)
    assert not clusters & set(compare._samplers(pairs, 8, 20))
    assert "no clusters: 40 couplings" in capsys.readouterr().err


def test_chains_of_a_model_with_constraints_start_where_they_hold():
    """Twelve bits in a ring that are all the same: single moves mend no random state."""
    names = [f"x{i}" for i in range(12)]
    pairs = [(a, b) for a, b in zip(names, names[1:] + names[:1], strict=True)]
    model = markov_network(dict.fromkeys(names, 2), {pair: np.eye(2) for pair in pairs})
    rows = np.repeat([[0.0], [1.0]], 12, axis=1).repeat(100, axis=0)
    start, work = compare._samplers(model, 200, 1)["Gibbs"]
    found = compare._measure(start, work, model, rows, 200, 200, [1], 0)
    noise = np.random.default_rng(0).integers(0, 2, (200, 12))
    assert found.log_mmd[-1] < _log_mmd(noise, rows) - 2
