"""adabmDCA to a Pearson target, or until its CPU seconds are spent; prints what it reached.

`python adabmdca.py FASTA ALPHABET TARGET CPU_SECONDS FOLDER`
"""

import contextlib
import json
import sys
import time


class Spent(Exception):
    pass


def main() -> None:
    from adabmDCA.api.training import train_model

    fasta, alphabet, target, limit, folder = sys.argv[1:]
    wall, seen = time.perf_counter(), {"pearson": 0.0, "steps": 0}

    def told(event) -> None:
        seen["pearson"] = float(event.metrics.get("Pearson", 0.0))
        seen["steps"] = int(event.gradient_steps)
        if time.process_time() > float(limit):
            raise Spent

    settings = {"alphabet": alphabet, "device": "cpu", "target_pearson": float(target)}
    with contextlib.suppress(Spent):
        train_model(fasta, output_dir=folder, progress=told, **settings)
    clocks = {"seconds": time.perf_counter() - wall, "cpu": time.process_time()}
    print(json.dumps(seen | clocks))


if __name__ == "__main__":
    main()
