"""Strict JAX settings for every test, and the `x64` fixture for oracle-grade comparisons."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time of the tests is compilation: a fifth less of it at this level.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
# What one process of a run has compiled the others, and the next run, need not compile again; the
# many small programs of single operations, too.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # loading compiled programs is noisy

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("UNDIRECTED_DATA"):
        return
    skip = pytest.mark.skip(reason="needs a real data set: set UNDIRECTED_DATA to a data folder")
    for item in items:
        if "data" in item.keywords and item.get_closest_marker("data"):
            item.add_marker(skip)


@pytest.fixture
def x64():
    """Float64 inside one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture(autouse=True, scope="module")
def small_memory():
    """Forget compiled programs after every module: they add up to gigabytes."""
    yield
    jax.clear_caches()
