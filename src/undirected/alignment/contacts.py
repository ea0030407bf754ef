"""Which positions touch: scores of the couplings, lists of pairs, maps, predictive values."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.files import atomic_write, check_place
from undirected.models import Potts

SEPARATION = 4
"""Pairs nearer along the chain than this, or as near, touch in any fold and are left out."""


class Contacts(NamedTuple):
    """Pairs of positions from 1 and their scores, best first."""

    i: Int[np.ndarray, " pairs"]
    j: Int[np.ndarray, " pairs"]
    score: Float[np.ndarray, " pairs"]


def contact_scores(model: Potts, gap: int | None = 0) -> Float[np.ndarray, "L L"]:
    """Frobenius norms of the couplings in the zero-sum gauge, average product taken off.

    Args:
        model: a Potts model of a family.
        gap: the state that is left out of the norm; None takes all states.

    Returns:
        A symmetric matrix, 0 on its diagonal.

    Example:
        >>> import undirected as un
        >>> un.contact_scores(un.Potts.create(3, 5)).tolist()[0]
        [0.0, 0.0, 0.0]
    """
    tables = model.zero_sum().coupling_matrix
    keep = [a for a in range(model.states) if a != gap]
    tables = tables[:, keep][:, :, :, keep]
    norms = np.sqrt(np.einsum("iajb,iajb->ij", tables, tables, dtype=np.float64))
    sums, total = norms.sum(1), norms.sum()
    corrected = norms - np.multiply.outer(sums, sums) / max(total, 1e-30)
    np.fill_diagonal(corrected, 0.0)
    return corrected


def rank_contacts(scores: Float[np.ndarray, "L L"], separation: int = SEPARATION) -> Contacts:
    """All pairs more than `separation` apart along the chain, best first."""
    check_counts("contacts", 0, separation=separation)
    i, j = np.triu_indices(len(scores), separation + 1)
    order = np.argsort(-scores[i, j], kind="stable")
    return Contacts(i[order] + 1, j[order] + 1, scores[i, j][order])


def write_contacts(path: str | Path, contacts: Contacts) -> None:
    """A table with the columns i, j, score; positions from 1."""
    path = Path(path)
    check_place(path)
    with atomic_write(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["i", "j", "score"])
        rows = zip(*(part.tolist() for part in contacts), strict=True)
        writer.writerows((i, j, f"{score:.6g}") for i, j, score in rows)


def predictive_value(
    contacts: Contacts, distances: Float[np.ndarray, "L L"], count: int, near: float = 8.0
) -> float:
    """The share of the best `count` pairs, among those whose distance is known, that touch.

    Args:
        contacts: pairs, best first.
        distances: in Angstrom; NaN where it is not known.
        count: how many pairs are looked at, such as L or 2L.
        near: below this distance two positions touch.
    """
    check_counts("predictive_value", count=count)
    found = distances[contacts.i - 1, contacts.j - 1]
    found = found[~np.isnan(found)][:count]
    if len(found) < count:
        raise UndirectedError(f"predictive_value: {len(found)} pairs with distances, not {count}")
    return float((found < near).mean())


def draw_contacts(
    path: str | Path,
    contacts: Contacts,
    length: int,
    count: int,
    distances: Float[np.ndarray, "L L"] | None = None,
    near: float = 8.0,
) -> None:
    """A map of the best `count` pairs as PNG; where distances are known, over those that touch."""
    from matplotlib.figure import Figure

    path = Path(path)
    check_place(path)
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    if distances is not None:
        i, j = np.nonzero(np.nan_to_num(distances, nan=np.inf) < near)
        axes.scatter(i + 1, j + 1, s=8, c="#d0d5da", marker="s", label=f"below {near:g} Å")
    i, j, score = (part[:count] for part in contacts)
    for x, y in ((i, j), (j, i)):
        drawn = axes.scatter(x, y, s=10, c=score, cmap="viridis")
    figure.colorbar(drawn, ax=axes, shrink=0.8, label="score")
    axes.set(xlim=(0, length + 1), ylim=(length + 1, 0), xlabel="position", ylabel="position")
    axes.set_title(f"The {min(count, len(score))} best pairs")
    axes.set_aspect("equal")
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        figure.savefig(file, format="png", dpi=120)
