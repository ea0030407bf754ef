"""Large tables of cases: some of them in every run, all of them in `make slow`."""

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(names: Iterable[Any], fast: Iterable[Any]) -> list[Any]:
    """All names; those that are not in `fast` are marked slow."""
    names, fast = list(names), set(fast)
    assert fast <= set(names), f"no such cases: {fast - set(names)}"
    return [n if n in fast else pytest.param(n, marks=pytest.mark.slow) for n in names]
