"""Names of a package that are imported when they are first used."""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazily(package: str, modules: Mapping[str, str]) -> None:
    """Let a package import its names when they are first used.

    Args:
        package: the package's `__name__`.
        modules: for each module of the package its names, with blanks between them.
    """
    place = {name: module for module, names in modules.items() for name in names.split()}

    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name not in place:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            found = getattr(import_module(f"{package}.{place[name]}"), name)
            setattr(self, name, found)
            return found

        def __setattr__(self, name: str, value: Any) -> None:
            # Python binds a module in its package once it is imported. Where a function has the
            # name of its module, as `query` has, the package means the function.
            if not (name in place and isinstance(value, ModuleType)):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Lazy
