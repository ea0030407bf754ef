"""An epoch of persistent contrastive divergence; a step of query training."""

import numpy as np

from benchmarks.checks import same, same_reconstruction
from benchmarks.harness import OURS, Arrays, Case, Entry

PRODUCTS = "its matrix products alone"
PRODUCTS_BY_NUMPY = "these products by NumPy"
"""What scikit-learn and other peers would take that did nothing else."""


def cases(quick: bool) -> list[Case]:
    return [_pcd(2_000 if quick else 10_000), _query_training()]


def _pcd(rows: int) -> Case:
    V, H = 784, 500

    def inputs() -> Arrays:
        rng = np.random.default_rng(0)
        shapes = rng.random((20, V)) < 0.2
        flips = rng.random((rows, V)) < 0.05
        data = (shapes[rng.integers(20, size=rows)] ^ flips).astype(np.float32)
        w = rng.normal(scale=0.01, size=(V, H)).astype(np.float32)
        zeros = {"b": np.zeros(V, np.float32), "c": np.zeros(H, np.float32)}
        sizes = {"rate": np.asarray(0.01), "batch": np.asarray(100)}
        return {"data": data, "w": w, **zeros, **sizes}

    entries = (
        Entry(OURS, "ours", "pcd_epoch"),
        Entry(PRODUCTS, "ours", "pcd_products", agrees=False),
        Entry(PRODUCTS_BY_NUMPY, "plain", "pcd_products", agrees=False),
        Entry("rbms", "rbms", "pcd_epoch", "torch"),
        Entry("scikit-learn", "scikit", "pcd_epoch", "scikit"),
        Entry("learnergy", "learnergy", "pcd_epoch", "torch"),
    )
    goals = {"rbms": 2.5, "scikit-learn": 2.5}
    name = f"PCD epoch, {rows:,} rows of {V}, {H} hidden units, batches of 100"
    most, floor = {PRODUCTS: 1.5}, PRODUCTS_BY_NUMPY
    return Case(name, inputs, entries, same_reconstruction, 1, goals, most, floor=floor)


def _query_training() -> Case:
    """Adult's size."""
    V, H, rows, layers, steps = 123, 50, 500, 10, 5

    def inputs() -> Arrays:
        rng = np.random.default_rng(0)
        return {
            "u": 0.3 * rng.normal(size=(V, H)).astype(np.float32),
            "x": (0.9999 * (rng.random((rows, V)) < 0.2)).astype(np.float32),
            "targets": rng.random((rows, V)) < 0.5,
            "c_v": np.zeros(V, np.float32),
            "c_h": np.zeros(H, np.float32),
            "strength": np.float32(5),
            "layers": np.asarray(layers),
            "steps": np.asarray(steps),
        }

    entries = (
        Entry(OURS, "ours", "query_training"),
        Entry("PyTorch, eager", "torch_eager", "query_training", "torch"),
    )
    name = f"query-training step, RBM {V}×{H}, {layers} layers, {rows} rows"
    return Case(name, inputs, entries, same(1e-3), steps)
