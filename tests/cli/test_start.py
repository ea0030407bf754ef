"""Start-up and size: what is imported before a command runs, and how much memory a table takes."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.launch import ROOT, command_without_jax
from undirected.cli import remove_unused


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "sys.argv = ['undirected', '--help']\n"
        "from undirected.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'jax', 'numpy', 'matplotlib', 'sklearn', 'scipy', 'optax', 'pandas'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


def test_help_fills_its_lines_and_keeps_examples_apart():
    """Lines of a docstring are not those of a terminal of 80 columns."""
    told = {
        name: subprocess.run(
            [sys.executable, "-m", "undirected", name, "-h"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "80"},
        ).stdout
        for name in ("fit", "contacts")
    }
    assert "model folder. An interrupted run goes on where it stopped" in told["fit"]
    examples = [line.split()[1] for line in told["contacts"].splitlines() if "family-model" in line]
    assert examples == ["fit", "contacts"]


@pytest.mark.parametrize("wrong", ["fit t.csv --model rmb", "query m q.csv --method bpp"])
def test_a_wrong_name_is_told_before_anything_heavy_is_imported(wrong):
    assert "did you mean" in command_without_jax(*wrong.split()).stderr


def test_a_small_table_is_fitted_in_numpy_alone(tmp_path):
    """Hidden states are enumerated: nothing to compile, and no optimiser to import."""
    rng = np.random.default_rng(0)
    lines = [
        f"{rng.normal():.2f},{rng.choice(['a', 'b', 'c'])},{rng.random():.2f}" for _ in range(60)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y,z", *lines]))
    code = (
        "import sys\n"
        "sys.argv = ['undirected', 'fit', 'rows.csv', '--json']\n"
        "from tests.compiled import compilations\n"
        "from undirected.cli import main\n"
        "with compilations() as made:\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        "print('MADE', made, 'optax' in sys.modules)\n"
    )
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=settings,
        cwd=tmp_path,
    )
    assert (tmp_path / "model" / "report.html").is_file(), done.stderr
    assert "MADE [] False" in done.stdout


def test_compiled_programs_are_kept(tmp_path):
    """In the user's cache, apart by processor; nowhere where JAX's own variable is empty."""
    code = (
        "import sys\n"
        "sys.argv = ['undirected', '--help']\n"
        "from undirected.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "import jax\n"
        "print('PLACE', jax.config.jax_compilation_cache_dir)\n"
    )
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    found = []
    for own in (None, ""):
        settings.pop("JAX_COMPILATION_CACHE_DIR", None)
        if own is not None:
            settings["JAX_COMPILATION_CACHE_DIR"] = own
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=settings
        )
        found.append(done.stdout.split("PLACE ", 1)[1].strip())
    folder, _, processor = found[0].rpartition(os.sep)
    assert folder == str(tmp_path / "undirected" / "compiled") and processor
    assert found[1] == ""


def test_programs_that_were_not_used_for_longest_go_first(tmp_path):
    for number in range(6):
        path = tmp_path / f"processor{number % 2}" / f"program{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (1000 + number, 500))  # used, written
    os.utime(tmp_path / "processor0" / "program0", (0, 2000))  # written last

    def kept() -> set[str]:
        return {path.name for path in tmp_path.glob("*/*")}

    remove_unused(tmp_path, 600)
    assert len(kept()) == 6
    remove_unused(tmp_path, 250)
    assert kept() == {"program0", "program5"}
    remove_unused(tmp_path / "nowhere", 0)


def test_the_users_programs_are_bounded_and_those_of_others_left_alone(tmp_path, monkeypatch):
    from undirected import cli

    asked = []
    monkeypatch.setattr(cli, "remove_unused", lambda *given: asked.append(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "own"))
    cli.keep_compiled_programs()
    assert not asked and os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "own")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    cli.keep_compiled_programs()
    assert asked == [(tmp_path / "undirected" / "compiled", cli.MOST_BYTES)]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc for its peak memory")
def test_a_hundred_thousand_rows_stay_small(tmp_path):
    """100,000 x 60 with missing entries: fitted and queried, peak memory under 1.5 GB."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, (100_000, 60)).astype(object)
    values[rng.random(values.shape) < 0.05] = ""
    text = "\n".join(",".join(map(str, row)) for row in values.tolist())
    (tmp_path / "t.csv").write_text(",".join(f"c{i}" for i in range(60)) + "\n" + text + "\n")
    code = (
        "import json, re, sys\n"
        "from pathlib import Path\n"
        "from undirected.cli import main\n"
        "def call(*a):\n"
        "    sys.argv = ['undirected', *a]\n"
        "    try:\n        main()\n"
        "    except SystemExit as stop:\n        assert not stop.code, stop.code\n"
        "call('fit', 't.csv', '--out', 'm', '--epochs', '1', '--hidden', '20', '--json')\n"
        "call('query', 'm', 't.csv', '--out', 'a.npy', '--json')\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    fitted, asked, peak = done.stdout.splitlines()
    assert json.loads(fitted)["rows"] == json.loads(asked)["rows"] == 100_000
    assert not np.isnan(np.load(tmp_path / "a.npy")).any()
    assert int(peak) < 1_500_000


def test_progress_is_silent_without_a_terminal_unless_asked(monkeypatch):
    """A bar that is not asked gives no line and stops no work; one that is says the end."""
    from rich.console import Console

    from undirected.cli import console

    lines = []
    monkeypatch.setattr(console, "say", lines.append)
    monkeypatch.setattr(console, "note", Console(file=io.StringIO()))
    quiet, told = console.Bar("sample", told=False), console.Bar("sample", told=True)
    assert quiet.teller is None and told.teller is not None
    quiet.update(3, 3)
    assert lines == []
    told.update(3, 3)
    assert lines == ["sample: 3 of 3 steps"]


def test_a_closed_standard_output_is_no_crash(monkeypatch):
    from undirected.cli import console

    monkeypatch.setattr(sys, "stdout", None)
    console.result({"rows": 3}, as_json=True)
    console.result({"rows": 3}, as_json=False)
