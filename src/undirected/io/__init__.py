"""What crosses the process boundary: models, checkpoints, metrics, tables, exchange formats."""
