"""The closed form of models of pairs, by enumeration."""

from itertools import product

import numpy as np
import pytest
from benchmarks.uai.relational import solve_pairs

from undirected.io.uai import UaiModel

N, M = 3, 2


def model_of_pairs(odd: bool = False) -> UaiModel:
    rng = np.random.default_rng(0)
    triple, first, second, between = (rng.random(s) + 0.2 for s in ((2, 2, 2), 2, 2, 2))
    scopes, tables = [], []
    for i, j in product(range(N), range(M)):
        scopes.append((i, N + i * M + j, N + N * M + j))
        tables.append(triple)
    for kind, own in (
        (range(N), first),
        (range(N, N + N * M), between),
        (range(N + N * M, N + N * M + M), second),
    ):
        scopes += [(v,) for v in kind]
        tables += [own for _ in kind]
    if odd:
        tables[0] = 2 * triple + 0.1
    return UaiModel((2,) * (N + N * M + M), tuple(scopes), tuple(tables))


@pytest.mark.parametrize("seen", [{}, {1: 0}, {2: 1}])
def test_sums_over_counts_equal_enumeration(seen):
    model = model_of_pairs()
    total, marginals = 0.0, np.zeros((len(model.cardinalities), 2))
    for x in product((0, 1), repeat=len(model.cardinalities)):
        if all(x[v] == state for v, state in seen.items()):
            pairs = zip(model.scopes, model.tables, strict=True)
            weight = np.prod([table[tuple(x[v] for v in scope)] for scope, table in pairs])
            total += weight
            for v, state in enumerate(x):
                marginals[v, state] += weight
    log_z, found = solve_pairs(model, seen)
    assert log_z == pytest.approx(np.log(total), rel=1e-12)
    np.testing.assert_allclose(found, marginals / total, atol=1e-12)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="differ"):
        solve_pairs(model_of_pairs(odd=True), {})
    with pytest.raises(ValueError, match="of the first kind"):
        solve_pairs(model_of_pairs(), {N: 1})
