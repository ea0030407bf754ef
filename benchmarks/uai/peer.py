"""One peer on one problem, in its own environment: `python peer.py ENGINE TASK MODEL EVIDENCE OUT`.

Needs nothing of this library, so that it runs where the peer is installed.
"""

import sys
from itertools import islice
from pathlib import Path


def read(model: str, evidence: str):
    words = iter(Path(model).read_text().split())
    kind = next(words)
    n = int(next(words))
    sizes = [int(word) for word in islice(words, n)]
    scopes = []
    for _ in range(int(next(words))):
        scopes.append([int(word) for word in islice(words, int(next(words)))])
    tables = [[float(word) for word in islice(words, int(next(words)))] for _ in scopes]
    numbers = [int(word) for word in Path(evidence).read_text().split()]
    if len(numbers) != 1 + 2 * numbers[0]:
        numbers = numbers[1:]
    return kind, sizes, scopes, tables, dict(zip(numbers[1::2], numbers[2::2], strict=True))


def pyagrum(sizes, scopes, tables, given):
    """Exact marginals by Shafer-Shenoy: its loopy belief propagation takes Bayesian networks."""
    import numpy as np
    import pyagrum as gum

    net = gum.MarkovRandomField()
    for v, k in enumerate(sizes):
        net.add(gum.LabelizedVariable(str(v), str(v), k))
    joined = {}
    for scope, table in zip(scopes, tables, strict=True):
        place = sorted(scope)
        array = np.array(table).reshape([sizes[v] for v in scope])
        array = array.transpose([scope.index(v) for v in place])
        key = tuple(place)
        array = joined[key] * array if key in joined else array
        # Its products overflow where weights are large; the largest one of each table is 1 here.
        joined[key] = array / array.max()
    for scope, array in joined.items():
        factor = net.addFactor([str(v) for v in scope])
        # The peer's axes run the other way round.
        names = list(factor.names)
        order = [scope.index(int(name)) for name in reversed(names)]
        factor[:] = np.ascontiguousarray(array.transpose(order))
    engine = gum.ShaferShenoyMRFInference(net)
    if given:
        engine.setEvidence({str(v): x for v, x in given.items()})
    engine.makeInference()
    return [np.array(engine.posterior(str(v)).tolist()) for v in range(len(sizes))]


def pgmpy(sizes, scopes, tables, given):
    """Exact marginals by its junction tree."""
    import numpy as np
    from pgmpy import models
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.inference import BeliefPropagation

    kind = getattr(models, "DiscreteMarkovNetwork", None) or models.MarkovNetwork
    net = kind()
    net.add_nodes_from([str(v) for v in range(len(sizes))])
    factors = [DiscreteFactor([str(v)], [k], np.ones(k)) for v, k in enumerate(sizes)]
    for scope, table in zip(scopes, tables, strict=True):
        names = [str(v) for v in scope]
        net.add_edges_from((a, b) for i, a in enumerate(names) for b in names[:i])
        factors.append(DiscreteFactor(names, [sizes[v] for v in scope], table))
    net.add_factors(*factors)
    asked = [str(v) for v in range(len(sizes)) if v not in given]
    evidence = {str(v): x for v, x in given.items()}
    found = BeliefPropagation(net).query(asked, evidence, joint=False, show_progress=False)
    seen = {str(v): np.eye(sizes[v])[x] for v, x in given.items()}
    return [
        seen[str(v)] if v in given else np.asarray(found[str(v)].values) for v in range(len(sizes))
    ]


def toulbar2(sizes, scopes, tables, seconds):
    """The best state found in the time; says so where its bound proves it."""
    from math import log

    import pytoulbar2

    problem = pytoulbar2.CFN(ubinit=1e12, resolution=6)
    for v, k in enumerate(sizes):
        problem.AddVariable(str(v), list(range(k)))
    for scope, table in zip(scopes, tables, strict=True):
        costs = [-log(w) if w > 0 else 1e6 for w in table]
        problem.AddFunction([str(v) for v in scope], costs)
    found = problem.Solve(timeLimit=seconds)
    if found is None:
        return None
    if abs(found[1] - problem.GetDDualBound()) < 2e-6:
        print("proved")
    return found[0]


def main() -> None:
    engine, _, model, evidence, out = sys.argv[1:6]
    _, sizes, scopes, tables, given = read(model, evidence)
    if engine == "toulbar2":
        for v, x in given.items():
            scopes.append([v])
            tables.append([1.0 if k == x else 0.0 for k in range(sizes[v])])
        state = toulbar2(sizes, scopes, tables, int(float(sys.argv[6])))
        if state is None:
            sys.exit("toulbar2 found no state")
        line = "MAP\n" + " ".join(map(str, [len(state), *state]))
    else:
        own = {"pyagrum": pyagrum, "pgmpy": pgmpy}[engine]
        found = own(sizes, scopes, tables, given)
        parts = [" ".join(map(str, [len(p), *p.tolist()])) for p in found]
        line = "MAR\n" + " ".join([str(len(parts)), *parts])
    Path(out).write_text(line + "\n")


if __name__ == "__main__":
    main()
