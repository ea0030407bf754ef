"""Conditional RBMs with matrix belief propagation (Ping & Ihler, AISTATS 2017)."""
