"""Factor graphs: deconvolution of images, and networks of variables with many numbers of states."""

import numpy as np

from benchmarks.checks import mostly_same, same
from benchmarks.harness import OURS, Arrays, Case, Entry
from undirected.data.deconvolution import FEATURES, stamp

F, H, W = FEATURES.shape
SIDE, SWEEPS = 14, 100
PLACES = F * (SIDE - H + 1) * (SIDE - W + 1)
SAMPLE = 3
"""Images that PGMax takes of a larger set: its time grows with their number."""


def cases(quick: bool) -> list[Case]:
    few = [_network(), _deconvolution(SAMPLE), _deconvolution(SAMPLE, "construction")]
    return few if quick else [*few, _deconvolution(66), _deconvolution(66, "construction")]


def _network() -> Case:
    """A tree, so that all find the same; what differs is how long the first answer takes."""

    def inputs() -> Arrays:
        rng = np.random.default_rng(0)
        sizes = rng.permutation(np.repeat(np.arange(2, 12), 10))
        scopes = [(int(rng.integers(max(0, v - 10), v)), v) for v in range(1, len(sizes))]
        tables = [rng.gamma(2.0, size=sizes[list(scope)]) for scope in scopes]
        return {
            "sizes": sizes,
            "scopes": np.array(scopes),
            "tables": np.concatenate([table.ravel() for table in tables]),
            "iterations": np.asarray(50),
        }

    entries = (
        Entry(OURS, "ours", "network"),
        Entry("PGMax", "pgmax", "network", "pgmax"),
        Entry("pgmpy", "pgmpy", "network", "pgmpy"),
    )
    name = "belief propagation, a tree of 100 variables of 2 to 11 states"
    return Case(name, inputs, entries, same(1e-3))


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
