"""The page of lattices and glasses, from the records of its benchmarks."""

from collections.abc import Mapping
from typing import Any

from benchmarks.saving import docs_page

INTRODUCTIONS = {
    "mixing": """\
`make bench ARGS=mixing` runs chains of the Ising model on a 64 x 64 torus at its critical
temperature, from the same equilibrated starts; seconds are CPU seconds. What does not change when
all spins turn over, such as the size of the magnetisation, gains least by clusters: a sweep of
`Gibbs`, 32 spins to a word, is some hundred times as cheap. The larger the lattice, the more
clusters gain: sweeps of `Gibbs` grow with the square of the side, those of cluster moves hardly.
""",
    "partition": """\
`make bench ARGS=partition` estimates log Z where it is known: tori against Kaufman's exact value,
and an RBM at the checkpoints of its training against the sum over its hidden units. Replicas along
the checkpoints of a training (`un.TrainingPath`) stand beside as many temperatures. Numbers are
log Z, its standard error, and how many of these it is from the exact value.
""",
    "spin_glass": """\
`make bench ARGS=spin_glass` looks for the ground states of three-dimensional glasses whose
couplings are +1 and -1; the lowest energies known of them are published. `un.anneal` cools
replicas 32 to a word, again and again from half-way, and combines each with what it was, and in
turn with another: where two states differ, coupled spins form clusters, each of which either
state has better, and the better of every one is taken. Replicas that no longer gain begin again.
It and the annealers of dwave-samplers and OpenJij stop at the known energy, ours after 60 seconds
at the latest, they after the CPU seconds that ours took on that instance (a second or more).
Parallel tempering makes as many sweeps with cluster moves between its replicas as without.
""",
    "lattices": """\
`python -m benchmarks.lattices` draws 32 replicas to a word, each with random digits of its own.
""",
}
SPEED, DISTANCE = "spins drawn a nanosecond", "standard errors from Onsager's energy"


def markdown(*records: Mapping[str, Any]) -> str:
    """The page of the documentation, a part for every record."""
    parts, files = ["# Lattices and glasses", ""], []
    for record in records:
        name = record["experiment"].split("/")[-1]
        record = speeds(record) if name == "lattices" else record
        body = distances(record) if name == "partition" else ""
        parts += [docs_page(record["title"], INTRODUCTIONS[name], record, 2, body), ""]
        files.append(f"results/benchmarks/{name}-full.json")
    command = f"python -m benchmarks.page {' '.join(files)} --docs docs/lattices.md"
    parts.append("The numbers are those of the committed records; this page is written by")
    return "\n".join([*parts, "", "```text", command, "```", ""])


def speeds(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rows of speed alone, and how far the energies are from the exact ones as a note."""
    far = max(abs(row["ours"]) for row in record["rows"] if row["metric"] == DISTANCE)
    rows = [row for row in record["rows"] if row["metric"] == SPEED]
    note = f"Energies of the Ising model are within {far:.1f} standard errors of Onsager's."
    return {**record, "rows": rows, "notes": [*record.get("notes", ()), note]}


def distances(record: Mapping[str, Any]) -> str:
    """A line for every log Z: the exact value, and that of every method with its error."""
    rows = [row for row in record["rows"] if row["metric"] == "log Z"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [f"| | exact | {' | '.join(methods)} |", "| :-- " + "| --: " * (len(methods) + 1) + "|"]
    for case in dict.fromkeys(row["case"] for row in rows):
        own = {row["method"]: row for row in rows if row["case"] == case}
        exact = next(iter(own.values()))["paper"]
        cells = [
            f"{row['ours']:.2f} ± {row['stderr']:.2f} "
            f"({abs(row['ours'] - exact) / row['stderr']:.1f})"
            if (row := own.get(method))
            else ""
            for method in methods
        ]
        lines.append(f"| {case} | {exact:.2f} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
