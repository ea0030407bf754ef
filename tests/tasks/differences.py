"""Gradients by differences."""

from collections.abc import Callable

import numpy as np


def slopes_by_differences(
    parts: list[np.ndarray], value: Callable[[list[np.ndarray]], float]
) -> list[np.ndarray]:
    """Central differences of a value by every parameter."""
    found = []
    for k, part in enumerate(parts):
        slope = np.zeros_like(part)
        for place in np.ndindex(part.shape):
            ends = []
            for sign in (1, -1):
                moved = [own.copy() for own in parts]
                moved[k][place] += sign * 1e-5
                ends.append(value(moved))
            slope[place] = (ends[0] - ends[1]) / 2e-5
        found.append(slope)
    return found
