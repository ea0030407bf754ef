"""Perturb-and-max-product: sampling and learning in discrete energy-based models."""
