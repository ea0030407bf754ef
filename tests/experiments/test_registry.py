"""Finding experiments: by paper, by name, and what is said when there is none."""

import ast
import sys
from pathlib import Path

import pytest

from undirected import papers
from undirected.core.errors import UndirectedError
from undirected.experiments import registry

TOY = ("toy-paper/figure-3", "toy-paper/table1", "toy-paper/table2")


def test_find_a_paper_without_importing_it(toy):
    assert registry.find("toy-paper") == TOY
    assert set(TOY) < set(registry.names())
    assert not [name for name in sys.modules if "toy_paper" in name]


@pytest.mark.parametrize("name", ["toy-paper/table1", "toy_paper/table1", " toy-paper/table1/ "])
def test_find_one(toy, name):
    assert registry.find(name) == ("toy-paper/table1",)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("toy-papr", "did you mean toy-paper"),
        ("toy-paper/tabel1", "did you mean toy-paper/table1"),
        (
            "toy-paper/qqqqqqqqqqqqqqqqq",
            "mean toy-paper/figure-3 or toy-paper/table1 or toy-paper/t",
        ),
        ("zzzzzzzzzzzz", "the papers are .*toy-paper"),
        ("", "the papers are .*toy-paper"),
        ("toy", "no experiment is called 'toy'"),
    ],
)
def test_unknown_names_list_close_ones(toy, name, hint):
    with pytest.raises(UndirectedError, match=hint):
        registry.find(name)


def test_load(toy):
    experiment = registry.load("toy_paper/table1")
    assert (experiment.name, experiment.title) == ("toy-paper/table1", "Toy table 1")
    assert experiment.config("full")["steps"] == 200
    with pytest.raises(UndirectedError, match="no profile 'quick'; it has smoke, full"):
        experiment.config("quick")


def test_load_wants_one_experiment(toy):
    with pytest.raises(UndirectedError, match=r"'toy-paper' is a paper; .* toy-paper/figure-3, "):
        registry.load("toy-paper")
    with pytest.raises(UndirectedError, match=r"'toy-broken' is a paper; .* toy-broken/bare"):
        registry.load("toy-broken")


def test_load_says_what_a_module_lacks(toy):
    with pytest.raises(UndirectedError, match=r"toy_broken.bare declares no CONFIG, run"):
        registry.load("toy-broken/bare")
    (toy / "toy_broken" / "odd.py").write_text(
        "TITLE = ''\nCONFIG = {'big': {}}\ndef run(config, seed, context): ..."
    )
    with pytest.raises(UndirectedError, match=r"'big'.* is none of smoke, quick, full"):
        registry.load("toy-broken/odd")


def test_every_experiment_declares_what_the_registry_wants():
    room = Path(papers.__file__).parent
    for name in registry.names():
        tree = ast.parse((room / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8"))
        assigned = {
            target.id
            for node in tree.body
            for target in (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            if isinstance(target, ast.Name)
        }
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert {"TITLE", "CONFIG"} <= assigned, name
        assert "run" in defined, name


def test_every_experiment_tells_its_title_without_being_imported():
    for name in registry.names():
        if not name.endswith("norb"):  # needs files of its own
            assert registry.title(name) == registry.load(name).title
    assert registry.title("pmp/nothing") == ""
