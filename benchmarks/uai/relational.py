"""Exact answers to the relational problems, which no competition program needs to be trusted for.

Usage: python -m benchmarks.uai.relational relational_4.uai

`relational_2` and `relational_5` are so narrow that plain elimination gives log Z.

`relational_4` is not. Of its variables, 100 of one kind and 100 of another meet in pairs, and every
pair has a variable of its own. All tables of a kind are equal. Summed over the variables of the
pairs, the weight of a state depends on just two numbers: how many variables of each kind are 1. So
log Z and all marginals are sums over these counts, times binomial coefficients.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

from benchmarks.uai import score
from benchmarks.uai.plain import plain_log_z
from undirected.io.uai import UaiModel, read_evidence, read_uai


class Pairs(NamedTuple):
    """A model of two kinds of variables and their pairs, all of a kind alike; log weights."""

    first: list[int]
    second: list[int]
    between: list[int]
    tables: np.ndarray  # log weights by states of first, between, second
    own: tuple[np.ndarray, np.ndarray]  # log weights of a variable of the first kind, the second

    @property
    def given(self) -> np.ndarray:
        """Probabilities of the variable between, by states of first, between, second."""
        return np.exp(self.tables - logsumexp(self.tables, axis=1, keepdims=True))


def read_pairs(model: UaiModel) -> Pairs:
    """The parts of a model of pairs; refuses one whose tables of a kind differ."""
    single, triples = defaultdict(lambda: np.zeros(2)), {}
    for scope, table in zip(model.scopes, model.tables, strict=True):
        if len(scope) == 1:
            single[scope[0]] = single[scope[0]] + np.log(table)
        else:
            triples[scope] = np.log(table)
    if any(len(scope) != 3 for scope in triples):
        raise ValueError("not all tables of several variables have three: not a model of pairs")
    first, between, second = (sorted({scope[i] for scope in triples}) for i in range(3))
    tables = [t + single[scope[1]][:, None] for scope, t in triples.items()]
    alike = [tables, [single[v] for v in first], [single[v] for v in second]]
    if any(not np.allclose(one, kind[0], atol=1e-12) for kind in alike for one in kind):
        raise ValueError("the tables of a kind differ: not a model of pairs that are all alike")
    if len(triples) != len(first) * len(second) or len(between) != len(triples):
        raise ValueError("some pairs have no variable of their own")
    return Pairs(first, second, between, tables[0], (alike[1][0], alike[2][0]))


def log_counts(pairs: Pairs, seen: int | None) -> np.ndarray:
    """Log weight of every number of ones of the first kind (without one of them, if that is seen
    in a state) and of the second."""
    n, m = len(pairs.first), len(pairs.second)
    a, b = np.arange(n + (seen is None))[:, None], np.arange(m + 1)[None, :]
    ways = _log_choose(n - (seen is not None), a) + _log_choose(m, b)
    ones = a + (seen or 0)
    pair = logsumexp(pairs.tables, axis=1)
    together = ones * b * pair[1, 1] + (n - ones) * b * pair[0, 1]
    together = together + ones * (m - b) * pair[1, 0] + (n - ones) * (m - b) * pair[0, 0]
    own = ones * pairs.own[0][1] + (n - ones) * pairs.own[0][0]
    return ways + together + own + b * pairs.own[1][1] + (m - b) * pairs.own[1][0]


def solve_pairs(model: UaiModel, seen: dict[int, int]) -> tuple[float, list[np.ndarray]]:
    """log Z and the marginals of all variables; one variable of the first kind may be seen."""
    pairs = read_pairs(model)
    if len(seen) > 1 or any(v not in pairs.first for v in seen):
        raise ValueError("at most one variable is seen, and of the first kind")
    log_w = log_counts(pairs, next(iter(seen.values()), None))
    log_z = float(logsumexp(log_w))
    weights = np.exp(log_w - log_z)
    a, b = (np.arange(size) / (size - 1) for size in weights.shape)
    joint = np.einsum("ab,as,bt->st", weights, np.stack([1 - a, a], 1), np.stack([1 - b, b], 1))
    given = pairs.given
    answers = {v: joint.sum(1) for v in pairs.first} | {v: joint.sum(0) for v in pairs.second}
    answers |= {v: np.einsum("st,srt->r", joint, given) for v in pairs.between}
    for v, state in seen.items():
        answers[v] = np.eye(2)[state]
        rest = np.einsum("t,rt->r", joint.sum(0), given[state])
        answers |= dict.fromkeys(_partners(model, v), rest)
    return log_z, [answers[v] for v in range(len(model.cardinalities))]


def _partners(model: UaiModel, first: int) -> list[int]:
    return [scope[1] for scope in model.scopes if len(scope) == 3 and scope[0] == first]


def _log_choose(n: int, k: np.ndarray) -> np.ndarray:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def main() -> None:
    path = Path(sys.argv[1])
    model = read_uai(path)
    seen = read_evidence(Path(f"{path}.evid"), model)
    told = f"reference: {score.read_partition(Path(f'{path}.PR')):.6f}"
    try:
        pairs = read_pairs(model)
    except ValueError:
        log_z = plain_log_z(model.cardinalities, model.scopes, model.tables, seen)
        return print(f"log Z by plain elimination: {log_z:.6f}; {told}")
    log_z, exact = solve_pairs(model, seen)
    print(f"log Z: {log_z:.6f}; {told}")
    reference = score.read_marginals(Path(f"{path}.MAR"))
    highest = max(reference[v][1] for v in pairs.between)
    print(
        f"largest probability of 1 of a pair's variable in the reference: {highest:.6f}; ", end=""
    )
    print(f"the same in any state of its two neighbours: {pairs.given[:, 1].max():.6f}")
    print(f"score of the exact marginals: {score.score_marginals(exact, reference):.2f}")


if __name__ == "__main__":
    main()
