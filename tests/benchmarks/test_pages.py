"""Pages of the documentation that are written from records of benchmarks."""

import json
from pathlib import Path

import pytest
from benchmarks.page import markdown_of
from benchmarks.uai.page import family_lines

ROOT = Path(__file__).parents[2]
PAGES = {
    "speed": ["cpu-full", "gpu-full", "on-chip-full", "parts-full"],
    "density": ["tables-full"],
    "discs": ["discs-full", "rbm_kernels-full"],
    "imputation": ["imputation-full"],
    "uai": ["uai-20s", "uai-60s"],
    "proteins": ["families-full", "families-gpu-full"],
    "scaling": ["growth-full", "streaming-full"],
    "lattices": ["mixing-full", "partition-full", "spin_glass-full", "lattices-full"],
}


def record(name):
    path = ROOT / "results" / "benchmarks" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PAGES)
def test_no_number_is_typed_by_hand(name):
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert page == markdown_of([record(one) for one in PAGES[name]])


def test_a_line_of_a_family():
    rows = [
        {"case": "map Grids", "method": "ours", "metric": metric, "ours": value, "n": n}
        for metric, value, n in (("score", 50.04, 2), ("seconds", 3.0, 2), ("within 1 %", 50.0, 2))
    ]
    single = {"case": "map Grids_1", "method": "ours", "metric": "score", "ours": 1.0, "n": None}
    assert family_lines({"rows": [*rows, single]}, "map") == ["| Grids | 2 | 50.0 | 3.0 | 50 % |"]
    assert family_lines({"rows": rows}, "pr") == []
