"""Training of an RBM by rbms for so many CPU seconds: `rbms_training.py GIVEN.npz FOUND.npz`.

Persistent chains and centred gradients, each scaled to length 1, as `rbms train` has them.
"""

import sys
import time
from types import SimpleNamespace

import numpy as np
import torch
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.training.pcd import fit_batch_pcd

CPU = torch.device("cpu")


@torch.no_grad()
def main(given_file: str, found_file: str) -> None:
    given = np.load(given_file)
    data, size = torch.tensor(given["data"]), int(given["chains"])
    torch.manual_seed(int(given["seed"]))
    whole = SimpleNamespace(data=data)
    model = BBRBM.init_parameters(int(given["hidden"]), whole, CPU, torch.float32)
    model.init_grad()
    chains = model.init_chains(size)
    optimiser = torch.optim.SGD(model.parameters(), lr=float(given["rate"]), maximize=True)
    weights, updates, begun = torch.ones(size, 1), 0, time.process_time()
    while time.process_time() - begun < float(given["seconds"]):
        rows = torch.randint(len(data), (size,))
        optimiser.zero_grad(set_to_none=False)
        chains, _ = fit_batch_pcd((data[rows], weights), chains, model, 1, 1.0)
        optimiser.step()
        updates += 1
    spent = time.process_time() - begun
    found = {"w": model.weight_matrix, "b": model.vbias, "c": model.hbias}
    np.savez(found_file, seconds=spent, updates=updates, **{k: v.numpy() for k, v in found.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
