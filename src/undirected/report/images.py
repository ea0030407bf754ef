"""Pictures as PNG: grids of images, filters and curves. No figure is shared or left open."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

MISSING = (0.55, 0.71, 0.88)  # pale blue: no grey value can be mistaken for it
PADDING = 0.85  # grey of the lines between images


def readable_scale(shape: tuple[int, int], columns: int) -> int:
    """Screen pixels for a pixel: images of at least 64, in a grid not much wider than 1200."""
    wanted, widest = -(-64 // max(shape)), 1200 // max(1, columns * (shape[1] + 1))
    return max(2, min(wanted, widest))


def image_grid(
    arrays: ArrayLike,
    shape: tuple[int, int],
    path: Path | None = None,
    columns: int = 10,
    *,
    low: float = 0.0,
    high: float = 1.0,
    scale: int = 2,
) -> bytes:
    """PNG of grey images in a grid; black is `low`, white is `high`, NaN is pale blue.

    `arrays` is (images, pixels) or (images, rows, columns) with `shape` = (rows, columns).
    """
    images = _stack(arrays, shape)
    if not high > low:
        raise ValueError(f"image_grid: low is {low} and high is {high}; wanted low < high")
    grey = np.clip((np.nan_to_num(images) - low) / (high - low), 0, 1)
    colours = np.where(np.isnan(images)[..., None], MISSING, grey[..., None])
    return _save(_tile(colours, columns, scale), path)


def filters(
    weights: ArrayLike,
    shape: tuple[int, int],
    path: Path | None = None,
    columns: int = 10,
    *,
    limit: float | None = None,
    scale: int = 2,
) -> bytes:
    """PNG of weights in a grid: blue below zero, white at zero, red above.

    `weights` is (filters, pixels): of an RBM, `rbm.weights.T`. All filters share one colour scale,
    from `-limit` to `limit` (by default the largest weight).
    """
    from matplotlib import colormaps

    images = _stack(weights, shape)
    if limit is None:
        limit = float(np.nanmax(np.abs(images), initial=0.0)) or 1.0
    unit = np.clip(images / (2 * limit) + 0.5, 0, 1)
    colours = colormaps["RdBu_r"](np.ma.masked_invalid(unit))[..., :3]
    return _save(_tile(colours, columns, scale), path)


def curve_figure(curve: Mapping[str, Any], path: Path | None = None) -> bytes:
    """PNG of one entry of a record's curves; a null leaves a gap in its line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    styles = ("-", "--", "-.", ":")
    for i, line in enumerate(curve["series"]):
        x, y = (np.array(line[axis], dtype=float) for axis in ("x", "y"))
        axes.plot(x, y, styles[i % len(styles)], label=line["name"])
    axes.set(xlabel=curve["x_label"], ylabel=curve["y_label"], title=curve["name"])
    axes.grid(alpha=0.3)
    if curve["series"]:
        axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return _write(buffer.getvalue(), path)


def _stack(arrays: ArrayLike, shape: tuple[int, int]) -> Float[np.ndarray, "images rows columns"]:
    stack = np.asarray(arrays, dtype=float)
    rows, columns = shape
    if stack.ndim < 2 or math.prod(stack.shape[1:]) != rows * columns or len(stack) == 0:
        wanted = f"(images, {rows * columns}) or (images, {rows}, {columns})"
        raise ValueError(f"images have shape {stack.shape}; wanted {wanted}, at least one image")
    return stack.reshape(-1, rows, columns)


def _tile(
    images: Float[np.ndarray, "images rows columns 3"], columns: int, scale: int
) -> Float[np.ndarray, "height width 3"]:
    """The images side by side, `columns` to a line, with lines of one pixel between them."""
    if columns < 1 or scale < 1:
        raise ValueError(f"columns is {columns} and scale is {scale}; wanted at least 1")
    count, height, width, _ = images.shape
    columns = min(columns, count)
    lines = math.ceil(count / columns)
    grid = np.full((lines * (height + 1) + 1, columns * (width + 1) + 1, 3), PADDING)
    for i, image in enumerate(images):
        top, left = (i // columns) * (height + 1) + 1, (i % columns) * (width + 1) + 1
        grid[top : top + height, left : left + width] = image
    return grid.repeat(scale, axis=0).repeat(scale, axis=1)


def _save(pixels: Float[np.ndarray, "height width 3"], path: Path | None) -> bytes:
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, np.ascontiguousarray(pixels), format="png")
    return _write(buffer.getvalue(), path)


def _write(png: bytes, path: Path | None) -> bytes:
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(png)
    return png
