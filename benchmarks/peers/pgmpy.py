"""pgmpy: belief propagation on a junction tree, in NumPy."""

from importlib.metadata import version

import numpy as np
from pgmpy.factors.discrete import DiscreteFactor
from pgmpy.inference import BeliefPropagation
from pgmpy.models import DiscreteMarkovNetwork

VERSION = f"pgmpy {version('pgmpy')}"


def network(given):
    """Marginals of every variable; the tree is calibrated once in each run."""
    sizes, scopes = given["sizes"].tolist(), given["scopes"].tolist()
    parts = np.split(given["tables"], np.cumsum([sizes[a] * sizes[b] for a, b in scopes])[:-1])
    model = DiscreteMarkovNetwork([(f"x{a}", f"x{b}") for a, b in scopes])
    for (a, b), part in zip(scopes, parts, strict=True):
        model.add_factors(DiscreteFactor([f"x{a}", f"x{b}"], [sizes[a], sizes[b]], part))

    def run():
        engine = BeliefPropagation(model)
        engine.calibrate()
        rows = np.zeros((len(sizes), max(sizes)))
        for v, k in enumerate(sizes):
            rows[v, :k] = engine.query([f"x{v}"], show_progress=False).values
        return {"marginals": rows}

    return run
