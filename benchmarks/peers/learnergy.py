"""learnergy: energy-based models in PyTorch; contrastive divergence."""

from importlib.metadata import version

import numpy as np
import torch
from learnergy.models.bernoulli.rbm import RBM

VERSION = f"learnergy {version('learnergy')}, torch {torch.__version__}"


def pcd_epoch(given):
    """It has no persistent chains: one step of contrastive divergence, as much work."""
    data = torch.utils.data.TensorDataset(
        torch.tensor(given["data"]), torch.zeros(len(given["data"]))
    )
    V, H = given["w"].shape

    def run():
        model = RBM(V, H, steps=1, learning_rate=float(given["rate"]))
        with torch.no_grad():
            for ours, name in ((model.W, "w"), (model.a, "b"), (model.b, "c")):
                ours.copy_(torch.tensor(given[name]))
        model.fit(data, batch_size=int(given["batch"]), epochs=1)
        found = {"w": model.W, "b": model.a, "c": model.b}
        return {name: np.array(value.detach()) for name, value in found.items()}

    return run
