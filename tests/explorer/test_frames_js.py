"""How the page shares its frames among methods: rounds are counted, with a clock made by hand."""

import pytest

from tests.explorer.node import needs_node, run_node

pytestmark = needs_node

SLICES = """
import { readFileSync } from "node:fs";
import { Runs } from "./dom.mjs";
const { costs, rounds, gaps, first, again } = JSON.parse(readFileSync(0, "utf-8"));
let clock = 0, frame = null, released = 0;
globalThis.requestAnimationFrame = (work) => (frame = work);

class Toy {
  constructor(method) { Object.assign(this, { method, left: rounds }); }
  get done() { return this.left === 0; }
  get waiting() { return costs[this.method] === null; }
  step() { this.left -= 1; clock += costs[this.method]; counts[this.method] += 1; }
  release() { released += 1; }
}
const model = { run: (method) => new Toy(method) };
let counts = {};
const zero = () => Object.fromEntries(Object.keys(costs).map((m) => [m, 0]));
const runs = new Runs(model, Object.keys(costs), () => {}, {}, () => clock);
runs.first = first;
runs.ask({});
const slices = [];
for (const gap of gaps) {
  if (!frame) break;
  if (slices.length === again) runs.ask({});
  counts = zero();
  const work = frame, start = clock;
  frame = null;
  work(start);
  slices.push({ counts, took: clock - start });
  clock = start + Math.max(gap, clock - start);
}
process.stdout.write(JSON.stringify({ slices, settled: runs.settled, released }));
"""


def slices(folder, costs, rounds=50, gaps=None, first="bp", again=-1):
    told = {"costs": costs, "rounds": rounds, "first": first, "again": again}
    return run_node(folder, SLICES, told | {"gaps": gaps or [16.7] * 200})


def test_a_frame_is_held_up_by_its_budget_and_one_round_at_most(tmp_path):
    costs = {"bp": 0.5, "mf": 0.25, "tempered": 5}
    found = slices(tmp_path, costs)
    assert found["settled"]
    assert max(s["took"] for s in found["slices"]) <= 6 + max(costs.values())
    assert max(s["took"] for s in found["slices"]) > 6  # whole budgets are used
    done = {m: sum(s["counts"][m] for s in found["slices"]) for m in costs}
    assert done == dict.fromkeys(costs, 50)


def test_the_method_in_view_has_every_other_round(tmp_path):
    found = slices(tmp_path, {"mf": 1, "bp": 1, "tap": 1, "gibbs": 1}, rounds=20)
    counts = found["slices"][0]["counts"]
    assert counts["bp"] > max(counts["mf"], counts["tap"], counts["gibbs"])
    for s in found["slices"][:3]:
        assert s["counts"]["bp"] >= 3


def test_late_frames_get_less_work_and_prompt_ones_more_again(tmp_path):
    gaps = [16.7] * 3 + [40] * 5 + [16.7] * 12
    found = slices(tmp_path, {"bp": 1}, rounds=1000, gaps=gaps)
    took = [s["took"] for s in found["slices"]]
    assert max(took[:3]) == 6 and min(took[4:9]) == 2 and took[-1] == 6
    assert not found["settled"]


def test_a_new_question_ends_the_old_runs(tmp_path):
    found = slices(tmp_path, {"bp": 1, "mf": 1}, rounds=10, again=1)
    assert found["released"] == 2 and found["settled"]
    assert sum(s["counts"]["bp"] for s in found["slices"]) > 10  # those of the first question too


def test_what_waits_for_an_answer_does_not_hold_frames_up(tmp_path):
    """A run whose answer comes from elsewhere takes no time, and the others go on."""
    found = slices(tmp_path, {"bp": None, "mf": 1}, rounds=10, gaps=[16.7] * 9)
    assert sum(s["counts"]["mf"] for s in found["slices"]) == 10
    assert all(s["took"] == 0 for s in found["slices"][3:])
    assert not found["settled"] and len(found["slices"]) == 9


METER = """
import { readFileSync } from "node:fs";
import { Meter } from "./dom.mjs";
const meter = new Meter();
for (const [time, work] of JSON.parse(readFileSync(0, "utf-8"))) meter.add(time, work);
const { rate, longest, text } = meter;
process.stdout.write(JSON.stringify({ rate, longest, text }));
"""


@pytest.mark.parametrize("rate", [30, 60], ids=str)
def test_the_meter_counts_frames_of_the_last_second(tmp_path, rate):
    slow = [[100 * i, 90] for i in range(20)]  # then a pause, after which only this counts
    quick = [[9000 + 1000 * i / rate, 3 + i % 2] for i in range(3 * rate)]
    found = run_node(tmp_path, METER, slow + quick)
    assert found["rate"] == pytest.approx(rate, rel=0.02) and found["longest"] == 4
    assert found["text"] == f"{rate} frames a second, work of up to 4 ms in each."
    assert run_node(tmp_path, METER, slow[:3])["text"] == ""
