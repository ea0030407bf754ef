"""Whether two answers agree: the same numbers, or the same moments within Monte-Carlo error."""

import numpy as np

from benchmarks.harness import Arrays, Check

LIMIT = 6.0
"""Largest difference of two estimates, in standard errors."""


def same(tolerance: float) -> Check:
    """Every array of both answers is the same up to a tolerance."""

    def check(given: Arrays, ours: Arrays, theirs: Arrays) -> str:
        for name in sorted(set(ours) & set(theirs)):
            pair = ours[name].astype(float), theirs[name].astype(float)
            gap = float(np.abs(pair[0] - pair[1]).max())
            if not gap <= tolerance:
                return f"{name} by {gap:.2g}, more than {tolerance:.2g}"
        return ""

    return check


def same_moments(given: Arrays, ours: Arrays, theirs: Arrays) -> str:
    """Means over the samples, column by column, and of their total."""
    both = [np.asarray(a["samples"], float) for a in (ours, theirs)]
    both = [np.concatenate([a, a.mean(1, keepdims=True)], 1) for a in both]
    means = [a.mean(0) for a in both]
    binary = all(np.isin(np.asarray(a["samples"]), (0, 1)).all() for a in (ours, theirs))
    variance = sum(np.maximum(a.var(0), 0.25 / len(a) if binary else 0) / len(a) for a in both)
    z = float((np.abs(means[0] - means[1]) / np.sqrt(variance)).max())
    return "" if z < LIMIT else f"means by {z:.1f} standard errors"


def within_error(given: Arrays, ours: Arrays, theirs: Arrays) -> str:
    """One estimate each, with its standard error where it is known."""
    gap = abs(float(ours["value"]) - float(theirs["value"]))
    error = np.hypot(*(float(a.get("error", 0.0)) for a in (ours, theirs)))
    return "" if gap < LIMIT * error + 1e-6 else f"values by {gap:.3g}, standard error {error:.2g}"


def mostly_same(share: float) -> Check:
    """States agree but for so small a share of the units; a peer may have fewer rows."""

    def check(given: Arrays, ours: Arrays, theirs: Arrays) -> str:
        for name in sorted(set(ours) & set(theirs)):
            rows = min(len(ours[name]), len(theirs[name]))
            wrong = float(np.mean(np.abs(ours[name][:rows] - theirs[name][:rows]) > 0.5))
            if wrong > share:
                return f"{100 * wrong:.2g} % of {name}"
        return ""

    return check


def same_reconstruction(given: Arrays, ours: Arrays, theirs: Arrays) -> str:
    """Models learned from the same data fill it in equally well, within a twentieth."""
    data = given["data"][:1000]
    costs = []
    for model in (ours, theirs):
        h = _sigmoid(data @ model["w"] + model["c"])
        v = np.clip(_sigmoid(h @ model["w"].T + model["b"]), 1e-6, 1 - 1e-6)
        costs.append(-float(np.where(data > 0.5, np.log(v), np.log1p(-v)).sum(1).mean()))
    gap = abs(costs[1] / costs[0] - 1)
    return "" if gap < 0.05 else f"reconstruction costs {costs[1]:.1f} nats, ours {costs[0]:.1f}"


def _sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))
