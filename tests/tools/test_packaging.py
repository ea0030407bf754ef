"""What the package imports is what it declares, so that a clean install runs."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def imports(tree: ast.AST) -> Iterator[str]:
    """Names of the modules a file imports when run, wherever in the file."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from imports(node)


def imported() -> dict[str, str]:
    """Distribution name -> a file that imports it, for everything outside the standard library."""
    found = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        for name in imports(ast.parse(file.read_text(encoding="utf-8"))):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and top != "undirected":
                found[DISTRIBUTIONS.get(top, top)] = str(file.relative_to(ROOT))
    return found


def declared() -> set[str]:
    """Names of the dependencies in pyproject.toml, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return {re.match(r"[\w.-]+", line)[0].lower() for line in requirements}  # type: ignore[index]


def test_every_imported_package_is_declared():
    undeclared = {name: file for name, file in imported().items() if name not in declared()}
    assert not undeclared


def test_the_check_sees_imports():
    assert {"jax", "equinox", "numpy", "scikit-learn"} <= set(imported())
