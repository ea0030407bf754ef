"""Hand-tuned inner loops, one function each, each with a plain form beside it in its tests."""
