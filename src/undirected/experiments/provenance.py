"""Where a result comes from: versions, the library's own source, and the data it was made of."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError

PACKAGE = Path(__file__).parents[1]
SHOWN = 12
"""Digits of a hash in a sentence."""


def version(package: str) -> str:
    """The version of a package, read without importing it.

    A package that is on the path but was never installed says it in its project file, or in
    `__version__` or `_version.py`.
    """
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        found = _written_version(package)
    if found is None:
        raise UndirectedError(
            f"the version of {package} cannot be found: it is not installed, and neither its "
            "pyproject.toml nor a __version__ says it; install it"
        )
    return found


def _written_version(package: str) -> str | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    for place in (folder, *folder.parents[:2]):
        project = place / "pyproject.toml"
        if project.is_file() and (found := _project_version(project, package)):
            return found
    pattern = re.compile(r"""^_*version_*\s*=\s*["']([^"']+)["']""", re.MULTILINE)
    for file in ("__init__.py", "version.py", "_version.py"):
        path = folder / file
        match = pattern.search(path.read_text(encoding="utf-8")) if path.is_file() else None
        if match:
            return match[1]
    return None


def _project_version(file: Path, package: str) -> str | None:
    import tomllib

    project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    return project.get("version") if project.get("name") == package else None


@cache
def source_hash() -> str:
    """SHA-256 over all Python files of the library: each one's path, a zero byte, its SHA-256."""
    return hash_of(PACKAGE)


def hash_of(folder: Path) -> str:
    """The hash of a folder of Python files, the same wherever it lies."""
    total = hashlib.sha256()
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    for name, path in sorted(paths.items()):
        total.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def describe(sources: Iterable[str], data: Mapping[str, str]) -> dict[str, Any]:
    """The entry of a record: version and source now, all sources its parts were made with, data."""
    now = source_hash()
    found = {"version": version("undirected"), "source": now}
    several = sorted({now, *sources})
    mixed = {"sources": several} if len(several) > 1 else {}
    return {**found, **mixed, "data": dict(sorted(data.items()))}


def warning(described: Mapping[str, Any]) -> list[str]:
    """What a record put together from the work of several sources says about it."""
    several = described.get("sources", [])
    if not several:
        return []
    names = ", ".join(source[:SHOWN] for source in several)
    return [f"Put together from parts made with {len(several)} states of the source: {names}."]
