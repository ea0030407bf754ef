"""Inference on one given discrete network, in NumPy: nothing is compiled, so answers start fast."""
