"""thrml: block Gibbs sampling of discrete energy-based models in JAX."""

from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
from thrml import Block, SamplingSchedule, SpinNode, sample_states
from thrml.models import IsingEBM, IsingSamplingProgram

VERSION = f"thrml {version('thrml')}, jax {jax.__version__}"


def block_gibbs(given):
    """An RBM as a bipartite Ising model: x = (1 + s) / 2."""
    w, b, c = given["w"], given["b"], given["c"]
    V, H = w.shape
    nodes = [SpinNode() for _ in range(V + H)]
    visible, hidden = nodes[:V], nodes[V:]
    edges = [(visible[i], hidden[j]) for i in range(V) for j in range(H)]
    fields = np.concatenate([b / 2 + w.sum(1) / 4, c / 2 + w.sum(0) / 4]).astype(np.float32)
    model = IsingEBM(nodes, edges, jnp.asarray(fields), jnp.asarray(w.ravel() / 4), jnp.array(1.0))
    blocks = [Block(hidden), Block(visible)]
    start = np.asarray(given["start"]) > 0.5
    state = [jnp.zeros((len(start), H), bool), jnp.asarray(start)]
    return _sampler(given, model, blocks, state, Block(visible), lambda x: x)


def torus(given):
    side, chains = int(given["side"]), int(given["chains"])
    nodes = [SpinNode() for _ in range(side * side)]
    site = np.arange(side * side).reshape(side, side)
    ends = [(site, np.roll(site, -1, axis)) for axis in (0, 1)]
    edges = [
        (nodes[a], nodes[b]) for i, j in ends for a, b in zip(i.ravel(), j.ravel(), strict=True)
    ]
    coupling = jnp.full(len(edges), given["coupling"], jnp.float32)
    model = IsingEBM(nodes, edges, jnp.zeros(side * side), coupling, jnp.array(1.0))
    even = np.add.outer(np.arange(side), np.arange(side)) % 2 == 0
    blocks = [Block([nodes[k] for k in site[mask]]) for mask in (even, ~even)]
    if side % 2:  # an odd torus needs three colours
        colour = np.add.outer(_cycle(side), _cycle(side)) % 3
        blocks = [Block([nodes[k] for k in site[colour == k3]]) for k3 in range(3)]
    keys = jax.random.split(jax.random.key(0), len(blocks))
    state = [
        jax.random.bernoulli(k, 0.5, (chains, len(b))) for k, b in zip(keys, blocks, strict=True)
    ]

    def agreement(x):
        x = x.reshape(chains, side, side)
        return (x == np.roll(x, 1, 1)).mean((0, 2))[:, None]

    return _sampler(given, model, blocks, state, Block(nodes), agreement)


def _cycle(n):
    colour = np.arange(n) % 2
    colour[-1] = 2
    return colour


def _sampler(given, model, blocks, state, seen, answer):
    program = IsingSamplingProgram(model, blocks, [])
    schedule = SamplingSchedule(n_warmup=int(given["sweeps"]), n_samples=1, steps_per_sample=1)
    chains = state[0].shape[0]

    @jax.jit
    def sample(key, state):
        keys = jax.random.split(key, chains)
        one = lambda key, start: sample_states(key, program, schedule, start, [], [seen])[0][0]  # noqa: E731
        return jax.vmap(one)(keys, state)

    seeds = iter(range(10**6))

    def run():
        x = jax.block_until_ready(sample(jax.random.key(next(seeds)), state))
        return {"samples": lambda: answer(np.asarray(x))}

    return run
