"""Benchmarks: ours beside a peer or a plain reference, on the same inputs, in one run."""
