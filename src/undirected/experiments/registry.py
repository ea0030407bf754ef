"""Finding experiments by name, without importing them.

An experiment is a module `papers/<paper>/<name>.py` with

    TITLE: str
    CONFIG: dict[profile, dict]
    def run(config: dict, seed: int, context: Context) -> list[Row] | Outcome

and, where they apply,

    REPEATS: str   the config key (`a.b` where nested) of the number of runs that `run` itself
                   averages over, such as "seeds": the runner then asks for more of those
    PARTS: tuple[str, ...]
                   the config keys of lists, such as "cases" and "methods", whose entries may be
                   run apart, one after the other, into one record
    CLAIMS: list[Claim]
    def run_seeds(config: dict, seeds: list[int], context: Context) -> list[Outcome]
                   the same as `run` for each seed, learned side by side

Its name for users is `<paper>/<name>` with hyphens for underscores. Modules whose name starts with
`_` hold what the experiments of a paper share.
"""

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError

PROFILES = ("smoke", "quick", "full")
PAPERS = "undirected.papers"
"""The package of experiments, which stands above this one and is found by name."""


@dataclass(frozen=True)
class Experiment:
    """A loaded experiment module."""

    name: str
    title: str
    configs: dict[str, dict[str, Any]]
    run: Callable
    run_seeds: Callable | None = None
    repeats: str | None = None
    claims: tuple[Any, ...] = ()
    parts: tuple[str, ...] = ()

    def config(self, profile: str) -> dict[str, Any]:
        """The config of a profile; raises an error that lists the profiles there are."""
        if profile not in self.configs:
            known = ", ".join(self.configs)
            raise UndirectedError(f"{self.name}: no profile {profile!r}; it has {known}")
        return self.configs[profile]


def names() -> tuple[str, ...]:
    """All experiments, `<paper>/<name>`, sorted."""
    found, roots = [], importlib.import_module(PAPERS).__path__
    for paper in pkgutil.iter_modules(roots):
        if paper.ispkg:
            folders = [str(Path(root) / paper.name) for root in roots]
            modules = (module.name for module in pkgutil.iter_modules(folders))
            found += [f"{paper.name}/{name}" for name in modules if not name.startswith("_")]
    return tuple(sorted(name.replace("_", "-") for name in found))


def title(name: str) -> str:
    """The title of an experiment, read from its file; empty where there is none to read."""
    for root in importlib.import_module(PAPERS).__path__:
        path = Path(root, *name.replace("-", "_").split("/")).with_suffix(".py")
        if path.is_file():
            told = re.search(r'^TITLE = "(.*)"$', path.read_text(encoding="utf-8"), re.M)
            return told[1] if told else ""
    return ""


def find(name: str) -> tuple[str, ...]:
    """Names of all experiments of a paper (`crbm-bp`), or of the one given (`crbm-bp/table1`)."""
    wanted = name.strip().strip("/").replace("_", "-")
    known = names()
    found = tuple(one for one in known if one == wanted or one.startswith(f"{wanted}/"))
    if not wanted or not found:
        raise UndirectedError(_unknown(wanted, known))
    return found


def load(name: str) -> Experiment:
    """Import one experiment; raises an error when the name stands for several or for none."""
    full_name, *others = find(name)
    if others or "/" not in name.strip("/"):
        known = ", ".join([full_name, *others])
        raise UndirectedError(f"{name!r} is a paper; give one of its experiments: {known}")
    module_name = f"{PAPERS}.{full_name.replace('-', '_').replace('/', '.')}"
    module = importlib.import_module(module_name)
    missing = [key for key in ("TITLE", "CONFIG", "run") if not hasattr(module, key)]
    if missing:
        raise UndirectedError(f"{module_name} declares no {', '.join(missing)}; see {__name__}")
    unknown = set(module.CONFIG) - set(PROFILES)
    if unknown:
        raise UndirectedError(f"{module_name}: profile {unknown} is none of {', '.join(PROFILES)}")
    return Experiment(
        full_name,
        module.TITLE,
        module.CONFIG,
        module.run,
        getattr(module, "run_seeds", None),
        getattr(module, "REPEATS", None),
        tuple(getattr(module, "CLAIMS", ())),
        tuple(getattr(module, "PARTS", ())),
    )


def _unknown(wanted: str, known: tuple[str, ...]) -> str:
    papers = sorted({name.split("/")[0] for name in known})
    siblings = [name for name in known if name.split("/")[0] == wanted.split("/")[0]]
    near = siblings or [*papers, *known]
    close = difflib.get_close_matches(wanted, near, n=3, cutoff=0.6) or siblings
    hint = f"did you mean {' or '.join(close)}?" if close else f"the papers are {', '.join(papers)}"
    return f"no experiment is called {wanted!r}; {hint}"
