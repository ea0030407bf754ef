"""`import undirected as un`: every name is there, says what it takes and gives, and starts quickly.

The rule for docstrings: a function has `Args:` with every parameter (where it has any), `Returns:`
and `Example:`. A class has `Args:` with every parameter of its constructor, and `Example:`; where
its instances can be called also `Returns:`, what such a call gives. An exception or an enumeration
takes nothing from the user and needs an `Example:` only. Examples are run.
"""

import ast
import doctest
import enum
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un

NAMES = [name for name in un.__all__ if name != "__version__"]
MODULES = {"alignment", "graph", "sklearn"}
FOLDER = Path(un.__file__).parent


def sections(text):
    """The sections of a docstring: {"Args": its text, ...}."""
    parts = re.split(r"^(Args|Returns|Example):$", inspect.cleandoc(text or ""), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def needs(thing):
    """The sections that a docstring must have, and the parameters that `Args:` must name."""
    if inspect.isclass(thing) and issubclass(thing, Exception | enum.Enum):
        return {"Example"}, []
    parameters = [name for name in inspect.signature(thing).parameters if name != "self"]
    wanted = {"Example"} | ({"Args"} if parameters else set())
    called = not inspect.isclass(thing) or any("__call__" in vars(c) for c in thing.__mro__)
    return wanted | ({"Returns"} if called else set()), parameters


def complaints(thing):
    """What is wrong with a docstring by the rule above."""
    found = sections(thing.__doc__)
    wanted, parameters = needs(thing)
    told = re.findall(r"^    (\w+): ", found.get("Args", ""), flags=re.M)
    lacking = [f"no {name}:" for name in sorted(wanted - set(found))]
    return lacking + [f"Args: lacks {name}" for name in parameters if name not in told]


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_say_what_is_taken_and_given(name):
    assert complaints(getattr(un, name)) == []


def test_the_rule_can_fail():
    def bare(x, y):
        """Adds.

        Args:
            x: a number.

        Example:
            >>> 1 + 1
            2
        """

    assert complaints(bare) == ["no Returns:", "Args: lacks y"]
    assert complaints(un.RBM) == []


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name):
    thing, report = getattr(un, name), []
    tests = doctest.DocTestFinder(recurse=False).find(thing, name, globs={})
    assert sum(len(test.examples) for test in tests) >= 2  # an import, and something done with it
    runner = doctest.DocTestRunner(verbose=False)
    for test in tests:
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def test_stub_lists_the_same_names():
    tree = ast.parse((FOLDER / "__init__.pyi").read_text())
    found, places = set(), {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name == alias.asname for alias in node.names)
            found |= {alias.name for alias in node.names}
            places |= {alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    assert found == {*un.__all__, *MODULES}
    assert {name: places[name] for name in NAMES} == un._PLACE
    assert (FOLDER / "py.typed").is_file()


def test_names_can_be_listed_and_are_what_they_say():
    shown = [name for name in dir(un) if not name.startswith("_")]
    assert sorted(shown) == sorted({*un.__all__, *MODULES} - {"__version__"})
    assert un.graph.chain(3).n == 3
    assert {name for name in NAMES if getattr(un, name).__name__ != name} == set()


def test_version_is_the_one_that_is_packaged():
    root = Path(__file__).parents[1]
    place = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["path"]
    (packaged,) = re.findall(r'^__version__ = "(.+)"$', (root / place).read_text(), flags=re.M)
    assert un.__version__ == packaged and re.fullmatch(r"\d+\.\d+\.\d+\S*", packaged)


@pytest.mark.parametrize(
    ("wrong", "near"), [("RBN", "RBM"), ("sampel", "sample"), ("grahp", "graph")]
)
def test_unknown_name_tells_a_near_one(wrong, near):
    with pytest.raises(AttributeError, match=f"'undirected' has no .*'{wrong}'; .* mean {near}"):
        getattr(un, wrong)
    with pytest.raises(AttributeError, match="no attribute 'zzzzzzzz'$"):
        un.zzzzzzzz  # noqa: B018


START = {
    "import": "import undirected as un\nun.__version__, un.__all__, dir(un)",
    "help": "import runpy\n"
    "sys.argv = ['undirected', '--help']\n"
    "try:\n    runpy.run_module('undirected', run_name='__main__')\n"
    "except SystemExit as stop:\n    assert not stop.code",
    "use": "import undirected as un\nun.RBM",
}


@pytest.mark.parametrize(("how", "loads"), [("import", False), ("help", False), ("use", True)])
def test_starting_imports_nothing_heavy(how, loads):
    """The third case shows that the check can fail."""
    code = f"import sys\n{START[how]}\nprint('HEAVY', 'jax' in sys.modules, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split("HEAVY", 1)[1].split())
    assert bool({"jax", "matplotlib", "scipy"} & modules) == loads


def spins():
    return un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))


def path():
    return un.ModelPath(spins().independent(), spins())


DRAW = {
    "RBM.create": lambda *a, **k: un.RBM.create(3, 2, *a, **k),
    "DeepBM.create": lambda *a, **k: un.DeepBM.create([3, 2, 2], *a, **k),
    "GaussianRBM.create": lambda *a, **k: un.GaussianRBM.create(3, 2, *a, **k),
    "ConditionalRBM.create": lambda *a, **k: un.ConditionalRBM.create(3, 2, 4, *a, **k),
    "SemiRestrictedBM.create": lambda *a, **k: un.SemiRestrictedBM.create(3, 2, *a, **k),
    "MixtureRBM.from_mixture": lambda *a, **k: un.MixtureRBM.from_mixture(
        [0.0, 0.0], [[0.2, 0.5], [0.6, 0.9]], 3, *a, **k
    ),
    "GridMRF.create": lambda *a, **k: un.GridMRF.create((2, 2), (1, 1), *a, **k),
    "run_chains": lambda *a, **k: (
        un.run_chains(un.Gibbs(), spins(), jnp.zeros((2, 3)), *a, samples=4, **k).x
    ),
    "ais": lambda *a, **k: un.ais(
        path(), un.Gibbs(), *a, chains=4, betas=5, **k
    ).log_weights.astype(np.float32),
    "bracket": lambda *a, **k: un.bracket(path(), un.Gibbs(), *a, chains=4, betas=5, **k).log_z,
}


def same(a, b):
    return bool(eqx.tree_equal(jax.tree.map(jnp.asarray, a), jax.tree.map(jnp.asarray, b)))


@pytest.mark.parametrize("name", DRAW)
def test_a_seed_stands_for_a_key(name):
    draw, key = DRAW[name], jax.random.key(1)
    by_seed = draw(seed=1)
    assert same(by_seed, draw(key)) and same(by_seed, draw(key=key))
    assert not same(by_seed, draw(seed=2))
    assert same(draw(), draw(seed=0))
    with pytest.raises(un.UndirectedError, match=f"^{name}: got both key and seed"):
        draw(key, seed=1)
    with pytest.raises(un.UndirectedError, match=f"^{name}: seed is 'one'; pass a whole number"):
        draw(seed="one")
