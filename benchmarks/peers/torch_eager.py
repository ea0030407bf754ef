"""PyTorch, operation by operation: what one would write without this library."""

import numpy as np
import torch

VERSION = f"torch {torch.__version__}"


def query_training(given):
    """Adam on the loss of query training; parallel sum-product in the paper's stable form (D.1)."""
    x, targets = torch.tensor(given["x"]), torch.tensor(given["targets"])
    layers = int(given["layers"])

    def run():
        names = ("u", "c_v", "c_h", "strength")
        p = {name: torch.tensor(given[name], requires_grad=True) for name in names}
        adam = torch.optim.Adam(list(p.values()), lr=0.003)
        first = None
        for _ in range(int(given["steps"])):
            adam.zero_grad()
            loss = _loss(p, x, targets, layers)
            loss.backward()
            first = first or (loss.item() / x.numel(), p["u"].grad.numpy().copy())
            adam.step()
        return {"loss": np.asarray(first[0]), "gradient": first[1] / np.abs(first[1]).max()}

    return run


def _loss(p, x, targets, layers):
    H, V = p["u"].shape[1], p["u"].shape[0]
    evidence = torch.where(targets, torch.zeros(()), torch.logit(x).clamp(-1000, 1000))
    to_h = torch.zeros(len(x), H, V)
    to_v = torch.zeros(len(x), V, H)
    for _ in range(layers):
        v_cavity = (evidence + p["c_v"] + to_v.sum(2))[:, :, None] - to_v
        h_cavity = (p["c_h"] + to_h.sum(2))[:, :, None] - to_h
        to_h = _message(p["u"], v_cavity).transpose(1, 2)
        to_v = _message(p["u"].T, h_cavity).transpose(1, 2)
    logits = p["strength"] * (evidence + p["c_v"] + to_v.sum(2))
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    return (cross_entropy(logits, x, reduction="none") * targets).sum()


def _message(w, cavity):
    size = w.abs()
    hard = torch.sign(w) * torch.maximum(torch.minimum(cavity, size), -size)
    soft = [torch.log1p(torch.exp(-(cavity + sign * w).abs())) for sign in (1, -1)]
    return hard + soft[0] - soft[1]
