"""Ways a file goes wrong: cut short, one bit turned over, or edited and sealed again."""

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def damaged(data: bytes, cuts: int = 200, flips: int = 1000) -> Iterator[tuple[str, bytes]]:
    """The file cut at random lengths, then with one random bit turned over."""
    random = np.random.default_rng(0)
    for length in random.permutation(len(data))[:cuts].tolist():
        yield f"cut to {length} bytes", data[:length]
    for bit in random.permutation(8 * len(data))[:flips].tolist():
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8} turned over", bytes(turned)


def seal(folder: Path, record: dict[str, Any]) -> None:
    """Write a record as model.json with its right checksum, as a careful forger would."""
    record = {key: value for key, value in record.items() if key != "sha256"}
    canonical = json.dumps(dict(sorted(record.items())), ensure_ascii=False)
    record["sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(record), encoding="utf-8")


STRANGE = [None, True, -1, 10**30, 2.5, 1e300, "", "os.system", [], [[0]], {}, {"tuple": 3}]
STRANGE += [{"float": "1"}, {"array": "weights"}, {"class": "RBM"}, {"dict": [[1]]}, ["jax"]]


def mutated(record: dict[str, Any], random: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """The record with one part removed, doubled, renamed, negated or made another kind of value."""
    record = copy.deepcopy(record)
    places = list(_places(record))
    parent, key, name = places[random.integers(len(places))]
    value = parent[key]
    match random.integers(5):
        case 0:
            del parent[key]
            return f"{name} is removed", record
        case 1 if isinstance(parent, list):
            parent.append(copy.deepcopy(value))
            return f"{name} is doubled", record
        case 1:
            parent[f"{key}x"] = parent.pop(key)
            return f"{name} is renamed", record
        case 2 if type(value) is int:
            parent[key] = -value - 1
            return f"{name} is negated", record
    kinds = [s for s in STRANGE if _kind(s) is not _kind(value)]
    parent[key] = kinds[random.integers(len(kinds))]
    return f"{name} becomes {parent[key]!r}", record


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _places(node: Any, name: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Every part of a JSON value: what holds it, under which key, and its path."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        path = f"{name}/{key}"
        yield node, key, path
        if isinstance(value, dict | list):
            yield from _places(value, path)
