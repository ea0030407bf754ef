"""The benchmark harness itself, on contestants that take no time."""
