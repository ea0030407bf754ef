"""pyAgrum: exact inference by a junction tree."""

import numpy as np
import pyagrum as gum

VERSION = f"pyAgrum {gum.__version__}"


def sum_product(given):
    """The exact marginals, which belief propagation approaches for weak couplings."""
    w, b, c = given["w"], given["b"], given["c"]
    names = [f"v{i}" for i in range(len(b))] + [f"h{j}" for j in range(len(c))]
    model = gum.MarkovRandomField()
    for name in names:
        model.add(gum.LabelizedVariable(name, name, 2))
    for name, field in zip(names, np.concatenate([b, c]), strict=True):
        model.addFactor([name])[:] = [1.0, float(np.exp(field))]
    for (i, j), weight in np.ndenumerate(w):
        model.addFactor([names[i], names[len(b) + j]])[:] = [[1, 1], [1, float(np.exp(weight))]]

    def run():
        inference = gum.ShaferShenoyMRFInference(model)
        inference.makeInference()
        return {"beliefs": np.array([inference.posterior(name)[1] for name in names])}

    return run
