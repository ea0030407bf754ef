"""tempered: stochastic approximation with tempered transitions (Salakhutdinov 2009)."""
