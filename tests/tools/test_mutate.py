"""The tool that mutates the code: what it changes, and which tests a mutant meets."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="cosmic-ray is not installed: `make mutate` brings it")
SPEC = importlib.util.spec_from_file_location(
    "mutate", Path(__file__).parents[2] / "tools" / "mutate.py"
)
assert SPEC is not None
assert SPEC.loader is not None
mutate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutate)
SOURCE = """
def area(a: int | float, b: int = 2) -> int | None:
    found: int | None = a * b
    return found if a > 0 else None
"""


def test_operators_and_numbers_are_changed_and_types_are_not():
    found = list(mutate.mutations("x.py", SOURCE))
    changed = {mutate.mutate(SOURCE, one) for one in found}
    assert SOURCE not in changed
    assert all("a: int | float" in text and "-> int | None" in text for text in changed)
    assert all("found: int | None" in text for text in changed)
    assert any("found: int | None = a + b" in text for text in changed)
    assert any("if a <= 0" in text for text in changed)
    assert any("b: int =" in text and "b: int = 2" not in text for text in changed)


def test_what_changes_nothing_is_left_alone():
    source = (
        "def f(a, b):\n    return [x is y for x, y in zip(a, b, strict=True)], dict(loose=True)\n"
    )
    source += "def g(a):\n    return f(*a), g(x + 1 for x in a)\n"
    changed = {mutate.mutate(source, one) for one in mutate.mutations("x.py", source)}
    assert any("loose=False" in text for text in changed)
    assert any("x is not y" in text for text in changed)
    assert not any("strict=False" in text or "x == y" in text for text in changed)


def test_places_are_drawn_once_each_and_the_same_by_seed():
    found = list(mutate.mutations("x.py", SOURCE))
    drawn = mutate.draw(found, 3, 1)
    assert drawn == mutate.draw(found, 3, 1)
    assert len({(one.line, one.column) for one in drawn}) == 3
    everything = mutate.draw(found, 1000, 0)
    assert len(everything) == len({(one.line, one.column) for one in found})


def test_a_sample_stays_what_it_was_where_the_code_does():
    source = "\n".join(f"def f{i}(x):\n    return x * {i} + {i}" for i in range(12))
    longer = f"import math\n\n\ndef new(x):\n    return math.pi - x\n{source}"

    def drawn(text: str, seed: int = 0) -> set[tuple[str, int, str, str]]:
        some = mutate.draw(list(mutate.mutations("x.py", text)), 10, seed)
        return {(one.text, one.column, one.operator, mutate.change(one, text)) for one in some}

    assert len(drawn(source)) == 10
    assert len(drawn(source) & drawn(longer)) >= 9
    assert len(drawn(source) & drawn(source, seed=1)) < 8


def test_short_tests_come_first_up_to_the_budget():
    seconds = {"a": 5.0, "b": 1.0, "c": 50.0, "d": 2.0}
    assert mutate.choose_tests([{"a", "b", "c"}], seconds, 10.0) == (["b", "a"], 6.0)
    assert mutate.choose_tests([{"a", "c"}, {"b", "d"}], seconds, 7.5) == (["a", "b"], 6.0)
    assert mutate.choose_tests([set(), {"c"}], seconds, 10.0) == (["c"], 50.0)
    assert mutate.choose_tests([set()], seconds) == ([], 0.0)


REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_c[1]" time="2.5"/>
<testcase classname="tests.a.test_b.TestD" name="test_e" time="0.5"/>
<testcase classname="tests.a.test_b" name="test_f" time="1.0"><failure/></testcase>
<testcase classname="tests.a.test_b" name="test_g" time="1.0"><skipped/></testcase>
</testsuite></testsuites>"""


def test_tests_that_fail_by_themselves_judge_nothing(tmp_path):
    report = tmp_path / "junit.xml"
    report.write_text(REPORT)
    seconds = mutate.durations(report)
    assert seconds == {"tests/a/test_b.py::test_c[1]": 2.5, "tests/a/test_b.py::TestD::test_e": 0.5}
    failing = {"tests/a/test_b.py::test_f"}
    assert mutate.choose_tests([failing], seconds) == ([], 0.0)


def test_tests_of_the_file_come_after_those_of_the_line():
    """Line 1 is run by an import, line 9 by nothing."""
    lines = {"x.py": {1: [], 4: ["a"], 5: ["a", "b"]}, "y.py": {1: ["c"]}}
    places = {1: (set(), {"a", "b"}), 4: ({"a"}, {"b"}), 9: (set(), {"a", "b"})}
    for line, wanted in places.items():
        one = mutate.Mutation("x.py", "op", 0, line, 0)
        assert mutate.passing_by(one, lines) == wanted
        assert mutate.is_run(one, lines) == (line != 9)
    elsewhere = mutate.Mutation("z.py", "op", 0, 1, 0)
    assert mutate.passing_by(elsewhere, lines) == (set(), set())
    assert not mutate.is_run(elsewhere, lines)
