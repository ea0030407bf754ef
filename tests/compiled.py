"""The instrument that counts compilations."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

COMPILED = "/jax/core/compile/backend_compile_duration"
"""What JAX reports for every program it makes, one taken from files included."""


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The programs made inside of the block."""
    made: list[str] = []

    def listen(event: str, _: float, **details: Any) -> None:
        if event == COMPILED:
            made.append(details.get("fun_name", event))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield made
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
