"""Nonnegative Boltzmann machines (paper key nnbm)."""
