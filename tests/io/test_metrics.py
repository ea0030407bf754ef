import errno
import json
import math
import os

import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.errors import BadFile
from undirected.io.metrics import MetricsLog, read


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not strict JSON")

    return json.loads(text, parse_constant=refuse)


def test_lines_are_strict_json_and_come_back(tmp_path):
    path = tmp_path / "runs" / "metrics.jsonl"
    log = MetricsLog(path)
    log.append(1, {"loss": 0.5, "rate": np.float32(0.25), "n": np.int64(3), "x": jnp.ones(())})
    log.append(2, {"loss": math.nan, "high": math.inf, "low": -math.inf, "note": "é", "none": None})
    lines = [strict(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == {"step": 1, "loss": 0.5, "rate": 0.25, "n": 3, "x": 1.0}
    assert (lines[1]["loss"], lines[1]["high"], lines[1]["low"]) == ("NaN", "Infinity", "-Infinity")
    rows = read(path)
    assert math.isnan(rows[1]["loss"])
    assert rows[1]["high"] == math.inf
    assert rows[1]["low"] == -math.inf
    assert rows[1]["note"] == "é"
    assert rows[1]["none"] is None


def test_each_line_is_there_at_once(tmp_path):
    log = MetricsLog(tmp_path / "m.jsonl")
    for step in range(3):
        log.append(step, {"a": step})
        assert [row["step"] for row in read(log.path)] == list(range(step + 1))


def test_resume_drops_later_lines(tmp_path):
    log = MetricsLog(tmp_path / "m.jsonl")
    log.truncate_after(3)
    assert not log.path.exists()
    for step in range(6):
        log.append(step, {"a": step})
    log.truncate_after(3)
    log.append(4, {"a": 40})
    assert [(row["step"], row["a"]) for row in read(log.path)] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 40),
    ]


@pytest.mark.parametrize("cut", range(1, 25))
def test_an_unfinished_line_is_dropped_wherever_it_was_cut(tmp_path, cut):
    log = MetricsLog(tmp_path / "m.jsonl")
    log.append(1, {"loss": 1.5})
    whole = log.path.read_bytes()
    log.append(2, {"loss": 2.5})
    two = log.path.read_bytes()
    log.path.write_bytes(two[:-cut])
    assert len(two) - len(whole) == 25
    kept = [1, 2] if cut == 1 else [1]  # only the line's end is gone
    assert [row["step"] for row in read(log.path)] == kept
    MetricsLog(log.path).append(3, {"loss": 3.5})
    assert [row["step"] for row in read(log.path)] == [*kept, 3]
    assert all(strict(line) for line in log.path.read_text().splitlines())


def test_zeros_after_a_power_cut_are_dropped(tmp_path):
    log = MetricsLog(tmp_path / "m.jsonl")
    log.append(1, {"a": 1})
    log.path.write_bytes(log.path.read_bytes() + bytes(100))
    assert [row["step"] for row in read(log.path)] == [1]
    log.truncate_after(1)
    assert log.path.read_bytes() == b'{"step": 1, "a": 1}\n'


@pytest.mark.parametrize(
    "line", [b"junk\n", b"[1]\n", b'{"a": 1}\n', b'{"step": "x"}\n', b"\xff\n"]
)
def test_a_bad_line_is_named(tmp_path, line):
    path = tmp_path / "m.jsonl"
    good = b'{"step": 1}\n'
    path.write_bytes(good + line + good)
    with pytest.raises(BadFile, match=r"m.jsonl, line 2: not a line of metrics"):
        read(path)
    with pytest.raises(BadFile, match="line 2"):
        MetricsLog(path).truncate_after(0)
    assert path.read_bytes() == good + line + good


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    log = MetricsLog(tmp_path / "m.jsonl")
    log.append(1, {"a": 1})
    before = log.path.read_bytes()
    real = open

    class Full:
        """A file on a disk with room for five more bytes."""

        def __init__(self, *args, **kwargs):
            self.file = real(*args, **kwargs)

        def __enter__(self):
            return self

        def __exit__(self, *args):
            self.file.close()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, data):
            return self.file.write(data[:5])

    monkeypatch.setattr("builtins.open", Full)
    with pytest.raises(OSError, match="No space left") as caught:
        log.append(2, {"a": 2})
    monkeypatch.undo()
    assert caught.value.errno == errno.ENOSPC
    assert log.path.read_bytes() == before


def test_bad_arguments(tmp_path):
    log = MetricsLog(tmp_path / "m.jsonl")
    with pytest.raises(ValueError, match="'step'"):
        log.append(1, {"step": 2})
    with pytest.raises(TypeError, match="a object cannot be written as JSON"):
        log.append(1, {"a": object()})
    assert not log.path.exists() or not os.path.getsize(log.path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.jsonl")
