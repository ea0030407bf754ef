"""Change the code a little, one place at a time, and see whether the fast tests notice.

Usage: python tools/mutate.py [--places 200] [--seed 0] [--workers 2] [--only PATH]

Places are drawn from the rooms that compute: an operator, a comparison, a number or a loop in a
function, never an annotation or a `strict=True`. At each, one mutation of cosmic-ray is drawn. Both
by hashes, so that a sample stays what it was where the code does, and scores can be compared. The
fast tests are run once with coverage, so that a mutant meets the tests that come by its line, then
those that come by its file: an import runs a line for all of them, and what one test has compiled
runs unseen in the next. The shortest come first, up to BUDGET seconds of them. What is found is
kept in build/mutate: the same command goes on.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutate"
ROOMS = ("core", "factors", "inference", "sampling", "learning", "evaluation")
LEFT_OUT = ("Variable", "RemoveDecorator", "ExceptionReplacer", "AddNot", "_Is_Eq", "_IsNot_NotEq")
"""Operators that need settings, or whose mutants mostly compute the same."""
BUDGET = 90.0
"""Seconds of tests that a mutant meets, by the durations of the run with coverage."""
FAST = ["-m", "not slow and not smoke", "-q", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Mutation:
    """The `occurrence`-th place of an operator in a file, where that is, and what its line says."""

    file: str
    operator: str
    occurrence: int
    line: int
    column: int
    text: str = ""


def mutations(file: str, source: str) -> Iterator[Mutation]:
    """All mutations of a source, except those of annotations."""
    from cosmic_ray import plugins  # pyright: ignore[reportMissingImports]
    from cosmic_ray.ast import ast_nodes, get_ast  # pyright: ignore[reportMissingImports]

    nodes, lines = list(ast_nodes(get_ast(source))), source.splitlines()
    for name in plugins.operator_names():
        if any(part in name for part in LEFT_OUT):
            continue
        operator, occurrence = plugins.get_operator(name)(), 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                if not is_annotation(node) and not is_guard(node):
                    text = lines[line - 1].strip()
                    yield Mutation(file, name, occurrence, line, column, text)
                occurrence += 1


def is_annotation(node) -> bool:
    """Whether a node of a syntax tree is part of a type."""
    while (parent := node.parent) is not None:
        if parent.type == "tfpdef":
            return True
        if parent.type == "annassign" and node is parent.children[1]:
            return True
        if parent.type == "funcdef" and node is parent.annotation:
            return True
        node = parent
    return False


def is_guard(node) -> bool:
    """Whether a node is the truth of `strict=True`, which changes nothing where lengths agree."""
    parent = node.parent
    if parent is None or parent.type != "argument":
        return False
    return getattr(parent.children[0], "value", "") == "strict"


def mutate(source: str, mutation: Mutation) -> str:
    """The source with one mutation."""
    from cosmic_ray import plugins  # pyright: ignore[reportMissingImports]
    from cosmic_ray.mutating import mutate_code  # pyright: ignore[reportMissingImports]

    operator = plugins.get_operator(mutation.operator)()
    changed = mutate_code(source, operator, mutation.occurrence)
    if changed is None:
        raise ValueError(f"{mutation} does not occur")
    return changed


def draw(found: list[Mutation], places: int, seed: int) -> list[Mutation]:
    """One mutation at each of some places, all of them equally likely.

    The places with the smallest hashes, which depend on the seed, the file and the text alone.
    """

    def rank(mutation: Mutation, *more) -> bytes:
        key = seed, mutation.file, mutation.text, mutation.column, *more
        return hashlib.sha256(repr(key).encode()).digest()

    by_place: dict[tuple, list[Mutation]] = defaultdict(list)
    for one in found:
        by_place[one.file, one.line, one.column].append(one)
    chosen = sorted(by_place.values(), key=lambda some: rank(some[0]))[:places]
    return [
        min(enumerate(some), key=lambda one: rank(one[1], one[1].operator, one[0]))[1]
        for some in chosen
    ]


def passing_by(
    mutation: Mutation, lines: dict[str, dict[int, list[str]]]
) -> tuple[set[str], set[str]]:
    """Tests that come by a line, and the others that come by its file."""
    of_file = lines.get(mutation.file, {})
    near = set(of_file.get(mutation.line, []))
    return near, set().union(*of_file.values()) - near


def is_run(mutation: Mutation, lines: dict[str, dict[int, list[str]]]) -> bool:
    """Whether an import or a test runs the line, as far as coverage sees: not in a subprocess."""
    return mutation.line in lines.get(mutation.file, {})


def choose_tests(
    groups: Iterable[set[str]], seconds: dict[str, float], budget: float = BUDGET
) -> tuple[list[str], float]:
    """Tests of the first group, then of the next, the shortest of each; and their time.

    As many as fit into the budget, and at least one.
    """
    chosen, total = [], 0.0
    for ids in groups:
        for test in sorted(ids & seconds.keys(), key=lambda test: seconds[test]):
            if chosen and total + seconds[test] > budget:
                break
            chosen.append(test)
            total += seconds[test]
    return chosen, total


def environment(copy: Path) -> dict[str, str]:
    """Of a test run on a copy; programs that a mutation leaves alone are compiled once for all."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [f"{copy / 'src'}", f"{copy}", os.environ.get("PYTHONPATH", "")]
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(WORK / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def make_copy(name: str) -> Path:
    """The parts of the checkout that tests need."""
    copy = WORK / name
    shutil.rmtree(copy, ignore_errors=True)
    ignore = shutil.ignore_patterns("__pycache__")
    for part in ("src", "tests", "tools", "benchmarks", "docs", "results"):
        shutil.copytree(ROOT / part, copy / part, ignore=ignore)
    for file in ("pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / file, copy)
    return copy


def cover(workers: int) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """Which tests that pass come by each line of each file, and the seconds of each of them."""
    import coverage  # pyright: ignore[reportMissingImports]

    copy, report = make_copy("whole"), WORK / "coverage"
    if not report.exists():
        settings = ["--cov=undirected", "--cov-context=test", "--cov-report=", "-n", f"{workers}"]
        settings += ["--continue-on-collection-errors", f"--junitxml={WORK / 'junit.xml'}"]
        command = [sys.executable, "-m", "pytest", *FAST, *settings]
        ended = subprocess.run(command, cwd=copy, env=environment(copy), check=False)
        if ended.returncode not in (0, 1):
            raise SystemExit(f"the run with coverage ended with {ended.returncode}: see above")
        shutil.copy(copy / ".coverage", report)
    data = coverage.CoverageData(str(report))
    data.read()
    lines = {}
    for file in data.measured_files():
        if "/src/" not in file:  # what tests write and import
            continue
        by_line = data.contexts_by_lineno(file)
        tests = {n: [c.rsplit("|", 1)[0] for c in some if c] for n, some in by_line.items()}
        lines["src/" + file.rsplit("/src/", 1)[1]] = tests
    return lines, durations(WORK / "junit.xml")


def durations(junit: Path) -> dict[str, float]:
    """The seconds of every test of a report that passed, by its id.

    A test that fails on the code as it is would call every mutant killed.
    """
    found = {}
    for case in ET.parse(junit).iter("testcase"):
        if {"failure", "error", "skipped"} & {part.tag for part in case}:
            continue
        module, *classes = case.attrib["classname"].split(".Test")
        file = module.replace(".", "/") + ".py"
        inside = "".join(f"::Test{name}" for name in classes)
        found[f"{file}{inside}::{case.attrib['name']}"] = float(case.attrib["time"])
    return found


def judge(mutation: Mutation, tests: list[str], seconds: float, copy: Path) -> str:
    """Whether tests notice a mutation: "killed", "killed: no end", or "survived"."""
    place = copy / mutation.file
    source = place.read_text(encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", *FAST, *tests]
    place.write_text(mutate(source, mutation), encoding="utf-8")
    try:
        ended = subprocess.run(
            command, cwd=copy, env=environment(copy), capture_output=True, timeout=120 + 4 * seconds
        )
        return "survived" if ended.returncode == 0 else "killed"
    except subprocess.TimeoutExpired:
        return "killed: no end"
    finally:
        place.write_text(source, encoding="utf-8")


def change(mutation: Mutation, source: str) -> str:
    """The line before and after, for people."""
    before, after = source.splitlines(), mutate(source, mutation).splitlines()
    return f"{before[mutation.line - 1].strip()}  ->  {after[mutation.line - 1].strip()}"


def run(chosen: list[Mutation], workers: int) -> list[dict]:
    """Judge every mutation that was not judged yet, several at a time."""
    lines, seconds = cover(workers)
    log = WORK / "found.jsonl"
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {json.dumps(one["mutation"]): one for one in known}
    copies: Queue[Path] = Queue()
    for i in range(workers):
        copies.put(make_copy(f"worker-{i}"))

    def work(mutation: Mutation) -> dict:
        if (key := json.dumps(asdict(mutation))) in done:
            return done[key]
        tests, total = choose_tests(passing_by(mutation, lines), seconds)
        copy = copies.get()
        try:
            verdict = judge(mutation, tests, total, copy) if tests else "survived"
        finally:
            copies.put(copy)
        if verdict == "survived" and not is_run(mutation, lines):
            verdict = "survived: no test runs the line"
        changed = change(mutation, (ROOT / mutation.file).read_text(encoding="utf-8"))
        found = {"mutation": asdict(mutation), "verdict": verdict, "change": changed}
        with log.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{verdict:8} {mutation.file}:{mutation.line}  {found['change']}", flush=True)
        return found

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, chosen))


def main() -> None:
    """Draw, judge, and print the score and the survivors."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--places", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--only", default="", help="part of the path of a file")
    given = arguments.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    files = [p for room in ROOMS for p in sorted((ROOT / "src/undirected" / room).rglob("*.py"))]
    names = [p.relative_to(ROOT).as_posix() for p in files]
    found = [
        one
        for name in names
        if given.only in name
        for one in mutations(name, (ROOT / name).read_text(encoding="utf-8"))
    ]
    results = run(draw(found, given.places, given.seed), given.workers)
    survivors = [one for one in results if one["verdict"].startswith("survived")]
    killed = len(results) - len(survivors)
    print(f"\n{killed} of {len(results)} mutants killed ({100 * killed / len(results):.0f} %)")
    for one in survivors:
        where = f"{one['mutation']['file']}:{one['mutation']['line']}"
        print(f"{one['verdict']}: {where}  {one['change']}")


if __name__ == "__main__":
    main()
