"""Numbers and JSON as text: strictly valid JSON that keeps NaN and infinities."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: Any, indent: int | None = None) -> str:
    """Strictly valid JSON, whose standard has no NaN: not-finite floats become the strings "NaN",
    "Infinity" and "-Infinity". NumPy and JAX numbers and arrays, tuples and paths are taken too.
    """
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def from_json(text: str) -> Any:
    """The value of `to_json`'s text; the strings "NaN", "Infinity", "-Infinity" become floats."""
    try:
        return _revive(json.loads(text))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _spell(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "dtype") and np.asarray(value).dtype.kind in "biufU":
        return _plain(np.asarray(value).tolist())
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: {value!r:.80}")


def _spell(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _revive(value: Any) -> Any:
    if isinstance(value, str):
        return NOT_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: _revive(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_revive(item) for item in value]
    return value
