"""Versions of what is not installed, and the hash of a source tree."""

import hashlib

import pytest

from undirected.core.errors import UndirectedError
from undirected.experiments import provenance

FILES = {"__init__.py": "", "b/deep.py": "x = 1\n", "a.py": "y = 2\n"}


def make(folder, files=FILES):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_hash_is_that_of_names_and_contents(tmp_path):
    wanted = hashlib.sha256()
    for name in sorted(FILES):
        wanted.update(name.encode() + b"\0" + hashlib.sha256(FILES[name].encode()).digest())
    first = make(tmp_path / "first")
    assert provenance.hash_of(first) == wanted.hexdigest()
    (first / "notes.txt").write_text("not source")
    assert provenance.hash_of(first) == wanted.hexdigest()
    for change in ({"a.py": "y = 3\n"}, {"new.py": ""}):
        other = make(tmp_path / str(change), FILES | change)
        assert provenance.hash_of(other) != wanted.hexdigest()


def test_the_source_is_that_of_the_library():
    assert provenance.source_hash() == provenance.hash_of(provenance.PACKAGE)
    assert (provenance.PACKAGE / "experiments" / "provenance.py").is_file()


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"src/loose_one/__init__.py": "__version__ = '1.2'"}, "1.2"),
        ({"src/loose_one/__init__.py": "", "src/loose_one/version.py": '_version = "2.0"'}, "2.0"),
        (
            {
                "src/loose_one/__init__.py": "",
                "pyproject.toml": '[project]\nname = "loose_one"\nversion = "3.1"',
            },
            "3.1",
        ),
    ],
)
def test_versions_of_what_is_not_installed(tmp_path, monkeypatch, files, version):
    make(tmp_path, files)
    monkeypatch.syspath_prepend(tmp_path / "src")
    assert provenance.version("loose_one") == version


def test_a_version_that_nothing_says_is_an_error(tmp_path, monkeypatch):
    other = '[project]\nname = "another"\nversion = "3.1"'
    make(tmp_path, {"src/loose_two/__init__.py": "", "pyproject.toml": other})
    monkeypatch.syspath_prepend(tmp_path / "src")
    for name in ("loose_two", "there_is_no_such_package"):
        with pytest.raises(UndirectedError, match=f"the version of {name} cannot be found"):
            provenance.version(name)
