"""This library, through its ordinary interface."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from undirected.core import graph
from undirected.core.layout import marginals
from undirected.core.potentials import batch_axes, clamp, shift
from undirected.evaluation import ais as annealed
from undirected.factors import ConvolutionalOr
from undirected.inference import MaxProduct, QueryNetwork, SumProduct, Susceptibility
from undirected.learning import Batches, Persistent
from undirected.learning.query_training import query_losses
from undirected.learning.train_step import TrainState, make_advance
from undirected.models import RBM, FactorGraph, Ising, ModelPath, markov_network
from undirected.ops.unrolled import unrolled_fields
from undirected.sampling import BlockGibbs, Gibbs

VERSION = f"jax {jax.__version__}"


def sum_product(given):
    rbm = RBM(*(jnp.asarray(given[k]) for k in ("w", "b", "c")))
    infer = SumProduct(int(given["iterations"]), None)
    if "shifts" not in given:
        run = jax.jit(lambda p: infer(p).unary)
        p = rbm.lower()
    else:
        p = shift(rbm.lower(), jnp.asarray(given["shifts"]))
        run = jax.jit(lambda p: jax.vmap(lambda q: infer(q).unary, in_axes=(batch_axes(p),))(p))
    return lambda: {"beliefs": np.asarray(run(p))}


def max_product(given):
    model = Ising(jnp.asarray(given["w"]), jnp.asarray(given["b"]))
    p = shift(model.lower(), jnp.asarray(given["noise"]))
    search = MaxProduct(int(given["iterations"]), None, damping=0.5, parallel=True)
    return lambda: {"states": np.asarray(search.decode(p)[0])}


def _chains(given):
    rbm = RBM(*(jnp.asarray(given[k]) for k in ("w", "b", "c")))
    kernel = BlockGibbs(int(given["sweeps"]))
    V, H = rbm.weights.shape
    start = jnp.zeros((int(given["chains"]), V + H)).at[:, :V].set(given["start"])
    state = kernel.init(rbm, start, jax.random.key(0))
    return rbm, kernel, state, jnp.ones(V + H, bool)


def block_gibbs(given):
    rbm, kernel, state, free = _chains(given)
    step = jax.jit(lambda m, s, key: kernel.step(m, s, free, key)[0].x[:, : rbm.n_visible])
    keys = _keys()
    return lambda: {"samples": np.asarray(step(rbm, state, next(keys)))}


def block_gibbs_products(given):
    """The two matrix products of a sweep, and nothing else."""
    rbm, kernel, state, _ = _chains(given)
    v, w = state.x[:, : rbm.n_visible], rbm.weights
    run = jax.jit(partial(products, kernel.sweeps))
    return lambda: {"nothing": np.asarray(run(w, v)[:1])}


def products(sweeps, w, v):
    """The two matrix products of so many sweeps, in turn."""
    return jax.lax.fori_loop(0, sweeps, lambda _, v: 1e-3 * ((v @ w) @ w.T), v)


def torus(given):
    side, chains = int(given["side"]), int(given["chains"])
    wiring = graph.torus(side, side)
    coupling = jnp.full(wiring.n_edges, given["coupling"], jnp.float32)
    model = Ising.from_spins(coupling, jnp.zeros(wiring.n), wiring)
    kernel = Gibbs(int(given["sweeps"]))
    x = jax.random.bernoulli(jax.random.key(0), 0.5, (chains, wiring.n)).astype(jnp.float32)
    state, free, keys = kernel.init(model, x, jax.random.key(0)), jnp.ones(wiring.n, bool), _keys()
    step = jax.jit(lambda m, s, key: kernel.step(m, s, free, key)[0])

    def run():
        x = jax.block_until_ready(step(model, state, next(keys)).x)
        return {"samples": lambda: _agreement(np.asarray(x, np.int8).reshape(-1, side, side))}

    return run


def _agreement(x):
    """How often neighbours agree, one value for every row."""
    return (x == np.roll(x, 1, 1)).mean((0, 2))[:, None]


def pcd_epoch(given):
    """The loop inside `fit`, which would compile it again at every call."""
    data, size = jnp.asarray(given["data"]), int(given["batch"])
    batches, keys = Batches(data, size), _keys()
    rbm = RBM(*(jnp.asarray(given[k]) for k in ("w", "b", "c")))
    kernel = BlockGibbs(order=("visible", "hidden"))  # the gradient needs the same fields again
    objective, optimiser = Persistent(kernel, chains=size), optax.sgd(float(given["rate"]))
    advance = make_advance(
        objective, optimiser, batches.transform, jax.tree.map(lambda _: True, rbm)
    )
    chains = jax.jit(objective.init)(rbm, data[:size], jax.random.key(0))
    start = TrainState(rbm, optimiser.init(rbm), chains)
    steps = len(data) // size

    def run():
        rows = batches.indices(0, steps)
        state = advance(start, data, rows, np.int32(0), np.int32(steps), next(keys))[0]
        return _parameters(state.model)

    return run


def _parameters(rbm):
    parts = {"w": rbm.weights, "b": rbm.visible_bias, "c": rbm.hidden_bias}
    return {name: np.asarray(part) for name, part in parts.items()}


def pcd_products(given):
    """The five matrix products of every update: a sweep, the fields of the data, two gradients."""
    data, w = jnp.asarray(given["data"]), jnp.asarray(given["w"])
    rows = data.reshape(-1, int(given["batch"]), data.shape[1])
    small = jnp.float32(1e-6)

    def update(carry, v):
        w, chain = carry
        visible = small * (chain @ w.T)
        chain = small * (visible @ w)
        return (w + small * (v.T @ (v @ w) - visible.T @ chain), chain), None

    run = jax.jit(lambda w, rows: jax.lax.scan(update, (w, rows[0] @ w), rows)[0][0])
    return lambda: {"nothing": np.asarray(run(w, rows)[:1])}


def ais(given):
    rbm = RBM(*(jnp.asarray(given[k]) for k in ("w", "b", "c")))
    path, keys = ModelPath(rbm.independent(), rbm), _keys()
    options = {"chains": int(given["chains"]), "betas": int(given["betas"])}

    def run():
        found = annealed(path, BlockGibbs(), next(keys), **options)
        return {"value": np.asarray(found.log_z), "error": np.asarray(found.stderr)}

    return run


def query_training(given):
    layers = int(given["layers"])
    x, targets = jnp.asarray(given["x"]), jnp.asarray(given["targets"])
    start = {name: jnp.asarray(given[name]) for name in ("u", "c_v", "c_h", "strength")}
    optimiser = optax.adam(0.003)

    def loss(p):
        rbm = RBM(2 * p["u"], p["c_v"] - p["u"].sum(1), p["c_h"] - p["u"].sum(0))
        network = QueryNetwork(rbm, p["strength"], layers, symmetric_start=True)
        return query_losses(network, x, targets)[0].sum()

    @jax.jit
    def steps(p):
        def one(_, state):
            updates, memory = optimiser.update(jax.grad(loss)(state[0]), state[1])
            return optax.apply_updates(state[0], updates), memory

        first = jax.value_and_grad(loss)(p)
        return first, jax.lax.fori_loop(1, int(given["steps"]), one, _after(first, p, optimiser))

    def run():
        (value, gradient), _ = jax.block_until_ready(steps(start))
        top = np.abs(gradient["u"]).max()
        return {"loss": np.asarray(value / x.size), "gradient": np.asarray(gradient["u"] / top)}

    return run


def _after(first, p, optimiser):
    updates, memory = optimiser.update(first[1], optimiser.init(p))
    return optax.apply_updates(p, updates), memory


def deconvolution(given):
    """Construction and so many sweeps: the stamped images as one factor group."""
    search = jax.jit(
        lambda p: MaxProduct(int(given["iterations"]), None, damping=0.5, parallel=True)(p).unary
    )

    def run():
        group, p = _deconvolution(given)
        _, features, locations = group.parts(search(p))
        features = features.T.reshape(given["features"])
        return {"features": np.asarray(features), "locations": np.asarray(locations)}

    return run


def construction(given):
    """The same without the sweeps."""

    def run():
        jax.block_until_ready(_deconvolution(given)[1])
        return {}

    return run


def _deconvolution(given):
    images = jnp.asarray(given["images"])
    F, h, w = (int(n) for n in given["features"])
    N, R, C = images.shape
    group = ConvolutionalOr(None, N, (F, h, w), (R - h + 1, C - w + 1), float(given["penalty"]))
    unary = jnp.concatenate([jnp.zeros(images.size), jnp.asarray(given["fields"])])
    model = FactorGraph.create(group.layout, (group,), unary)
    p = clamp(model.lower(), jnp.ones(images.size, bool), images.ravel().astype(jnp.float32))
    return group, p


def susceptibility(given):
    rows, cols = (int(n) for n in given["sides"])
    model = Ising(jnp.asarray(given["w"]), jnp.asarray(given["b"]), graph.grid(rows, cols))
    infer = Susceptibility()
    run = jax.jit(lambda p: infer(p).covariance)
    p = model.lower()
    return lambda: {"covariance": np.asarray(run(p))}


def unrolled_memory(given):
    """Bytes of a compiled gradient, for the curve over layers."""
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((500, 200), (500, 500), (500, 200))]
    layers = int(given["layers"])
    gradient = jax.jit(jax.grad(partial(_sum, layers), (0, 1, 2)))
    found = gradient.lower(*shapes).compile().memory_analysis()
    size = found.temp_size_in_bytes + found.output_size_in_bytes
    return lambda: {"bytes": np.asarray(float(size))}


def _sum(layers, *arrays):
    return unrolled_fields(*arrays, layers, True).sum()


def _keys():
    seed = 0
    while True:
        seed += 1
        yield jax.random.key(seed)


def network(given):
    """Marginals of a Markov network."""
    tables = cut_tables(given)
    graph = markov_network(given["sizes"].tolist(), tables)
    infer, p = SumProduct(int(given["iterations"]), None), graph.lower()

    def run():
        found = marginals(graph.layout, infer(p).unary)
        return {"marginals": np.asarray(found)[np.asarray(graph.layout.order)]}

    return run


def cut_tables(given):
    """Scopes with their tables, out of one long array."""
    shapes = given["sizes"][given["scopes"]]
    parts = np.split(given["tables"], np.cumsum(shapes.prod(1))[:-1])
    return [
        (tuple(scope.tolist()), part.reshape(shape))
        for scope, part, shape in zip(given["scopes"], parts, shapes, strict=True)
    ]
