"""One contestant in a process of its own: `python serve.py CONTESTANT.py`, orders by its input.

A contestant is a file with one function per case: it takes the inputs, a dict of arrays, and
returns a function without arguments that does the work once and returns a dict of arrays. One that
is too slow for all of the work does a part of it, and says which in the attribute `share` of that
function. A value that is itself a function is called later, when the answer is asked for, outside
the time. Orders and replies are lines of JSON; what a library prints goes to standard error.
"""

import importlib.util
import json
import os
import resource
import sys
import time
import traceback

import numpy as np


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = importlib.util.spec_from_file_location("contestant", sys.argv[1])
    contestant = importlib.util.module_from_spec(spec)
    state = {}
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if not state:
                spec.loader.exec_module(contestant)
            reply = obey(contestant, state, order)
        except BaseException as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def obey(contestant, state: dict, order: dict) -> dict:
    if order["do"] == "build":
        with np.load(order["inputs"]) as archive:
            given = {name: archive[name][()] for name in archive.files}
        began = time.perf_counter()
        state["work"] = getattr(contestant, order["case"])(given)
        return {"seconds": time.perf_counter() - began}
    if order["do"] == "run":
        began = time.perf_counter()
        state["answer"] = state["work"]()
        return {"seconds": (time.perf_counter() - began) / getattr(state["work"], "share", 1)}
    if order["do"] == "answer":
        answer = {k: v() if callable(v) else v for k, v in state["answer"].items()}
        np.savez(order["file"], **answer)
        return {}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"memory": peak, "version": getattr(contestant, "VERSION", "")}


if __name__ == "__main__":
    main()
