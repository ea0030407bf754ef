"""Slips that linters and type checkers let pass."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def assigned(tree: ast.Module) -> Iterator[str]:
    """The names that the top level of a module gives values to, as often as it does."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (part.id for part in parts if isinstance(part, ast.Name))


def twice(source: str) -> list[str]:
    found = Counter(assigned(ast.parse(source)))
    return [name for name, count in found.items() if name.isupper() and count > 1]


def test_no_constant_of_a_module_is_given_twice():
    files = (ROOT / "src").rglob("*.py")
    found = {file.name: twice(file.read_text(encoding="utf-8")) for file in files}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_check_sees_a_constant_that_replaces_another():
    assert twice("A, B = 1, 2\nC = [1]\nC[0] = 2\nB = 3") == ["B"]
