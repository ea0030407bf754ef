"""`python -m benchmarks.uai.symmetric relational_4.uai`: its exact marginals, by symmetry alone.

The variables are x_i, y_j and r_ij. Every r_ij meets x_i and y_j in the same table, so it is summed
out to a weight of the pair; and then only the numbers of x_i and of y_j that are 1 count. Prints
log Z, and the score of these marginals against the reference beside the file.
"""

import argparse
from math import lgamma
from pathlib import Path

import numpy as np

from benchmarks.uai import score
from undirected.io.uai import UaiModel, read_evidence, read_uai


def exact(model: UaiModel, given: dict[int, int]) -> tuple[float, list[np.ndarray]]:
    """Log Z and all marginals of binary x_i, r_ij and y_j, in this order; some x_i may be given."""
    triples = [scope for scope in model.scopes if len(scope) == 3]
    n, m = len({x for x, _, _ in triples}), len({y for _, _, y in triples})
    single = {scope[0]: np.ones(2) for scope in model.scopes if len(scope) == 1}
    for scope, table in zip(model.scopes, model.tables, strict=True):
        if len(scope) == 1:
            single[scope[0]] = single[scope[0]] * table
    (x, r, y), table = next(
        item for item in zip(model.scopes, model.tables, strict=True) if len(item[0]) == 3
    )
    check(model, single, n, m, given, table)
    joint = table * single[r][None, :, None]
    ones, free = sum(given.values()), n - len(given)
    a, b = np.arange(free + 1)[:, None], np.arange(m + 1)[None]
    up, down = a + ones, n - a - ones
    pair = np.log(joint.sum(1))
    logs = choose(free, a) + choose(m, b)
    logs = logs + up * np.log(single[x][1]) + down * np.log(single[x][0])
    logs = logs + b * np.log(single[y][1]) + (m - b) * np.log(single[y][0])
    logs = logs + up * b * pair[1, 1] + up * (m - b) * pair[1, 0]
    logs = logs + down * b * pair[0, 1] + down * (m - b) * pair[0, 0]
    log_z = float(np.logaddexp.reduce(logs.ravel()))
    p = np.exp(logs - log_z)
    both = [[(p * u * w).sum() for w in (m - b, b)] for u in (free - a, a)]
    of_pair = np.array(both) / max(free * m, 1)
    of_x, of_y = of_pair.sum(1), np.array([(p * (m - b)).sum(), (p * b).sum()]) / m
    given_pair = joint / joint.sum(1, keepdims=True)
    every_x = [np.eye(2)[given[i]] if i in given else of_x for i in range(n)]
    of_r = []
    for i in range(n):
        own = np.outer(np.eye(2)[given[i]], of_y) if i in given else of_pair
        of_r += [np.einsum("xy,xry->r", own, given_pair)] * m
    return log_z, [*every_x, *of_r, *[of_y] * m]


def choose(n: int, k: np.ndarray) -> np.ndarray:
    """Log of the binomial coefficients."""
    factorial = np.array([lgamma(i + 1) for i in range(n + 1)])
    return factorial[n] - factorial[k] - factorial[n - k]


def check(
    model: UaiModel,
    single: dict[int, np.ndarray],
    n: int,
    m: int,
    given: dict[int, int],
    table: np.ndarray,
) -> None:
    """Raises where the model has another form."""
    groups = (range(n), range(n, n + n * m), range(n + n * m, n + n * m + m))
    wanted = {(i, n + m * i + j, n + n * m + j) for i in range(n) for j in range(m)}
    own = [(s, t) for s, t in zip(model.scopes, model.tables, strict=True) if len(s) == 3]
    alike = all(np.array_equal(t, table) for _, t in own) and {s for s, _ in own} == wanted
    same = all(np.array_equal(single[v], single[group[0]]) for group in groups for v in group)
    if not (alike and same and len(own) == n * m and all(v < n for v in given)):
        raise SystemExit("the model is not of the form x_i, r_ij, y_j with equal tables")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.uai.symmetric", description=__doc__)
    parser.add_argument("model", type=Path)
    model = parser.parse_args().model
    network = read_uai(model)
    log_z, found = exact(network, read_evidence(f"{model}.evid", network))
    print(f"log Z {log_z:.6f}; the reference: {score.read_partition(Path(f'{model}.PR')):.6f}")
    reference = score.read_marginals(Path(f"{model}.MAR"))
    print(f"score of the exact marginals: {score.score_marginals(found, reference):.2f}")


if __name__ == "__main__":
    main()
