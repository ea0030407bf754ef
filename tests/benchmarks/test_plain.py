"""Plain elimination against enumeration."""

import itertools

import numpy as np
import pytest
from benchmarks.uai.plain import plain_log_z


def random_network(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 7).tolist()
    scopes = [tuple(rng.permutation(7)[: rng.integers(1, 4)].tolist()) for _ in range(9)]
    tables = [rng.random([sizes[v] for v in scope]) for scope in scopes]
    tables = [np.where(rng.random(table.shape) < 0.1, 0.0, table) for table in tables]
    seen = {int(v): int(rng.integers(sizes[v])) for v in rng.permutation(7)[: rng.integers(3)]}
    return sizes, scopes, tables, seen


def enumerated(sizes, scopes, tables, seen):
    total = 0.0
    for state in itertools.product(*(range(size) for size in sizes)):
        if all(state[v] == s for v, s in seen.items()):
            places = [tuple(state[v] for v in scope) for scope in scopes]
            total += np.prod([table[place] for table, place in zip(tables, places, strict=True)])
    return total


@pytest.mark.parametrize("seed", range(40))
def test_log_z_is_that_of_enumeration(seed):
    network = random_network(seed)
    total = enumerated(*network)
    found = plain_log_z(*network)
    assert np.exp(found) == pytest.approx(total, rel=1e-10, abs=1e-300)


def test_tables_that_would_be_too_large_are_refused():
    pairs = list(itertools.combinations(range(30), 2))
    with pytest.raises(ValueError, match="30 variables"):
        plain_log_z([2] * 30, pairs, [np.ones((2, 2))] * len(pairs), {})
