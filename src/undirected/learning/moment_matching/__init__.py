"""Inverse problems: parameters from means and covariances, in closed form."""
