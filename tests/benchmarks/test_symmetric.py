"""Marginals by symmetry against enumeration."""

from itertools import product

import numpy as np
import pytest
from benchmarks.uai.symmetric import exact

from undirected.io.uai import UaiModel


def small(n: int, m: int) -> UaiModel:
    rng = np.random.default_rng(0)
    pair, fields = rng.uniform(0.5, 2, (2, 2, 2)), rng.uniform(0.5, 2, (3, 2))
    triples = [(i, n + m * i + j, n + n * m + j) for i in range(n) for j in range(m)]
    kinds = [0] * n + [1] * (n * m) + [2] * m
    scopes = (*((v,) for v in range(len(kinds))), *triples)
    tables = (*(fields[k] for k in kinds), *[pair] * len(triples))
    return UaiModel((2,) * len(kinds), scopes, tables)


@pytest.mark.parametrize("given", [{}, {1: 1}, {0: 0, 1: 1}], ids=["nothing", "one", "two"])
def test_enumeration_gives_the_same(given: dict[int, int]) -> None:
    model = small(3, 2)
    total, ones = 0.0, np.zeros(len(model.cardinalities))
    for state in product((0, 1), repeat=len(ones)):
        if all(state[v] == x for v, x in given.items()):
            pairs = zip(model.scopes, model.tables, strict=True)
            weight = float(np.prod([table[tuple(state[v] for v in s)] for s, table in pairs]))
            total, ones = total + weight, ones + weight * np.array(state)
    log_z, found = exact(model, given)
    assert log_z == pytest.approx(np.log(total), abs=1e-9)
    np.testing.assert_allclose([p[1] for p in found], ones / total, atol=1e-9)


def test_another_form_is_refused() -> None:
    model = small(3, 2)
    tables = (*model.tables[:-1], model.tables[-1] * 2)
    with pytest.raises(SystemExit, match="form"):
        exact(UaiModel(model.cardinalities, model.scopes, tables), {})
