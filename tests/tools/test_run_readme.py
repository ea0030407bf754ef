"""The runner of README blocks: what it runs, what it skips, how it fails."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "run_readme.py"


def run(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return subprocess.run([sys.executable, SCRIPT, page], capture_output=True, text=True)


def test_blocks_run_in_order_and_share_folder_and_names(tmp_path):
    done = run(
        tmp_path,
        "# Title\n```bash\necho 41 > number\n```\n"
        "```python\nnumber = int(open('number').read())\n```\n"
        "Text.\n```python\nprint('answer', number + 1)\n```\n",
    )
    assert done.returncode == 0, done.stderr
    assert "answer 42" in done.stdout
    assert "3 blocks ran, 0 skipped" in done.stdout


def test_console_block_runs_commands_and_ignores_output(tmp_path):
    done = run(
        tmp_path, "```console\n$ echo one \\\n> two > file\nnot a command\n$ cat file\n```\n"
    )
    assert done.returncode == 0, done.stderr
    assert "\none two\n" in done.stdout


def test_programs_of_this_interpreter_come_first(tmp_path):
    done = run(tmp_path, "```bash\ncommand -v python\n```\n")
    assert str(Path(sys.executable).parent / "python") in done.stdout


@pytest.mark.parametrize("language", ["text", "json", ""])
def test_other_languages_are_not_run(tmp_path, language):
    done = run(tmp_path, f"```{language}\nexit 1\n```\n```bash\ntrue\n```\n")
    assert done.returncode == 0, done.stderr
    assert "1 blocks ran" in done.stdout


def test_skip_covers_the_next_block_only_and_is_named(tmp_path):
    done = run(
        tmp_path,
        "<!-- skip: needs a GPU -->\n\n```bash\nexit 1\n```\n```bash\necho ran\n```\n",
    )
    assert done.returncode == 0, done.stderr
    assert "page.md:4 bash: skipped, needs a GPU" in done.stdout
    assert "1 blocks ran, 1 skipped" in done.stdout


def test_skip_is_spent_by_text_in_between(tmp_path):
    done = run(tmp_path, "<!-- skip: old -->\nSome text.\n```bash\nexit 1\n```\n")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```bash\nfalse\necho after\n```\n", "page.md:4: this bash block failed"),
        ("```bash\nfalse | true\n```\n", "page.md:4: this bash block failed"),
        ("```console\n$ false\n```\n", "page.md:4: this console block failed"),
        ("```python\n1 / 0\n```\n", "page.md:4: this python block failed"),
    ],
)
def test_failure_names_the_line_and_stops(tmp_path, block, message):
    done = run(tmp_path, "\n\n" + block + "```bash\necho later\n```\n")
    assert done.returncode == 1
    assert message in done.stderr
    assert "\nafter\n" not in done.stdout
    assert "echo later" not in done.stdout


def test_python_traceback_has_the_line_of_the_page(tmp_path):
    done = run(tmp_path, "text\n\n```python\nx = 1\nx / 0\n```\n")
    assert 'page.md", line 5' in done.stderr


def test_page_with_nothing_to_run_fails(tmp_path):
    done = run(tmp_path, "# Title\n")
    assert done.returncode == 2
    assert "no bash, console, python block to run" in done.stderr


def test_unclosed_block_fails(tmp_path):
    done = run(tmp_path, "```bash\ntrue\n")
    assert done.returncode == 1
    assert "line 1: this block is never closed" in done.stderr
