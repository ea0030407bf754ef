"""A process that saves without end is killed at random moments: the folder always loads."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.io.toy import Toy
from undirected.io import metrics
from undirected.io.checkpoint import Checkpoints
from undirected.io.model_files import load_model
from undirected.io.model_record import describe_model

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_kill_at_random_moments(tmp_path):
    moments = random.Random(0)
    reached = 0
    for _ in range(5):
        command = [sys.executable, "-m", "tests.io.writer", str(tmp_path)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline(), "the writer did not start"
            time.sleep(moments.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
            lines = writer.stdout.read().split()

        loaded, extra = (
            load_model(tmp_path / "model", {"Toy": Toy}),
            describe_model(tmp_path / "model"),
        )
        saved = extra["extra"]["step"]
        assert np.asarray(loaded.weights).tolist() == np.full((4, 3), saved).tolist()
        assert np.asarray(loaded.bias).tolist() == [saved] * 4
        assert loaded.scale == saved

        found = Checkpoints(tmp_path / "checkpoints").latest({"x": np.zeros(20_000)})
        assert found is not None
        step, tree, meta = found
        assert meta == {"step": step}
        assert (tree["x"] == step).all()
        assert saved - 1 <= step <= saved
        assert step > reached
        assert step >= int((lines or [0])[-1])
        reached = step

        log = metrics.MetricsLog(tmp_path / "metrics.jsonl")
        log.truncate_after(step)
        rows = metrics.read(tmp_path / "metrics.jsonl")
        assert all(row["value"] == row["step"] <= step for row in rows)
    assert reached > 5
