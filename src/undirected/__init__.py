"""Undirected graphical models: learn them, query them, sample from them."""
