"""Benchmarks: ours beside what one would use instead, on the same inputs, in one run."""
