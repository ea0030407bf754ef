"""`undirected compare`: samplers side by side."""

import json
import sys

import numpy as np
import pytest

from undirected.cli import main

pytestmark = pytest.mark.slow


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
    assert len(found["samplers"]) == 8
    noise = rng.integers(0, 2, (200, 6))
    far = _log_mmd(noise, np.load("table.npy"))
    for name, result in found["samplers"].items():
        margin = 0.0 if name.startswith("perturb") else 0.5  # that one is not exact
        assert result["log_mmd"][-1] < far - margin
        assert all(seconds > 0 for seconds in result["seconds"])
        assert result["effective"] > 1
    assert "perturb-and-max-product" in (tmp_path / "samplers.html").read_text()
    for wrong in ("0,3", "many"):
        code, said = call("compare", "model", "table.npy", "--sweeps", wrong)
        assert code and "pass whole numbers from 1" in said.err


def _log_mmd(x, y):
    kernel = [
        np.exp(-np.abs(a[:, None] - b[None]).mean(-1)).mean() for a, b in ((x, x), (y, y), (x, y))
    ]
    return np.log(kernel[0] + kernel[1] - 2 * kernel[2])
