"""Query training (Lázaro-Gredilla et al., AAAI 2021)."""
