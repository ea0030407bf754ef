"""A model of 0/1 columns fitted to a table larger than memory; a sample of its rows chooses."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from undirected.core.bijection import bijection
from undirected.core.errors import UndirectedError
from undirected.learning import StreamedBatches
from undirected.tasks.mixture_start import start_mixture
from undirected.tasks.train_table import MODELS, Settings, Trained, choose, split, train_rows

SAMPLE = 20_000
"""Rows that are looked at to choose settings, to start the mixture and to hold some out."""
PIECES = 200
"""Places of the table that the sample comes from."""


def sample_places(rows: int, seed: int) -> np.ndarray:
    """Numbers of the sampled rows, in order: pieces from all over the table."""
    if rows <= SAMPLE:
        return np.arange(rows)
    length = SAMPLE // PIECES
    starts = np.sort(bijection(np.arange(PIECES), rows // length, (seed,))) * length
    return (starts[:, None] + np.arange(length)).ravel()


def sample_rows(source: Any, seed: int) -> Float32[np.ndarray, "rows columns"]:
    """The sampled rows."""
    places = sample_places(source.shape[0], seed)
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    runs = np.split(places, cuts)
    return np.concatenate([np.asarray(source[r[0] : r[-1] + 1], np.float32) for r in runs])


def choose_stream(settings: Settings, rows: int, sample: np.ndarray) -> Settings:
    """`choose` by a sample of that many rows; by default the table is passed once."""
    if settings.model not in ("auto", *MODELS):
        raise UndirectedError(
            f"fit: the table does not fit into memory, and model {settings.model} is not learned "
            f"from a stream; use {', '.join(MODELS)}, or a part of the table"
        )
    if settings.method == "exact":
        raise UndirectedError("fit: a table that does not fit into memory is not learned by exact")
    chosen = choose(settings, sample)
    batch = settings.batch or 100
    epochs = settings.epochs or max(1.0, round(4000 * batch / rows, 3))
    return replace(chosen, batch=batch, epochs=float(epochs))


def train_stream(source: Any, settings: Settings, **options: Any) -> Trained:
    """`train_table` of 0/1 rows that are read as they are needed.

    Args:
        source: what `StreamedBatches` takes, with cells 0, 1, or NaN for missing ones.
        settings: of `choose_stream`.
        options: more settings of `learning.fit`.

    Returns:
        The best model; `train` and `valid` are parts of the sample.
    """
    sample = sample_rows(source, settings.seed)
    numbered = np.concatenate([sample, np.arange(len(sample))[:, None]], 1)
    train, valid = split(numbered, settings)
    held = sample_places(source.shape[0], settings.seed)[valid[:, -1].astype(int)]
    train, valid = (part[:, :-1].astype(np.float32) for part in (train, valid))
    mixture = start_mixture(train, valid, settings.components, settings.seed)
    rows = ZeroOneRows(source, held)
    batches = StreamedBatches(rows, settings.batch or 100, settings.seed, transform=_as_float)
    result = train_rows(train, valid, settings, mixture, batches, **options)
    return Trained(result.best_model, settings, result, train, valid, mixture)


def _as_float(batch: Any, key: Any) -> Any:
    return batch.astype(jnp.float32)


class ZeroOneRows:
    """The rows of a source but those that are held out; each is checked to hold 0, 1 or NaN."""

    def __init__(self, source: Any, held: np.ndarray):
        self.source, self.held = source, np.sort(held)
        self.shape = (source.shape[0] - len(held), *source.shape[1:])
        self.dtype = np.dtype(source.dtype)
        self.block = getattr(source, "block", 0)
        # Number of the held rows before each that is not held: its place less its own number.
        self.before = self.held - np.arange(len(held))

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        first = start + int(np.searchsorted(self.before, start, "right"))
        last = stop - 1 + int(np.searchsorted(self.before, stop - 1, "right")) + 1
        found = np.asarray(self.source[first:last])
        inside = self.held[(self.held >= first) & (self.held < last)] - first
        found = np.delete(found, inside, 0) if len(inside) else found
        bad = found > 1 if found.dtype.kind in "ub" else ~np.isin(found, (0, 1)) & (found == found)
        if bad.any():
            row, column = (int(place) for place in np.argwhere(bad)[0])
            near = int(first + row + (inside <= row).sum())
            raise UndirectedError(
                f"fit: the value {found[row, column]:g} stands near row {near} in column {column}; "
                "a table that does not fit into memory must hold 0 and 1, NaN where missing"
            )
        return found
