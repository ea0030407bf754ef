"""Run the bash, console and python blocks of a Markdown file in order, up to the first failure.

Usage: python tools/run_readme.py README.md

All blocks share one temporary working folder and have this interpreter's programs first on PATH;
python blocks also share their names. In a console block the lines after `$ ` are run and the rest
is taken for output. A block under `<!-- skip: reason -->` is named and not run.
"""

import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>\w*)")
SKIP = re.compile(r"^\s*<!--\s*skip:\s*(?P<reason>.+?)\s*-->\s*$")
LANGUAGES = ("bash", "console", "python")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its code, the line its code starts on, why it is skipped."""

    language: str
    code: str
    line: int
    skip: str = ""


def blocks(text: str) -> Iterator[Block]:
    """The runnable blocks of a Markdown text."""
    lines = text.splitlines()
    number, skip = 0, ""
    while number < len(lines):
        line = lines[number]
        number += 1
        if mark := SKIP.match(line):
            skip = mark["reason"]
        elif fence := FENCE.match(line):
            start, indent = number, len(fence["indent"])
            while number < len(lines) and lines[number].strip() != fence["ticks"]:
                number += 1
            if number == len(lines):
                raise ValueError(f"line {start}: this block is never closed")
            if fence["language"] in LANGUAGES:
                code = "\n".join(part[indent:] for part in lines[start:number]) + "\n"
                yield Block(fence["language"], code, start + 1, skip)
            number, skip = number + 1, ""
        elif line.strip():
            skip = ""


def commands(console: str) -> str:
    """The commands of a console block: lines after `$ `, and after `> ` where they go on."""
    return "".join(
        line[2:] + "\n" for line in console.splitlines() if line.startswith(("$ ", "> "))
    )


def run_shell(code: str, folder: Path) -> bool:
    """Run shell commands, stopping at the first that fails; whether all went well."""
    programs = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}
    shell = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(shell, cwd=folder, env=environment, stdin=subprocess.DEVNULL)
    return done.returncode == 0


def run_python(block: Block, names: dict, source: str) -> bool:
    """Run python code with shared names; tracebacks show the line of the Markdown file."""
    try:
        exec(compile("\n" * (block.line - 1) + block.code, source, "exec"), names)
    except Exception:
        traceback.print_exc()
        return False
    return True


def run(path: Path) -> int:
    """Run every block of the file; the exit status."""
    found = list(blocks(path.read_text(encoding="utf-8")))
    to_run = [block for block in found if not block.skip]
    if not to_run:
        print(f"{path}: there is no {', '.join(LANGUAGES)} block to run", file=sys.stderr)
        return 2
    names: dict = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        for block in found:
            where = f"{path}:{block.line}"
            if block.skip:
                print(f"== {where} {block.language}: skipped, {block.skip}", flush=True)
                continue
            print(f"== {where} {block.language}\n{block.code}", flush=True)
            if block.language == "python":
                good = run_python(block, names, str(path))
            else:
                code = commands(block.code) if block.language == "console" else block.code
                good = run_shell(code, folder)
            if not good:
                print(f"{where}: this {block.language} block failed", file=sys.stderr)
                return 1
    print(f"{path}: {len(to_run)} blocks ran, {len(found) - len(to_run)} skipped")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {Path(sys.argv[0]).name} FILE.md")
    sys.exit(run(Path(sys.argv[1])))
