"""`python -m benchmarks uai`: this library and its peers on problems of the UAI 2014 competition.

The problems are in `uai2014_a.tar.xz` of the data folder (`UNDIRECTED_DATA`). Every problem runs in
a process of its own, start-up included, under a limit of time and of memory. A late or missing
answer scores 0. Writes a record and a page with a bar for every family. Every result is kept beside
the problems as it comes, so that a run that was stopped goes on, and contestants may come one after
the other; results of this library hold for the source that made them.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import mean

from benchmarks import environments
from benchmarks.harness import OURS
from benchmarks.saving import make_record, save
from benchmarks.uai import page, score
from undirected.core.errors import DataNotFound
from undirected.experiments.provenance import source_hash
from undirected.experiments.record import Row
from undirected.io.uai import read_evidence, read_uai

ARCHIVE = "uai2014_a.tar.xz"
GRACE = 1.0
"""Seconds after the limit in which an answer is still taken: the system's own delays."""
PUBLISHED = {
    "mar": {"ibia (2022)": 90.0, "uai14 (2022)": 77.2},
    "map": {"toulbar2-vns (2022)": 98.5},
}
"""Means of the leader board of the 2022 tuning round at 20 s, without Promedus; other hardware."""
TITLE = "UAI 2014 problems"
WITH_TOULBAR2 = "ours with toulbar2"
CONTESTANTS = {
    "mar": (OURS, "pyagrum", "pgmpy"),
    "pr": (OURS,),
    "map": (OURS, WITH_TOULBAR2, "toulbar2"),
}
PEER = Path(__file__).with_name("peer.py")


@dataclass(frozen=True)
class Result:
    """A score from 0 to 100, and how it came about."""

    problem: str
    contestant: str
    task: str
    score: float
    seconds: float
    gap: float | None = None
    trouble: str = ""
    proved: bool = False

    @property
    def family(self) -> str:
        return self.problem.rsplit("_", 1)[0]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks uai", description=__doc__)
    several = {"type": float, "nargs": "+", "default": [20.0, 60.0]}
    parser.add_argument("--seconds", **several, help="for each problem; a record for each limit")
    parser.add_argument("--memory", type=float, default=12.0, help="GiB for each process")
    parser.add_argument("--tasks", default="mar,pr,map")
    parser.add_argument("--only", default="", help="only problems whose name contains this")
    everyone = ",".join(dict.fromkeys(name for own in CONTESTANTS.values() for name in own))
    parser.add_argument("--contestants", default=everyone, help="names, with commas between")
    parser.add_argument("--fresh", action="store_true", help="forget the results so far")
    parser.add_argument("--problems", type=Path, default=Path("build/uai2014"))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="environments")
    given = parser.parse_args(arguments)
    given.problems = unpack(given.problems)
    for seconds in given.seconds:
        run(argparse.Namespace(**{**vars(given), "seconds": seconds}))


def run(given: argparse.Namespace) -> None:
    """All contestants on all problems with one limit of time: a record and a page."""
    profile = f"{given.seconds:g}s"
    config = {"seconds": given.seconds, "memory (GiB)": given.memory, "only": given.only}
    config |= {"cores": len(os.sched_getaffinity(0))}
    kept = Kept(given.problems / f"results-{profile}.jsonl", config, source_hash(), given.fresh)
    results = []
    for task in given.tasks.split(","):
        for name, command, path in contestants(task, given):
            for model in problems(given.problems, task, given.only):
                result = kept.find(name, task, model.stem)
                if result is None:
                    result = attempt(name, task, model, command, given, path)
                    kept.add(result)
                    show(result)
                results.append(result)
    seconds = sum(one.seconds for one in results)
    record = make_record("uai", profile, config, seconds, rows(results), TITLE, notes(results))
    save(record, given.out / f"uai-{profile}.json")
    page.write_page(record.to_dict(), PUBLISHED, given.out / f"uai-{profile}.html")
    print(f"\nWrote {given.out / f'uai-{profile}.json'} and the page beside it")


def unpack(folder: Path) -> Path:
    """The folder that has MAR and MAP in it, unpacked from the archive where there is none yet."""
    if not any(folder.rglob("MAR")):
        archive = Path(os.environ.get("UNDIRECTED_DATA", ".")) / ARCHIVE
        if not archive.is_file():
            raise DataNotFound(
                f"{archive}: not there; put it into the folder UNDIRECTED_DATA names"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    return next(folder.rglob("MAR")).parent


def problems(folder: Path, task: str, only: str) -> list[Path]:
    """The networks of a task by name; it is an error to ask for what is not there."""
    own = folder / ("MAP" if task == "map" else "MAR")
    found = sorted(file for file in own.glob("*.uai") if only in file.name)
    if not found:
        raise DataNotFound(f"{own}: no *.uai" + (f" whose name contains {only!r}" if only else ""))
    return found


def contestants(
    task: str, given: argparse.Namespace
) -> Iterator[tuple[str, list[str], Path | None]]:
    """Names; the command that answers, with MODEL, EVIDENCE and OUT to be filled in; and a folder
    of packages that it may use beside its own."""
    limits = ["--seconds", str(given.seconds), "--memory", f"{given.memory / 3:g}G"]
    files = ["MODEL", "--evidence", "EVIDENCE", "--out", "OUT"]
    solve = [sys.executable, "-m", "undirected", "solve", *files, "--task", task, *limits]
    for name in CONTESTANTS[task]:
        if name not in given.contestants.split(","):
            continue
        if name == OURS:
            yield name, solve, None
            continue
        peer = environments.prepare(name.split()[-1], given.peers.absolute())
        if peer.python is None:
            print(f"{name}: {peer.problem}")
        elif name == WITH_TOULBAR2:
            yield name, solve, next(peer.python.parent.parent.glob("lib/python*/site-packages"))
        else:
            rest = [task, "MODEL", "EVIDENCE", "OUT", f"{max(given.seconds - 2, 1):g}"]
            yield name, [str(peer.python), str(PEER), name, *rest], None


class Kept:
    """The results so far, a line each, with the limits and the source they were made with."""

    def __init__(self, file: Path, config: Mapping[str, object], source: str, fresh: bool = False):
        self.file, self.source = file, source
        self.limits = {key: value for key, value in config.items() if key != "only"}
        if fresh:
            file.unlink(missing_ok=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        self.results = dict(self._entry(json.loads(line)) for line in lines)

    @staticmethod
    def _entry(kept: dict) -> tuple[tuple, Result]:
        result = Result(**kept["result"])
        names = result.contestant, result.task, result.problem
        return (*names, kept["source"], json.dumps(kept["limits"])), result

    def _made_with(self, contestant: str) -> str:
        """The source that a result depends on: peers are not of this library."""
        return self.source if contestant.startswith(OURS) else ""

    def find(self, contestant: str, task: str, problem: str) -> Result | None:
        key = (contestant, task, problem, self._made_with(contestant), json.dumps(self.limits))
        return self.results.get(key)

    def add(self, result: Result) -> None:
        source = self._made_with(result.contestant)
        line = {"result": asdict(result), "source": source, "limits": self.limits}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def attempt(
    name: str,
    task: str,
    model: Path,
    command: list[str],
    given: argparse.Namespace,
    path: Path | None = None,
) -> Result:
    """Run one contestant on one problem and score its answer."""
    evidence, out = Path(f"{model}.evid"), given.problems / f"answer-{os.getpid()}.txt"
    out.unlink(missing_ok=True)
    files = {"MODEL": str(model), "EVIDENCE": str(evidence), "OUT": str(out)}
    own = [files.get(word, word) for word in command]
    environment = dict(os.environ)
    if path is not None:
        before = [environment["PYTHONPATH"]] if "PYTHONPATH" in environment else []
        environment["PYTHONPATH"] = os.pathsep.join([*before, str(path)])
    start, trouble, proved = time.perf_counter(), "", False
    try:
        done = subprocess.run(
            _limited(own, given.memory),
            capture_output=True,
            text=True,
            env=environment,
            timeout=given.seconds + GRACE,
        )
        proved = done.stdout.strip() == "proved"
        if done.returncode:
            trouble = done.stderr.strip().splitlines()[-1][:200] if done.stderr else "no answer"
    except subprocess.TimeoutExpired:
        trouble = "late"
    seconds, points, gap = time.perf_counter() - start, 0.0, None
    if not trouble and out.is_file():
        points, gap = judged(task, model, evidence, out)
    return Result(model.stem, name, task, points, seconds, gap, trouble, proved)


def _limited(command: list[str], gib: float) -> list[str]:
    """The command with a limit for its memory, set by a shell: this process has threads, and none
    may run Python between fork and exec."""
    return ["sh", "-c", f'ulimit -v {int(gib * 2**20)} && exec "$@"', "sh", *command]


def judged(task: str, model: Path, evidence: Path, out: Path) -> tuple[float, float | None]:
    """The score of an answer, and for MAP how far it is below the best known."""
    if task == "mar":
        reference = score.read_marginals(Path(f"{model}.MAR"))
        return score.score_marginals(score.read_marginals(out), reference), None
    network = read_uai(model)
    if task == "pr":
        reference = score.read_partition(Path(f"{model}.PR"))
        trivial = score.trivial_log_z(network, read_evidence(evidence, network))
        return score.score_partition(score.read_partition(out), reference, trivial), None
    values = [score.log_value(network, score.read_state(p)) for p in (out, Path(f"{model}.MAP"))]
    return score.score_map(*values), score.map_gap(*values)


def show(one: Result) -> None:
    gap = "" if one.gap is None else f", {100 * one.gap:.3f} % below the best known"
    text = (
        f"{one.task} {one.problem:22s} {one.contestant:10s} {one.score:6.2f} {one.seconds:6.1f} s"
    )
    print(text + gap + (f"  {one.trouble}" if one.trouble else ""), flush=True)


def rows(results: list[Result]) -> list[Row]:
    """Means over families and over all, then every problem."""
    found = []
    groups = defaultdict(list)
    doubtful = any(one.family == "relational" for one in results)
    for one in results:
        groups[one.task, "all", one.contestant].append(one)
        if doubtful and one.task != "map" and one.family != "relational":
            groups[one.task, "all but relational", one.contestant].append(one)
        groups[one.task, one.family, one.contestant].append(one)
    for (task, family, contestant), own in groups.items():
        case, n = f"{task} {family}", len(own)
        found.append(
            Row(case, contestant, "score", mean(r.score for r in own), n=n, better="higher")
        )
        spent = mean(r.seconds for r in own)
        found.append(Row(case, contestant, "seconds", spent, n=n, better="lower"))
        gaps = [r.gap for r in own if r.gap is not None]
        if gaps:
            close = 100 * mean(gap <= 0.01 for gap in gaps)
            metric = "within 1 % of the best known (%)"
            found.append(Row(case, contestant, metric, close, n=n, better="higher"))
    for one in results:
        case = f"{one.task} {one.problem}"
        found.append(Row(case, one.contestant, "score", one.score, better="higher"))
    return found


def notes(results: list[Result]) -> list[str]:
    known = [
        f"{name}: {value} in {task}"
        for task, own in PUBLISHED.items()
        for name, value in own.items()
    ]
    board = "Leader board of the 2022 tuning round, other hardware, without Promedus: "
    relational = (
        "The references of the relational models are no exact answers. Those of log Z of "
        "relational_4 and relational_5 are above the number of variables times log 2 plus the "
        "sum of the largest log entries of all tables, which no log Z exceeds. That of the "
        "marginals of relational_4 has probabilities of 0.622 where the neighbours allow 0.512 at "
        "most; its exact marginals, sums over two counts (python -m benchmarks.uai.relational), "
        "score 12.55. So the mean without them is given too."
    )
    return [board + ", ".join(known), relational, *proofs(results), *troubles(results)]


def troubles(results: list[Result]) -> list[str]:
    """How often each contestant gave no answer, and why: late, or the kind of its error."""
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in results:
        if one.trouble:
            found[one.task, one.contestant][_kind(one.trouble)] += 1
    told = []
    for (task, contestant), kinds in found.items():
        why = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        told.append(f"{task}: {contestant}: no answer to {kinds.total()} problems: {why}")
    return told


def _kind(trouble: str) -> str:
    """An error without what it says of this problem, and without the modules it comes from."""
    if any(word in trouble for word in ("MemoryError", "bad_alloc", "too big")):
        return "out of memory"
    return trouble.split(":")[0].rsplit(".", 1)[-1]


def proofs(results: list[Result]) -> list[str]:
    """How many of the best states that toulbar2 proves, ending before its time, others have too."""
    gaps: dict[str, dict[str, float]] = defaultdict(dict)
    for one in results:
        if one.task == "map" and one.gap is not None:
            gaps[one.contestant][one.problem] = one.gap
    ended = {r.problem for r in results if r.contestant == "toulbar2" and r.proved}
    found = []
    for name in (OURS, WITH_TOULBAR2):
        if ended and gaps[name]:
            same = [
                problem
                for problem in ended
                if gaps[name].get(problem, inf) <= gaps["toulbar2"][problem] + 1e-9
            ]
            rest = ", ".join(sorted(ended - set(same)))
            found.append(
                f"toulbar2 proves its state on {len(ended)} problems; {name}: as good on "
                f"{len(same)}" + (f", not on {rest}" if rest else "")
            )
    return found
