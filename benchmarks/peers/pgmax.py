"""PGMax: factor graphs in JAX, variables with a column for every state."""

from importlib.metadata import version

import jax
import numpy as np
from pgmax import fgraph, fgroup, infer, vgroup

VERSION = f"PGMax {version('pgmax')}, jax {jax.__version__}"


def sum_product(given):
    w, b, c = given["w"], given["b"], given["c"]
    V, H = w.shape
    v, h = (vgroup.NDVarArray(num_states=2, shape=(n,)) for n in (V, H))
    graph = fgraph.FactorGraph([v, h])
    pairs = [[v[i], h[j]] for i in range(V) for j in range(H)]
    graph.add_factors(fgroup.PairwiseFactorGroup(pairs, _tables(w.reshape(-1))))
    engine = infer.build_inferer(graph.bp_state, backend="bp")
    start = engine.init(evidence_updates={v: _columns(b), h: _columns(c)})

    def run():
        end = engine.run(start, num_iters=int(given["iterations"]), damping=0.0, temperature=1.0)
        found = infer.get_marginals(engine.get_beliefs(end))
        return {"beliefs": np.concatenate([np.asarray(found[g])[:, 1] for g in (v, h)])}

    return run


def max_product(given):
    """Some of the samples, at once: all of them would take minutes."""
    w, b, noise = given["w"], given["b"], given["noise"][:10]
    n = len(b)
    x = vgroup.NDVarArray(num_states=2, shape=(n,))
    graph = fgraph.FactorGraph([x])
    i, j = np.triu_indices(n, 1)
    pairs = [[x[a], x[c]] for a, c in zip(i.tolist(), j.tolist(), strict=True)]
    graph.add_factors(fgroup.PairwiseFactorGroup(pairs, _tables(0.5 * (w[i, j] + w[j, i]))))
    engine = infer.build_inferer(graph.bp_state, backend="bp")
    count = int(given["iterations"])

    def one(fields):
        start = engine.init(evidence_updates={x: fields})
        end = engine.run(start, num_iters=count, damping=0.5, temperature=0.0)
        return infer.decode_map_states(engine.get_beliefs(end))[x]

    decode, fields = jax.jit(jax.vmap(one)), np.stack([_columns(b + row) for row in noise])

    def run():
        return {"states": np.asarray(decode(fields))}

    run.share = len(noise) / len(given["noise"])
    return run


def deconvolution(given):
    """Construction and so many sweeps: a variable for every pair of a feature and a location.

    Of many images it takes a sample: with all of them it would run for an hour.
    """
    images = given["images"][: int(given["sample"])]

    def run():
        engine, pixels, features, locations = _deconvolution(images, given["features"])
        fields, split = given["fields"], int(np.prod(features.shape))
        sign = np.where(images > 0, 1.0, -1.0) * float(given["penalty"])
        places = fields[split : split + int(np.prod(locations.shape))].reshape(locations.shape)
        evidence = {
            pixels: _columns(sign),
            features: _columns(fields[:split].reshape(features.shape)),
            locations: _columns(places),
        }
        start = engine.init(evidence_updates=evidence)
        end = engine.run(start, num_iters=int(given["iterations"]), damping=0.5, temperature=0.0)
        states = infer.decode_map_states(engine.get_beliefs(end))
        return {
            "features": np.asarray(states[features]),
            "locations": np.asarray(states[locations]),
        }

    run.share = len(images) / len(given["images"])
    return run


def construction(given):
    """The same without the sweeps."""
    images = given["images"][: int(given["sample"])]

    def run():
        _deconvolution(images, given["features"])
        return {}

    run.share = len(images) / len(given["images"])
    return run


def _deconvolution(images, sizes):
    """What runs sweeps, and the variables that are asked for."""
    F, h, w = (int(n) for n in sizes)
    N, R, C = images.shape
    Y, X = R - h + 1, C - w + 1
    pixels = vgroup.NDVarArray(num_states=2, shape=images.shape)
    features = vgroup.NDVarArray(num_states=2, shape=(F, h, w))
    locations = vgroup.NDVarArray(num_states=2, shape=(N, F, Y, X))
    pairs = vgroup.NDVarArray(num_states=2, shape=(N, F, Y, X, h, w))
    graph = fgraph.FactorGraph([pixels, features, locations, pairs])
    both, parents = [], {place: [] for place in np.ndindex(N, R, C)}
    for n, f, y, x, i, j in np.ndindex(N, F, Y, X, h, w):
        pair = pairs[n, f, y, x, i, j]
        both.append([features[f, i, j], locations[n, f, y, x], pair])
        parents[n, y + i, x + j].append(pair)
    covered = [[*above, pixels[place]] for place, above in parents.items()]
    graph.add_factors([fgroup.ANDFactorGroup(both), fgroup.ORFactorGroup(covered)])
    engine = infer.build_inferer(graph.bp_state, backend="bp")
    return engine, pixels, features, locations


def network(given):
    """A group of variables for every number of states, a group of factors for every two of them."""
    sizes = given["sizes"]
    groups = {
        k: vgroup.NDVarArray(num_states=int(k), shape=(int((sizes == k).sum()),))
        for k in set(sizes.tolist())
    }
    place = np.array([(sizes[:v] == sizes[v]).sum() for v in range(len(sizes))])
    graph = fgraph.FactorGraph(list(groups.values()))
    shapes = sizes[given["scopes"]]
    parts = np.split(given["tables"], np.cumsum(shapes.prod(1))[:-1])
    by_shape = {}
    for scope, part, shape in zip(given["scopes"].tolist(), parts, shapes, strict=True):
        names = [groups[int(sizes[v])][int(place[v])] for v in scope]
        own = by_shape.setdefault(tuple(shape.tolist()), ([], []))
        own[0].append(names)
        own[1].append(np.log(part.reshape(shape)))
    for names, logs in by_shape.values():
        graph.add_factors(fgroup.PairwiseFactorGroup(names, np.stack(logs)))
    engine = infer.build_inferer(graph.bp_state, backend="bp")
    start = engine.init()
    most = int(sizes.max())

    def run():
        end = engine.run(start, num_iters=int(given["iterations"]), damping=0.0, temperature=1.0)
        found = infer.get_marginals(engine.get_beliefs(end))
        rows = np.zeros((len(sizes), most))
        for v, (k, at) in enumerate(zip(sizes.tolist(), place.tolist(), strict=True)):
            rows[v, :k] = np.asarray(found[groups[k]])[at]
        return {"marginals": rows}

    return run


def _tables(weights):
    tables = np.zeros((len(weights), 2, 2))
    tables[:, 1, 1] = weights
    return tables


def _columns(fields):
    return np.stack([0 * fields, fields], -1)
