"""The harness of experiments: `registry` finds them, `runner` runs them, `record` keeps results."""
