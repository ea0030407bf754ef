"""`discs.py FILE SAMPLER SECONDS`: chains of one of DISCS's own samplers, as its programs run them.

FILE holds the parameters of a task in the form of DISCS, the starts and a state to which distances
are taken. DISCS_HOME names the folder of a checkout of github.com/google-research/discs. Prints the
distances at every step, the CPU seconds of the steps and the log-likelihoods of the starts.
"""

import importlib
import json
import os
import sys
import time
from unittest.mock import MagicMock

import numpy as np

home = os.environ.get("DISCS_HOME", "")
if not os.path.isdir(os.path.join(home, "discs")):
    sys.exit("DISCS_HOME names no checkout of github.com/google-research/discs; set it to one")
sys.path.insert(0, home)
# Loggers and graph loaders, which its utilities import and chains do not use.
for name in ("clu", "clu.metric_writers", "clu.metric_writers.summary_writer"):
    sys.modules[name] = MagicMock()
for name in ("discs.graph_loader", "discs.graph_loader.graph_gen"):
    sys.modules[name] = MagicMock()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

WARM, BLOCK = 150, 50


def build(kind: str, sampler: str, settings: dict):
    """The model and sampler of DISCS with its own settings but for those given."""
    config = importlib.import_module("discs.common.configs").get_config()
    if kind != "rbm":
        found = importlib.import_module(f"discs.models.configs.{kind}_config").get_config()
        config.model.update(found)
    with config.unlocked(), config.ignore_type():
        for name, value in settings.items():
            config.model[name] = tuple(value) if isinstance(value, list) else value
    found = importlib.import_module(f"discs.samplers.configs.{sampler}_config").get_config()
    config.sampler.update(found)
    model = importlib.import_module(f"discs.models.{kind}").build_model(config)
    return model, importlib.import_module(f"discs.samplers.{sampler}").build_sampler(config)


def main() -> None:
    file, sampler, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    with np.load(file) as found:
        task = {name: found[name] for name in found.files}
    settings = json.loads(str(task.pop("settings")))
    kind, start, far = settings.pop("kind"), task.pop("start"), jnp.asarray(task.pop("far"))
    model, kernel = build(kind, sampler, settings)
    params = {name: jnp.asarray(value, jnp.float32) for name, value in task.items()}
    # Of whole numbers its energies of binary states are cut down to whole numbers too.
    binary = settings["num_categories"] == 2
    x = jnp.asarray(start, jnp.float32 if binary else jnp.int32)
    rng, likelihood = jax.random.PRNGKey(0), np.asarray(model.forward(params, x))
    state = kernel.make_init_state(rng)
    step = jax.jit(lambda rng, x, state: kernel.step(model, rng, x, params, state))
    distance = jax.jit(lambda x: jnp.abs(x - far).reshape(len(x), -1).sum(-1))
    for i in range(WARM):
        x, state, _ = step(jax.random.fold_in(rng, i), x, state)
    jax.block_until_ready(x)
    traces, spent = [], 0.0
    while spent < seconds or len(traces) < 4 * BLOCK:
        began, seen = time.process_time(), []
        for i in range(BLOCK):
            x, state, _ = step(jax.random.fold_in(rng, WARM + len(traces) + i), x, state)
            seen.append(x)
        jax.block_until_ready(x)
        spent += time.process_time() - began
        traces += [np.asarray(distance(one)).tolist() for one in seen]
    print(json.dumps({"trace": traces, "seconds": spent, "start": likelihood.tolist()}))


if __name__ == "__main__":
    main()
