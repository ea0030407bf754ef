"""Deconvolution: images stamped from features at unknown locations, as a factor graph."""

import numpy as np

from benchmarks.checks import mostly_same
from benchmarks.harness import OURS, Arrays, Case, Entry
from undirected.data.deconvolution import FEATURES, stamp

F, H, W = FEATURES.shape
SIDE, SWEEPS = 14, 100
PLACES = F * (SIDE - H + 1) * (SIDE - W + 1)
SAMPLE = 3
"""Images that PGMax takes of a larger set: its time grows with their number."""


def cases(quick: bool) -> list[Case]:
    few = [_deconvolution(SAMPLE), _deconvolution(SAMPLE, "construction")]
    return few if quick else [*few, _deconvolution(66), _deconvolution(66, "construction")]


def _deconvolution(images: int, function: str = "deconvolution") -> Case:
    """Features are all but given, so that the answer is the same whatever the order of messages.

    `function` may be "construction", which makes no sweeps and has no answer.
    """

    def inputs() -> Arrays:
        rng = np.random.default_rng(0)
        truth = (rng.random((images, F, SIDE - H + 1, SIDE - W + 1)) < 0.01).astype(np.uint8)
        features = np.where(FEATURES, 20.0, -20.0).ravel()
        locations = -10.0 + rng.logistic(size=images * PLACES)
        return {
            "images": stamp(truth, FEATURES),
            "features": np.array([F, H, W]),
            "fields": np.concatenate([features, locations]).astype(np.float32),
            "penalty": np.asarray(50.0),
            "iterations": np.asarray(SWEEPS),
            "sample": np.asarray(SAMPLE),
        }

    answers = function == "deconvolution" and images == SAMPLE
    entries = (
        Entry(OURS, "ours", function),
        Entry("PGMax", "pgmax", function, "pgmax", agrees=answers),
    )
    count = F * H * W + images * (PLACES + SIDE**2)
    sweeps, goal = (f" and {SWEEPS} sweeps", 5.0) if function == "deconvolution" else ("", 50.0)
    name = f"OR-convolution, {count:,} variables: construction{sweeps}"
    return Case(name, inputs, entries, mostly_same(0.005), 1, {"PGMax": goal})
