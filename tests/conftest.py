"""Strict JAX settings for every test, and the `x64` fixture for oracle-grade comparisons."""

import ctypes
import functools
import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time of the tests is compilation, which takes less than half as long with these. XLA
# ends the process at a flag it does not know, and the names change: given to known versions only.
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    )
# What one process of a run has compiled the others, and the next run, need not compile again; the
# many small programs of single operations, too.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # loading compiled programs is noisy

import jax
import pytest
from jax._src.interpreters import mlir

# A sixth of the time went into a new MLIR context for every program, most of them tiny: one for
# all. Where a version of JAX has no such function, the tests merely take longer.
if hasattr(mlir, "make_ir_context"):
    mlir.make_ir_context = functools.cache(mlir.make_ir_context)

jax.config.update("jax_numpy_rank_promotion", "raise")
# A sixth of the time went into looking for garbage among what JAX keeps: see `small_memory`.
gc.disable()


LONGEST = (
    "tests/factors/test_conformance.py",
    "tests/inference/test_conformance.py",
    "tests/test_flat_api.py",
    "tests/inference/test_relabelling.py",
    "tests/test_compilations.py",
    "tests/cli/test_cli.py",
    "tests/sampling/test_chain.py",
    "tests/inference/test_mean_field_theories.py",
    "tests/evaluation/test_ais.py",
)
"""Files to begin with: the last of them must not leave other processes without work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.location[0], len(LONGEST)))
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
    """Forget compiled programs once they add up to gigabytes; the small ones serve many modules."""
    yield
    if resident_bytes() > 2.5e9:
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":  # what is free goes back to the system, or it would count on
            ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> float:
    """Memory of this process; where the system does not tell, too much."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return float("inf")
    return pages * os.sysconf("SC_PAGE_SIZE")
