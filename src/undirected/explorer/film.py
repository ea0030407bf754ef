"""How a run looked on its way, for a page: its snapshots in one byte a value, or one bit."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num

from undirected.explorer.payload import packed
from undirected.io.snapshots import read_snapshots

STRETCH = 0.995
"""The share of the last filters' weights that the scale of colours holds."""


def film_of(folder: Path, n_visible: int) -> dict[str, Any] | None:
    """Samples and filters of a fit over its steps; None where its folder has none of this model."""
    path = folder / "training" / "snapshots.safetensors"
    if not path.is_file():
        return None
    _, steps, arrays = read_snapshots(path)
    arrays = {k: np.nan_to_num(a) for k, a in arrays.items() if a.shape[2] == n_visible}
    if len(steps) < 2 or not {"samples", "filters"} & set(arrays):
        return None
    film: dict[str, Any] = {"steps": steps.tolist(), "units": n_visible}
    if "samples" in arrays:
        film["samples"] = _samples(arrays["samples"])
    if "filters" in arrays:
        film["filters"] = _filters(arrays["filters"].astype(np.float32))
    return film


def _samples(values: Num[np.ndarray, "kept count v"]) -> dict[str, Any]:
    """Bits where all are 0 or 1, otherwise parts of the largest value that a unit has."""
    count = values.shape[1]
    if ((values == 0) | (values == 1)).all():
        bits = np.packbits(values.astype(np.uint8), bitorder="little").tobytes()
        told = {"dtype": "bits", "data": base64.b64encode(bits).decode("ascii")}
        return {"count": count, "values": told}
    most = np.abs(values).astype(np.float32).max((0, 1))
    parts = np.rint(127 * values / np.where(most > 0, most, 1))
    return {"count": count, "values": packed(parts, "int8")}


def _filters(values: Num[np.ndarray, "kept count v"]) -> dict[str, Any]:
    """Parts of one scale for the whole film, so that filters are seen to grow."""
    most = float(np.quantile(np.abs(values[-1]), STRETCH)) or 1.0
    parts = np.rint(127 * np.clip(values / most, -1, 1))
    return {"count": values.shape[1], "scale": most, "values": packed(parts, "int8")}
