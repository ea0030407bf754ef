"""The page of a benchmark record: bars for every case, then the tables, curves and notes."""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks import tables
from undirected.report.markdown import table
from undirected.report.page import Image, Section, record_section, write_sections

TIME, RATIO = "milliseconds", "times as long as ours"
WIDTH, LEFT, LINE = 600, 185, 26
INK, OURS_COLOUR, OTHER_COLOUR = "#767676", "#2a7f62", "#8a9bb0"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.page", description=main.__doc__)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/index.html"))
    parser.add_argument("--docs", type=Path, help="also write this page of the documentation")
    arguments = parser.parse_args()
    found = [json.loads(file.read_text(encoding="utf-8")) for file in arguments.records]
    write(found, arguments.out)
    if arguments.docs:
        arguments.docs.write_text(markdown_of(found), encoding="utf-8")


def markdown_of(records: Sequence[Mapping[str, Any]]) -> str:
    """The page of the documentation of one benchmark: that of speed, or one with its own page."""
    from benchmarks import discs, families, growth, imputation, physics
    from benchmarks.uai import page as uai  # which draws with what is here

    name = records[0]["experiment"].split("/")[-1]
    several = {"discs": discs, "families": families, "growth": growth}
    several |= {"mixing": physics, "uai": uai}
    if name in several:
        return several[name].markdown(*records)
    own = {"tables": tables, "imputation": imputation}
    return own[name].markdown(records[0]) if name in own else markdown(records)


def write(records: Sequence[Mapping[str, Any]], out: Path) -> None:
    """One HTML file, bars first."""
    sections = []
    for record in records:
        cases = bars(record)
        images = [Image(svg.encode(), caption=case, name=case) for case, svg in cases.items()]
        if images:
            text = "Milliseconds of one step, on a logarithmic scale; shorter is faster."
            sections.append(Section(f"{record['title']}: bars", text, images=images))
        sections.append(record_section(record))
    write_sections(sections, out, "Speed")


def bars(record: Mapping[str, Any]) -> dict[str, str]:
    """An SVG picture for every case that has times."""
    cases: dict[str, dict[str, float]] = {}
    for row in record["rows"]:
        if row["metric"] == TIME and row["ours"]:
            cases.setdefault(row["case"], {})[row["method"]] = row["ours"]
    return {case: bar_chart(times) for case, times in cases.items()}


def bar_chart(times: Mapping[str, float]) -> str:
    """Horizontal bars on a logarithmic scale that begins at a tenth of the shortest."""
    low = math.log10(min(times.values())) - 1
    span = math.log10(max(times.values())) - low
    ours = times.get("ours")
    height = LINE * len(times) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="15">'
    ]
    for i, (name, value) in enumerate(times.items()):
        y = LINE * i + 4
        length = (WIDTH - LEFT - 190) * (math.log10(value) - low) / span
        colour = OURS_COLOUR if name == "ours" else OTHER_COLOUR
        label = f"{_number(value)} ms"
        if ours and name != "ours":
            label += f"  ({_number(value / ours)} ×)"
        parts += [
            f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end" fill="{INK}">',
            f"{escape(name)}</text>",
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{LINE - 6}" fill="{colour}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}" fill="{INK}">{label}</text>',
        ]
    return "".join([*parts, "</svg>"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def markdown(records: Sequence[Mapping[str, Any]]) -> str:
    """The page of the documentation, written from the records."""
    parts = ["# Speed", "", INTRODUCTION]
    for record in records:
        shown = [r for r in record["rows"] if r["metric"] in SHOWN or "gpu" in record["experiment"]]
        parts += ["", f"## {record['title']}", ""]
        parts.append(f"On {record['device']}, {record['versions']['platform']}.\n")
        parts.append(table({**record, "rows": shown}))
        parts += [f"- {note}" for note in record.get("notes", ())]
    return "\n".join(parts) + "\n"


SHOWN = (TIME, RATIO, "compile (s)", "first answer (s)", "peak memory (MB)")
INTRODUCTION = """\
`make bench` runs this library beside what one would use instead, on the same inputs, in one run:
repetitions are interleaved, every contestant has a process and every peer an environment of its
own, answers are compared, compilation is timed apart. A turn begins with a pause, in which the
threads of others fall asleep, and where it is short with runs that are not timed.
`make bench ARGS=--quick` takes under five minutes once the peers are installed.
The numbers below are those of the committed records; this page is written from them by `python -m
benchmarks.page results/benchmarks/{cpu,gpu,on-chip,parts}-full.json --docs docs/speed.md`.

Where the speed comes from:

- **Belief propagation** on a dense bipartite model keeps one array of odds ratios and renews it in
  place; a half-sweep is one division per message, and one logarithm per sixteen.
- **Random numbers** are made inside the loop that uses them, by the same block function as JAX's
  own generator, which on a CPU takes ten times as long. On ARM two rows are made at once: each
  round waits for the one before, and the other row fills that time. (Of the record below, block
  Gibbs with 1,000 and 10,000 chains and annealed importance sampling were timed before that.)
- **Annealing and tempering** of RBMs scale products of units and weights, not weights: all
  temperatures share them, and a step makes two where it made four. (Annealed importance sampling
  was timed before that, too; on two cores it takes 0.4 of the time now.)
- **Ising lattices** with equal couplings hold 32 spins in a word and draw them bit by bit.
- **On a GPU** `SumProduct` keeps the messages of a batch of models in registers for all iterations:
  they never touch the memory. Models of up to 1,024 by 256 units fit, with weights that all share,
  or some do, such as seeds that learn side by side; an instance stops when it has settled. Larger
  models, and one alone, read and write each message once per half-sweep.
- **Max-product on a GPU** writes the messages of dense models every fifth round only. Each round
  makes those since again from the totals of both units, on which alone they depend.
  Where messages have not settled at the end, it decodes some units otherwise than array operations
  do; as many differ between single and double precision of the latter (0.7 % of 900 spins).

What is left on the table; the counters of the kernel on chip are at the end of this page:

- The form on chip renews 10⁹ messages in 2.0 ms, no faster than reading and writing them once
  would be, so that it pays by stopping early: 0.7 ms until all have settled. It took 1.6 ms before
  instances could stop and a wait that is in vain was given up; the counters are of that form. It
  leaves the memory alone (1 % in use), takes 26 instructions a message and uses 53 % of the issue
  slots. With every slot in use the same instructions would take 0.8 ms; for 0.6 ms at this use
  there may be 10 of them. A message needs six: two products, two sums, a reciprocal, and a product
  for the sums of logarithms. Most of the others belong to the division, which takes care of numbers
  that do not come up here, and to the moving of odds.
- A reciprocal without that care, as inline assembly, made the kernel slower (1.9 ms), likely
  because the compiler no longer mixes the instructions of different messages.
- The odds are read again for each half of an iteration. They would fit the first-level cache, but
  only 5 % of reads hit it: each meeting of a team empties it, since the counter is read with
  acquire order. So they come from the second level, where an instruction waits 0.8 cycles for them
  on average; barriers cost 1.1 cycles, latency of arithmetic 0.9.
- Registers, 168 a thread, let three programs share a multiprocessor: 12 warps of 64, too few to
  hide the meetings behind. More warps or wider tiles spill.
- Pallas does not offer relaxed order for the counter. Odds in shared memory, which no meeting
  empties, and sums added up in the second-level cache are what to try next.
- A sweep of block Gibbs on a GPU takes 1.9 times as long as its products. To compare and write
  states is 0.3 of that, 20 rounds of Threefry 0.35, and logarithms and the rest 0.25. Thirteen
  rounds would save 0.12, both words of a block for two chains 0.07; Philox by XLA's own generator
  takes longer. Below 1.5 needs a product whose last step draws.
- Max-product of 10 rounds on 225 instances of 625 units, five models in all, takes 1.2 ms on an
  H200; it took 2.5 ms where every round read and wrote each message. With every issue slot in use
  its instructions would take 0.7 ms. Tried without gain: programs that go from instance to instance
  and read ahead, and clipping by absolute values instead of minimum and maximum; rounds as a loop
  take a quarter longer. Messages of 16 bits would save a sixth, but totals that do not settle move
  by up to 0.3.
- On a CPU, "Where the time goes" below is of our loops, whole and with parts left out. Belief
  propagation spends half its time on sums of messages, block Gibbs four fifths on its two products,
  a step of persistent chains three fifths on its five. That was before free energies took one
  logarithm for some eighty hidden units: a tenth of such a step went to them. What is left
  beside the products goes, in this order, to random draws, to sigmoids, to gathering rows and to
  the update.
"""


if __name__ == "__main__":
    main()
