"""A network that is too large for a page: what its page is told, and who answers its questions."""

import threading
from typing import Any

import numpy as np

from undirected.core.errors import UndirectedError
from undirected.core.potentials import Potentials
from undirected.explorer.views import Subject, unnamed_columns
from undirected.tasks.files import as_tables
from undirected.tasks.solve import solve

NETWORK_METHODS = ("solve",)
SECONDS = 2.0
"""Time that an answer may take."""
MOST_VARIABLES = 20_000
"""Variables that a page can list."""


class BadQuestion(ValueError):
    """A question that is not one, with the reason."""


def network_page(subject: Subject, p: Potentials) -> dict[str, Any]:
    """The payload of a page that lists variables and asks for their marginals."""
    columns = unnamed_columns(p.layout)
    if len(columns) > MOST_VARIABLES:
        raise UndirectedError(
            f"explore: the network has {len(columns):,} variables; a page lists up to "
            f"{MOST_VARIABLES:,}: use `undirected solve`"
        )
    return {
        "view": "asked",
        "title": f"Explore {subject.name}",
        "model": {"form": "asked"},
        "small": f"{len(columns):,} variables. The engine on this machine answers within "
        f"{SECONDS:g} s each time; nothing leaves it.",
        "variables": [[column.name, list(column.states)] for column in columns],
    }


class NetworkEngine:
    """Marginals and log Z of a network given states of its variables, None where not known.

    Of questions that wait for one another only the newest is answered.
    """

    def __init__(self, p: Potentials, seconds: float = SECONDS):
        self.network, self.seconds = as_tables(p), seconds
        self._one_at_a_time, self._asked = threading.Lock(), 0

    def __call__(self, method: str, visible: list[Any]) -> dict[str, Any]:
        given = known_states(self.network.cardinalities, visible)
        self._asked = number = self._asked + 1
        with self._one_at_a_time:
            if number != self._asked:
                raise BadQuestion("a newer question took the place of this one")
            found = solve(self.network, "mar", given=given, seconds=self.seconds)
        assert found.tables is not None
        return {
            "marginals": [np.round(table, 7).tolist() for table in found.tables],
            "logZ": _finite(found.log_z),
            "lower": _finite(found.lower),
            "upper": _finite(found.upper),
            "exact": found.exact,
            "method": found.method,
            "seconds": round(found.seconds, 3),
        }


def known_states(counts: tuple[int, ...], visible: list[Any]) -> dict[int, int]:
    """Evidence by numbers; refused where it is none."""
    if len(visible) != len(counts):
        raise BadQuestion(f"{len(visible)} values; wanted {len(counts)}")
    known = {}
    for v, (value, count) in enumerate(zip(visible, counts, strict=True)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            raise BadQuestion(
                f"value {v} is {value!r:.40}; wanted a state from 0 to {count - 1}, or null"
            )
        known[v] = value
    return known


def _finite(x: float | None) -> float | None:
    return float(x) if x is not None and np.isfinite(x) else None
