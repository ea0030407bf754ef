"""Which classes a model file may name: those of this library, and those the caller hands over."""

import dataclasses
import enum
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import cast

import equinox as eqx

from undirected.core.errors import UndirectedError

ROOMS = ("core", "factors", "models")  # their classes are found by name, wherever they stand
OURS = re.compile(r"undirected(\.[a-z][a-z0-9_]*)+")

ALIASES: dict[str, str] = {
    "Wiring": "Incidence",
    "Tables.wiring": "incidence",
    "Logic.wiring": "incidence",
    "Pool.wiring": "incidence",
    "Count.wiring": "incidence",
}
"""Old names in files and what they are called now: `"Class": "New"`, `"Class.field": "new"`.

In the second form the class is the one that the file names.
"""

ADDED: frozenset[str] = frozenset({"FactorGraph.colours", "MixedRBM.lateral"})
"""Fields, as `"Class.field"`, that older files lack; they take the default of the field."""


class Classes:
    """Classes by the names that files give them; `given` are the caller's own."""

    def __init__(self, given: Iterable[type] | Mapping[str, type] = ()):
        if not isinstance(given, Mapping):
            given = {getattr(item, "__name__", str(item)): item for item in given}
        self.given = dict(cast("Mapping[str, type]", given))
        for name, item in self.given.items():
            if not is_saveable(item):
                raise UndirectedError(
                    f"load_model: '{name}' in `classes` is {item!r:.60}; pass equinox Modules, "
                    "frozen dataclasses and Enums"
                )

    def find(self, name: str, module: str | None = None) -> type:
        """The class of a name; without `module`, which old files lack, the caller's come first."""
        new = ALIASES.get(name, name)
        ours = module is not None and OURS.fullmatch(module) is not None
        if not ours and name in self.given:
            return self.given[name]
        if (ours or module is None) and new in library_classes():
            return library_classes()[new]
        found = _imported(module, new) if ours else None
        if found is None:
            raise UndirectedError(_unknown(name, module, ours))
        return found


def is_saveable(found: object) -> bool:
    """Whether values of this class are rebuilt from their fields (or, an Enum, from its name)."""
    if not isinstance(found, type):
        return False
    if issubclass(found, eqx.Module | enum.Enum):
        return True
    return dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen  # type: ignore


@cache
def library_classes() -> dict[str, type]:
    """Every class of the rooms that models are made of, by its name alone.

    A file stays readable when a class moves to another module. The rooms are imported by name
    because `io` stands beside `models`; no name of a file takes part in it.
    """
    found: dict[str, type] = {}
    for room in ROOMS:
        if importlib.util.find_spec(f"undirected.{room}") is None:
            continue
        package = importlib.import_module(f"undirected.{room}")
        names = (info.name for info in pkgutil.iter_modules(package.__path__))
        for name in [package.__name__, *(f"{package.__name__}.{name}" for name in names)]:
            for item in vars(importlib.import_module(name)).values():
                if is_saveable(item) and item.__module__ == name:
                    found[item.__name__] = item
    return found


def _imported(module: str | None, name: str) -> type | None:
    """A class that one of the library's other modules defines; None where there is none."""
    try:
        item = getattr(importlib.import_module(str(module)), name, None)
    except ImportError:
        return None
    return item if is_saveable(item) and item.__module__ == module else None  # type: ignore


def _unknown(name: str, module: str | None, ours: bool) -> str:
    """What to do about a class that is not found."""
    if ours:
        return f"{module} has no class '{name}' that can be loaded; is this library older?"
    place = "" if module is None else f" of the module {module}"
    return (
        f"unknown class '{name}'{place}; import it and pass it: "
        f"load_model(folder, classes=[{name}])"
    )
