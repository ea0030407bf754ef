"""Model files of version 1, which kept hyper-parameters by class, described as those of today.

This page is history: it speaks of the classes by the names and fields they had then.
"""

import re
from typing import Any

import equinox as eqx

from undirected.core.layout import Block, Domain, Layout
from undirected.factors.colouring import colour_variables
from undirected.io.classes import Classes
from undirected.io.leaves import ARRAYS, PLAIN
from undirected.io.structure import encode, fields_of

STATIC: dict[str, tuple[str, ...]] = {
    "RBM": ("label_states",),
    "SemiRestrictedBM": (),
    "ConditionalRBM": (),
    "NonnegativeBM": (),
    "GaussianRBM": (),
    "DeepBM": (),
    "Ising": (),
    "GridMRF": ("clones", "shape"),
    "FactorGraph": ("layout", "factors"),
    "Graph": ("n", "sides"),
    "Wiring": ("n", "incoming"),
    "Tables": ("states", "widths"),
    "Logic": ("conjunction",),
    "Pool": (),
    "Count": (),
    "Bilinear": ("rows", "cols"),
    "Symmetric": ("block",),
    "Edges": (),
}
"""Fields that are not, or where they are empty not, among the parameters of a file."""

MODULES = {"rbm": "RBM", "graph": "Graph", "wiring": "Wiring"}
"""The classes of fields that are modules."""


def upgrade(record: dict[str, Any], classes: Classes) -> dict[str, Any]:
    """The description of the model that a record of version 1 holds."""
    given = dict(record["config"])
    given |= given.get("graph") or {}
    if "blocks" in given:
        given["layout"] = _layout(given["blocks"])
        given["n"] = given["layout"].n
    return _module(record["class"], _branches(record["parameters"]), given, classes)


def complete(model: Any) -> Any:
    """The model with what files of version 1 did not keep: the colours of a factor graph."""
    if not hasattr(model, "colours"):
        return model
    colours = colour_variables(model.layout, model.factors)
    return eqx.tree_at(lambda m: m.colours, model, colours, is_leaf=lambda leaf: leaf is None)


def _branches(specs: list[dict[str, Any]]) -> dict[str, Any]:
    """Parameters by the steps of their paths, `factors[0].weight` under "factors", "0", "weight".

    A leaf is a tuple of one description, so that it differs from a branch.
    """
    tree: dict[str, Any] = {}
    for spec in specs:
        *steps, last = re.findall(r"[^.\[\]]+", spec["name"])
        place = tree
        for step in steps:
            place = place.setdefault(step, {})
        place[last] = (_leaf(spec),)
    return tree


def _leaf(spec: dict[str, Any]) -> Any:
    kind = spec["kind"]
    if kind in ARRAYS:
        return {"array": spec["name"], **{k: v for k, v in spec.items() if k != "name"}}
    return None if kind == "none" else encode(PLAIN[kind](spec["value"]), spec["name"], {})


def _module(
    name: str, branch: dict[str, Any], given: dict[str, Any], classes: Classes
) -> dict[str, Any]:
    kind = classes.find(name)
    fields = {key: _value(key, item, given, classes) for key, item in branch.items()}
    for key in STATIC.get(name, fields_of(kind)):
        if key not in fields:
            fields[key] = encode(_tuples(given.get(key)), key, {})
    return {"class": name, "module": kind.__module__, "fields": fields}


def _value(key: str, item: Any, given: dict[str, Any], classes: Classes) -> Any:
    if isinstance(item, tuple):
        return item[0]
    if "0" not in item:
        return _module(MODULES[key], item, given, classes)
    parts = []
    for i in range(len(item)):
        part = item[str(i)]
        if isinstance(part, tuple):
            parts.append(part[0])
        else:
            about = given["factors"][i]
            parts.append(_module(about["group"], part, given | about, classes))
    return {"tuple": parts}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _layout(blocks: list[dict[str, Any]]) -> Layout:
    found, start = [], 0
    for b in blocks:
        stop = start + b["size"]
        found.append(Block(b["name"], start, stop, Domain(b["domain"]), b["states"], b["visible"]))
        start = stop
    return Layout(tuple(found))
