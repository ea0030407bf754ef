"""Learning inside an experiment: an interrupted run is never taken for a result."""

import ast
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from undirected import learning, papers
from undirected.experiments.fitting import fit
from undirected.experiments.stages import Context
from undirected.learning import Batches, ContrastiveDivergence
from undirected.models import RBM
from undirected.papers.query_training import grid
from undirected.sampling import BlockGibbs


def learn(how, on_event=None):
    data = np.random.default_rng(0).integers(0, 2, (20, 6)).astype(np.float32)
    return how(
        RBM.create(6, 3, jax.random.key(0)),
        ContrastiveDivergence(BlockGibbs()),
        optax.sgd(0.1),
        Batches(data, 10),
        jax.random.key(1),
        steps=20,
        log_every=5,
        on_event=on_event,
    )


def interrupt(progress):
    if progress.step == 10:
        raise KeyboardInterrupt


def test_an_interrupted_stage_is_not_stored(tmp_path):
    assert learn(learning.fit, interrupt).stopped == "interrupted"
    context = Context("toy/toy", tmp_path, lambda event: None)
    with pytest.raises(KeyboardInterrupt):
        context.stage("learn", lambda: learn(fit, interrupt).step)
    again = Context("toy/toy", tmp_path, lambda event: None)
    assert again.stage("learn", lambda: learn(fit).step) == 20


def test_experiments_learn_in_no_other_way():
    (folder,) = papers.__path__
    plain = [
        str(path)
        for path in Path(folder).glob("*/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("undirected.learning")
        and any(alias.name == "fit" for alias in node.names)
    ]
    assert plain == []


def test_border_ownership_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, (8, 900)).astype(np.uint8), rng.integers(0, 3, (8, 900))
    config = {**grid.CONFIG["smoke"], "epochs": 4}
    rates = np.array([0.8, 0.03, 1e-10])
    work = x, y, x[:2], y[:2], rates, config, 0
    whole = grid._learn(*work, grid.Checkpoints(tmp_path / "whole"))

    def stopped(*args, **kwargs):
        learning.fit(*args, **{**kwargs, "epochs": kwargs["epochs"] / 2})
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(grid, "fit", stopped)
        with pytest.raises(KeyboardInterrupt):
            grid._learn(*work, grid.Checkpoints(tmp_path / "parts"))
    assert list((tmp_path / "parts").glob("step-00000004.*"))
    parts = grid._learn(*work, grid.Checkpoints(tmp_path / "parts"))
    np.testing.assert_array_equal(parts["potentials"], whole["potentials"])
    assert parts["step"].tolist() == whole["step"].tolist()
