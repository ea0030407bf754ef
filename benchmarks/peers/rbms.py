"""rbms: restricted Boltzmann machines in PyTorch."""

from importlib.metadata import version

import numpy as np
import torch
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.partition_function.ais import compute_partition_function_ais
from rbms.training.pcd import fit_batch_pcd

VERSION = f"rbms {version('rbms')}, torch {torch.__version__}"
CPU = torch.device("cpu")


def _model(given):
    w, b, c = (torch.tensor(given[k]) for k in ("w", "b", "c"))
    return BBRBM(w, b, c, device=CPU, dtype=torch.float32)


def block_gibbs(given):
    model, start = _model(given), torch.tensor(given["start"])

    @torch.no_grad()
    def run():
        chains = model.init_chains(len(start), start_v=start)
        chains = model.sample_state(chains=chains, n_steps=int(given["sweeps"]))
        return {"samples": chains["visible"].numpy()}

    return run


def pcd_epoch(given):
    data, size = torch.tensor(given["data"]), int(given["batch"])
    weights = torch.ones(size, 1)

    @torch.no_grad()
    def run():
        model = _model(given)
        model.init_grad()
        chains = model.init_chains(size, start_v=data[:size])
        optimiser = torch.optim.SGD(model.parameters(), lr=float(given["rate"]), maximize=True)
        model.normalize_grad = lambda: None  # plain gradient steps, as the others make
        for rows in torch.randperm(len(data)).split(size):
            optimiser.zero_grad(set_to_none=False)
            batch = data[rows], weights
            chains, _ = fit_batch_pcd(batch, chains, model, 1, 1.0, centered=False)
            optimiser.step()
        found = {"w": model.weight_matrix, "b": model.vbias, "c": model.hbias}
        return {name: np.array(value) for name, value in found.items()}

    return run


def ais(given):
    model = _model(given)

    @torch.no_grad()
    def run():
        value = compute_partition_function_ais(int(given["chains"]), int(given["betas"]), model)
        return {"value": np.asarray(value)}

    return run
