"""`python -m benchmarks.query_training`: a training step beside the same one in PyTorch (eager).

Adult's size: 123 visible and 50 hidden units, 10 layers, batches of 500; two threads each. Loss
and gradient must agree. PyTorch is only needed for the comparison. `--memory` prints the bytes of
the compiled gradient at 500 rows of 500 x 200 messages for 10, 20 and 50 layers instead.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.__main__ import compare, show, timed
from undirected.inference import QueryNetwork
from undirected.kernels.unrolled import unrolled_fields
from undirected.learning.query_training import query_losses
from undirected.models import RBM

V, H, ROWS, LAYERS = 123, 50, 500, 10
STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.query_training", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.memory:
        result: dict = {"case": "gradient, 500 x 500 x 200 messages", "gib": memory()}
        for layers, size in result["gib"].items():
            print(f"{layers:3d} layers: {size:.2f} GiB")
    else:
        result = step(arguments.repeats)
        show(result, STEPS)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


def memory() -> dict[int, float]:
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((500, 200), (500, 500), (500, 200))]
    sizes = {}
    for layers in (10, 20, 50):
        gradient = jax.jit(
            jax.grad(lambda *a, n=layers: unrolled_fields(*a, n, True).sum(), (0, 1, 2))
        )
        found = gradient.lower(*shapes).compile().memory_analysis()
        sizes[layers] = (found.temp_size_in_bytes + found.output_size_in_bytes) / 2**30
    return sizes


def step(repeats: int) -> dict:
    import torch

    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    u = 0.3 * rng.normal(size=(V, H)).astype(np.float32)
    x = (0.9999 * (rng.random((ROWS, V)) < 0.2)).astype(np.float32)
    targets = rng.random((ROWS, V)) < 0.5
    start = {"u": u, "c_v": np.zeros(V, np.float32), "c_h": np.zeros(H, np.float32)}
    start["strength"] = np.float32(5)

    def loss(p: dict) -> jax.Array:
        rbm = RBM(2 * p["u"], p["c_v"] - p["u"].sum(1), p["c_h"] - p["u"].sum(0))
        network = QueryNetwork(rbm, p["strength"], LAYERS, symmetric_start=True)
        return query_losses(network, jnp.asarray(x), jnp.asarray(targets))[0].sum()

    optimiser = optax.adam(0.003)

    @jax.jit
    def steps(p: dict) -> dict:
        def one(_, state):
            updates, memory = optimiser.update(jax.grad(loss)(state[0]), state[1])
            return optax.apply_updates(state[0], updates), memory

        return jax.lax.fori_loop(0, STEPS, one, (p, optimiser.init(p)))[0]

    ours = jax.tree.map(jnp.asarray, start)
    value, gradient = jax.jit(jax.value_and_grad(loss))(ours)
    theirs = {name: torch.tensor(a, requires_grad=True) for name, a in start.items()}
    peer = torch_loss(theirs, torch.tensor(x), torch.tensor(targets))
    peer.backward()
    assert np.isclose(value, peer.item(), rtol=1e-4), (value, peer.item())
    for name, a in gradient.items():
        wanted = theirs[name].grad.numpy()
        assert np.allclose(a, wanted, atol=1e-3 * np.abs(wanted).max()), name

    def peer_steps() -> None:
        adam = torch.optim.Adam(list(theirs.values()), lr=0.003)
        for _ in range(STEPS):
            adam.zero_grad()
            torch_loss(theirs, torch.tensor(x), torch.tensor(targets)).backward()
            adam.step()

    compile_seconds, _ = timed(lambda: jax.block_until_ready(steps(ours)))
    return compare(
        f"query-training step, RBM {V}x{H}, {LAYERS} layers, {ROWS} rows",
        compile_seconds,
        {"ours": lambda: jax.block_until_ready(steps(ours)), "PyTorch, eager": peer_steps},
        repeats,
    )


def torch_loss(p: dict, x, targets):
    """Parallel sum-product in the paper's stable form (D.1), both directions from old messages."""
    import torch

    def message(w, cavity):
        size = w.abs()
        hard = torch.sign(w) * torch.maximum(torch.minimum(cavity, size), -size)
        soft = [torch.log1p(torch.exp(-(cavity + sign * w).abs())) for sign in (1, -1)]
        return hard + soft[0] - soft[1]

    evidence = torch.where(targets, torch.zeros(()), torch.logit(x).clamp(-1000, 1000))
    to_h = torch.zeros(len(x), H, V)
    to_v = torch.zeros(len(x), V, H)
    for _ in range(LAYERS):
        v_cavity = (evidence + p["c_v"] + to_v.sum(2))[:, :, None] - to_v
        h_cavity = (p["c_h"] + to_h.sum(2))[:, :, None] - to_h
        to_h = message(p["u"], v_cavity).transpose(1, 2)
        to_v = message(p["u"].T, h_cavity).transpose(1, 2)
    logits = p["strength"] * (evidence + p["c_v"] + to_v.sum(2))
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits
    return (cross_entropy(logits, x, reduction="none") * targets).sum()


if __name__ == "__main__":
    main()
