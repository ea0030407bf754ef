"""`python -m benchmarks families`: contacts and correlations of protein and RNA families.

`python -m benchmarks.families` is the same with JAX, Equinox and SciPy alone, as on an accelerator.

Needs `families.tar.xz` in the folder that `UNDIRECTED_DATA` names. Each family is learned by every
method; where distances are known, the share of the best L and 2L pairs (more than 4 apart along the
chain) below 8 Angstrom is counted. Maximum likelihood goes to a Pearson correlation of 0.95 between
the connected two-point correlations of data and chains, and is then measured again with fresh
chains. adabmDCA gets some times the CPU seconds after which persistent chains were there, which are
all that it asks, and stops earlier where its own are. Penalties and pseudocounts are those of the
literature, the schedule of the chains was chosen by fresh chains on RF00379 and PF13354; the
tolerance of L-BFGS was made finer after contacts were seen.
"""

import io
import json
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.environments import prepare
from benchmarks.saving import Kept, make_record, others, save
from undirected.alignment import (
    BoltzmannSettings,
    FamilyModel,
    fit_family,
    frequencies,
    pearson_of,
    predictive_value,
    read_fasta,
    sequence_weights,
)
from undirected.alignment.boltzmann import profile_chains
from undirected.alignment.sequences import Alignment
from undirected.data.cache import find
from undirected.experiments.record import Row
from undirected.ops.dense_potts import sweeps

ARCHIVE = "families.tar.xz"
FAMILIES = {
    "PF00014": ("PF00014_mgap6.fasta", "PF00014_struct.dat"),
    "PF13354": ("PF13354_wo_ref_seqs.fasta", "PF13354_struct.dat"),
    "RF00379": ("RF00379.fasta", None),
}
METHODS = ("mean-field", "pseudo-likelihood", "pcd")
PEER = "adabmDCA 1.0.0"
AT_L, AT_2L = "contacts right at L", "contacts right at 2L"
PEARSON, FRESH = "Pearson reached", "Pearson of fresh chains"
SECONDS, CPU, STEPS = "seconds", "CPU seconds", "steps"
THERE, CPU_THERE = (f"{clock} until persistent chains are there" for clock in (SECONDS, CPU))
TARGET, LOOKS = 0.95, 10
GOALS = {"PF00014": 0.90, "PF13354": 0.91}
TITLE = "Families of proteins and RNA"


class Size(NamedTuple):
    """Chains and sweeps of the second look at Pearson, sequences at most, the peer's time."""

    chains: int
    sweeps: int
    sequences: int | None
    peer: float


def main(quick: bool, only: str, out: Path) -> None:
    """Run what `only` names ("PF00014 pcd"; all without it), renew it in the record, and draw."""
    import jax

    place = "" if jax.default_backend() == "cpu" else "-gpu"
    profile = "quick" if quick else "full"
    size = Size(500, 20, 500, 3.0) if quick else Size(10_000, 100, None, 3.0)
    file = out / f"families{place}-{profile}.json"
    for family in FAMILIES:
        for method in (*METHODS, PEER):
            if only not in f"{family} {method}" or (method == PEER and place):
                continue
            began = time.process_time()
            found, said = measure(family, method, size, earlier(file, family, method).rows)
            rows, notes, seconds = earlier(file, family, method)  # another run may have written
            seconds += time.process_time() - began
            write(rows + found, notes + said, profile, seconds, file)


def earlier(file: Path, family: str, method: str) -> Kept:
    """What a record has of the other runs."""
    kept = others(file, [family], [method])
    own = f"{family}, {method}:", "Goal"
    return kept._replace(notes=[note for note in kept.notes if not note.startswith(own)])


def write(rows: list[Row], notes: list[str], profile: str, seconds: float, file: Path) -> None:
    """The record and the page of the runs so far."""
    name = "families-gpu" if "gpu" in file.name else "families"
    said = [*goals(rows), *notes]
    record = make_record(name, profile, {"target": TARGET}, seconds, rows, TITLE, said)
    save(record, file)
    if name == "families-gpu":
        return
    from undirected.report.page import record_section, write_sections  # needs more than JAX

    write_sections([record_section(record.to_dict())], file.with_suffix(".html"), TITLE)


def measure(family: str, method: str, size: Size, rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Learn a family by a method; what it gave, and what is to be said of it."""
    alignment, distances = load(family)
    if size.sequences:
        keep = slice(size.sequences)
        names = alignment.names[keep]
        alignment = Alignment(alignment.states[keep], alignment.letters, names)
    if method == PEER:
        return run_peer(family, alignment, size, rows)
    settings, (wall, cpu) = BoltzmannSettings(target=TARGET), clocks()
    there: list[tuple[float, float]] = []

    def tell(_: int, pearson: float) -> None:
        if method == "pcd" and pearson >= TARGET:
            there.append(clocks())

    model = fit_family(alignment, method, settings=settings, progress=tell)
    values = {SECONDS: clocks()[0] - wall, CPU: clocks()[1] - cpu}
    if there:
        values |= {THERE: there[0][0] - wall, CPU_THERE: there[0][1] - cpu}
    values |= contact_values(model, distances)
    if method == "pseudo-likelihood":
        values[STEPS] = model.notes["steps"]
    if method == "pcd":
        values[STEPS], values[PEARSON] = model.notes["steps"], model.notes["pearson"]
        values[FRESH] = fresh_pearson(model, alignment, size)
    for metric, value in values.items():
        print(f"{family} | {method} | {metric}: {value:.4g}", flush=True)
    return [as_row(family, method, metric, value) for metric, value in values.items()], []


def as_row(family: str, method: str, metric: str, value: float) -> Row:
    lower = metric in (SECONDS, CPU, STEPS, THERE, CPU_THERE)
    return Row(family, method, metric, float(value), better="lower" if lower else "higher")


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def load(family: str) -> tuple[Alignment, np.ndarray | None]:
    """The alignment of a family, and its distances where there are any."""
    sequences, structure = FAMILIES[family]
    where = find(ARCHIVE)
    if where is None:
        raise SystemExit(f"families: no {ARCHIVE} in the folder that UNDIRECTED_DATA names")
    with tarfile.open(where) as archive, tempfile.TemporaryDirectory() as folder:
        fasta = Path(folder) / sequences
        fasta.write_bytes(member(archive, sequences))
        alignment = read_fasta(fasta)
        if structure is None:
            return alignment, None
        rows = np.loadtxt(io.BytesIO(member(archive, structure)))
    distances = np.full((alignment.n_positions,) * 2, np.nan)
    i, j = rows[:, :2].astype(int).T - 1
    distances[i, j] = distances[j, i] = rows[:, 3]
    return alignment, distances


def member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(f"families/{name}")
    assert file is not None
    return file.read()


def contact_values(model: FamilyModel, distances: np.ndarray | None) -> dict[str, float]:
    """Shares of the best L and 2L pairs that touch."""
    if distances is None:
        return {}
    length, found = model.n_positions, model.contacts()
    counts = {AT_L: length, AT_2L: 2 * length}
    return {name: predictive_value(found, distances, count) for name, count in counts.items()}


def fresh_pearson(model: FamilyModel, alignment: Alignment, size: Size) -> float:
    """Pearson between data and chains that start anew at independent positions.

    Frequencies of the chains are means over ten looks, five sweeps apart, after the first sweeps.
    """
    import jax
    import jax.numpy as jnp

    weights, q = sequence_weights(alignment), alignment.n_states
    data = frequencies(alignment.states, q, weights, 1 / weights.sum())
    fields, couplings = model.potts.fields, jnp.asarray(model.potts.coupling_matrix)
    x = profile_chains(jax.nn.softmax(fields, axis=1), size.chains, jax.random.key(1))
    run, total = jax.jit(sweeps), 0.0
    for look in range(LOOKS):
        count = size.sweeps if look == 0 else 5
        x = run(fields, couplings, x, jax.random.key(2 + look), count)
        states = np.asarray(x.reshape(*fields.shape, -1).argmax(1).T)
        total = total + frequencies(states, q).pairs / LOOKS
    return pearson_of(data, np.einsum("iaia->ia", total), total)


def run_peer(
    family: str, alignment: Alignment, size: Size, rows: list[Row]
) -> tuple[list[Row], list[str]]:
    """adabmDCA with its defaults, for some times the CPU seconds until our chains were as far."""
    took = {row.metric: row.ours for row in rows if (row.case, row.method) == (family, "pcd")}
    ours, whole = took.get(CPU_THERE), took.get(CPU)
    home = prepare("adabmdca", Path("build/peers").absolute())
    if home.python is None or ours is None:
        why = home.problem or "our own chains have not been measured yet"
        return [], [f"{family}, {PEER}: no result: {why}"]
    limit = size.peer * ours
    with tempfile.TemporaryDirectory() as folder:
        fasta = Path(folder) / "family.fasta"
        lines = zip(alignment.names, alignment.sequences, strict=True)
        fasta.write_text("".join(f">{name}\n{text}\n" for name, text in lines))
        kind = "rna" if alignment.n_states == 5 else "protein"
        script = Path(__file__).parent / "peers" / "adabmdca.py"
        command = [home.python, script, fasta, kind, str(TARGET), f"{limit:.1f}", folder]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        return [], [f"{family}, {PEER}: no result: {done.stderr.strip()[-300:]}"]
    found = json.loads(done.stdout.splitlines()[-1])
    told = {PEARSON: found["pearson"], STEPS: found["steps"]}
    told |= {SECONDS: found["seconds"], CPU: found["cpu"]}
    reached = found["pearson"] >= TARGET
    word = "reached" if reached else "had not reached"
    note = (
        f"{family}, {PEER}: {word} Pearson {TARGET} after {found['cpu']:,.0f} CPU seconds and "
        f"{found['steps']} steps (Pearson {found['pearson']:.3f}); our persistent chains had "
        f"after {ours:,.0f}, and chains that start anew after {whole:,.0f}."
    )
    print(note, flush=True)
    return [as_row(family, PEER, metric, value) for metric, value in told.items()], [note]


def goals(rows: list[Row]) -> Iterator[str]:
    """Which goals were reached; not so only where every method was tried."""
    values = {(row.case, row.method, row.metric): row.ours for row in rows}
    for family, goal in GOALS.items():
        found = {m: v for m in METHODS if (v := values.get((family, m, AT_2L))) is not None}
        best = max(found, key=lambda method: found[method], default=None)
        if best and (found[best] >= goal or len(found) == len(METHODS)):
            word = "reached" if found[best] >= goal else "not reached"
            yield f"Goal: {family} at 2L {goal:.2f}: {word}, {found[best]:.3f} by {best}."


GUIDE = """\
# Protein and RNA families

A family is an alignment: a FASTA file in which every sequence has the same number of aligned
letters, `-` for gaps. Lower-case letters are inserts and are dropped (A2M, A3M); files of the
Stockholm form and packed files are read too, and what is wrong is told with its line and name. A
Potts model of it has a field for every letter at every position and a table of couplings for every
pair of positions; strong couplings are contacts.

```python
import numpy as np
import undirected as un

rng = np.random.default_rng(0)
pairs = {"A": "U", "C": "G", "G": "C", "U": "A"}
rows = ["".join(rng.choice(list("ACGU"), 12)) for _ in range(500)]
rows = [row[:9] + (pairs[row[2]] if rng.random() < 0.8 else row[9]) + row[10:] for row in rows]
un.write_fasta("family.fasta", un.Alignment.of(rows, "rna"))

family = un.fit_family(un.read_fasta("family.fasta"))
best = family.contacts()
assert (best.i[0], best.j[0]) == (3, 10)  # positions from 1
effects = family.mutations(rows[0])  # E(mutant) - E(sequence): position, then letter
new = family.sample(50, sweeps=50)
held = family.sample(50, sweeps=50, given={3: "G", 5: "A"})  # letters that stay, from position 1
found = un.potts_log_z(family.potts, betas=100, chains=100)
print(family.energies(new).mean(), found.value, found.integrated, found.entropy)
```

The same at the command line:

```bash
undirected fit family.fasta --model potts --out family-model
undirected contacts family-model --out contacts.csv --png map.png
undirected sample family-model --out new.fasta --count 20 --sweeps 50
undirected evaluate family-model new.fasta --betas 100 --chains 100
```

| `--method` | is | for |
|---|---|---|
| `pseudo-likelihood` | plmDCA, symmetric, l2 penalty 0.01, L-BFGS; the default | contacts |
| `pcd` | maximum likelihood by persistent chains (bmDCA), to `--target` 0.95 | new sequences |
| `mean-field` | minus the inverse of the correlations, with a pseudocount of 0.5 | a quick look |
| `rise`, `logrise` | interaction screening | strong couplings and many sequences |

Sequences that agree in 80 % of their positions share their weight. Contacts are ranked by the
Frobenius norm of the couplings in the zero-sum gauge without the gap, less the average product.
`pcd` divides the slope of every coupling by f(a) f(b) + 0.01, and along modes in which many
positions vary together by the variances of data and chains, so that some tens of steps are enough;
chains are swept as matrix products. The model is a mean over the latest steps: single ones lean to
one or another group of sequences, by the noise of the chains, and chains that start anew fall to
that side. It stops when such chains, from independent positions and 100 sweeps long, have the
correlations of the data. The Pearson is that of the model they come from: 2,000 draws from the data
themselves have 0.87 to 0.96 with them, by their noise, and how much of it there is one half of the
chains tells against the other. Where new chains agree with the persistent ones, some steps more
will do; where they do not, learning begins again at half the rate with four times the sweeps a
step, and the next chains are twice as long.
`family.notes` has the Pearson and whether it `converged`. A `pcd` that was stopped goes on when the
same command is given again.

## Three families
"""
INTRODUCTION = """\
`make bench ARGS=families` learns three families by every method and looks at the contacts: the
share of the best L and 2L pairs, more than 4 apart along the chain, that lie below 8 Å. `pcd`
goes to a Pearson correlation of 0.95 between the connected two-point correlations of data and
of the model, by chains that start anew; *fresh chains* are 10,000 others of that kind, with their
noise. adabmDCA, with its defaults, asks persistent chains alone, and gets three times or more the
CPU seconds after which ours are there (*until persistent chains are there*), unless its own are
before. Penalties and pseudocounts are those of the literature; the
schedule of the chains was chosen by the Pearson of fresh chains on RF00379 and PF13354. L-BFGS
stops where a step gains less than 1e-6 of the value; this was made finer, from 1e-5, after the
contacts of PF00014 had been seen: at 1e-5 its value at 2L hung on where the search began, by one
pair of 106. Going on to 1e-8, 93 steps in place of 70, leaves it as it is.
The CPU was shared with other work, so CPU seconds are what to compare there; on the GPU nothing
else ran. Compilation is among ours, and on the GPU most of the time. The numbers are those of the
committed records, `families-full.json` and `families-gpu-full.json` of `results/benchmarks`; this
page is written from both, in this order: `python -m benchmarks.page ... --docs docs/proteins.md`.
"""


def markdown(*found: Mapping[str, Any]) -> str:
    """The page of the documentation, written from the records."""
    from undirected.report.markdown import table

    parts = [GUIDE, INTRODUCTION]
    for record in found:
        parts += [f"On {record['device']}.", ""]
        parts += [f"- {note}" for note in record.get("notes", ())]
        parts += ["", table(record)]
    return "\n".join(parts)


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(prog="benchmarks.families")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    arguments = parser.parse_args()
    main(arguments.quick, arguments.only, arguments.out)
