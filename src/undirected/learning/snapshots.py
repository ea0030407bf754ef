"""What a run looks like on its way: a few of its chains and of the filters of its hidden units."""

from typing import Any, Protocol

import numpy as np

from undirected.core.layout import CONTINUOUS, Layout

SHOWN = 16
"""Chains and filters of a snapshot."""
MOST_VALUES = 14_000
"""Of each kind in a snapshot: so many that there are 16 pictures of 28x28 pixels."""
LARGEST = 6e4
"""The largest number of half precision, about."""


class SnapshotStore(Protocol):
    """Where snapshots go: `io.snapshots.Snapshots` is one."""

    def wants(self, number: int) -> bool: ...

    def add(self, number: int, step: int, arrays: dict[str, np.ndarray]) -> None: ...

    def save(self) -> None: ...

    def resume(self, step: int) -> None: ...


def snapshot_of(model: Any, carry: Any) -> dict[str, np.ndarray]:
    """Visible states of some chains as `samples`, weights of some hidden units as `filters`.

    Each has a row for every one of them, over the visible units; what a model or an objective has
    not is left out.
    """
    model = getattr(model, "model", model)  # a query network has its model inside
    layout = getattr(model, "layout", None)
    if not isinstance(layout, Layout):
        return {}
    count = min(SHOWN, MOST_VALUES // max(layout.n_visible, 1))
    found = {"samples": _samples(layout, carry), "filters": _filters(layout, model)}
    return {name: rows[:count] for name, rows in found.items() if rows is not None and count}


def _samples(layout: Layout, carry: Any) -> np.ndarray | None:
    x = getattr(carry, "x", None)
    if x is None or x.ndim != 2 or x.shape[1] != layout.n:
        return None
    v = np.asarray(x)[:SHOWN, : layout.n_visible]
    lines = any(b.domain in CONTINUOUS for b in layout.blocks if b.visible)
    return _halved(v) if lines else np.rint(v).astype(np.uint8)


def _filters(layout: Layout, model: Any) -> np.ndarray | None:
    weights = getattr(model, "weights", None)
    if isinstance(weights, tuple) and weights:  # of a deep model: those of its first layer
        weights = weights[0]
    hidden = layout.n - layout.n_visible
    if not hidden or getattr(weights, "ndim", 0) != 2 or len(weights) != layout.n_visible:
        return None
    return _halved(np.asarray(weights)[:, :SHOWN].T)


def _halved(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -LARGEST, LARGEST).astype(np.float16)
