"""Vocabulary of the house: layouts, graphs, potentials, beliefs, safe numerics, protocols."""
