"""Hand-tuned inner loops against plain references."""
