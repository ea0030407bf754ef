"""A Potts model of a family of sequences: how it is fitted, and what one asks of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from undirected.alignment.boltzmann import BoltzmannSettings, boltzmann_potts, profile_chains
from undirected.alignment.contacts import SEPARATION, Contacts, contact_scores, rank_contacts
from undirected.alignment.mean_field import mean_field_potts
from undirected.alignment.sequences import Alignment, in_letters, letters_of
from undirected.alignment.weights import check_family, frequencies, sequence_weights
from undirected.core.errors import BadFile, UndirectedError, check_counts
from undirected.core.numerics import NEG_INF
from undirected.core.random import make_key
from undirected.io.checkpoint import Checkpoints
from undirected.learning.checkpointing import Store
from undirected.learning.pairwise import Penalty, fit_pairwise
from undirected.models import Potts
from undirected.ops.dense_potts import sweeps as run_sweeps

METHODS = ("pseudo-likelihood", "pcd", "mean-field", "rise", "logrise")
Progress = Callable[[int, float], None]


@dataclass(frozen=True, eq=False)
class FamilyModel:
    """A Potts model and the letters of its states.

    Args:
        potts: the model; its variables are the positions of the alignment.
        letters: the alphabet; state 0 is the gap.
        notes: how it was fitted.

    Example:
        >>> import undirected as un
        >>> family = un.FamilyModel(un.Potts.create(6, 5), "-ACGU")
        >>> family.sample(3, sweeps=1).n_positions
        6
        >>> family.energies(un.Alignment.of(["ACGUAC"], "rna")).tolist()
        [0.0]
    """

    potts: Potts
    letters: str
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.potts, Potts):
            raise UndirectedError(f"FamilyModel: got a {type(self.potts).__name__}; pass a Potts")
        if len(self.letters) != self.potts.states:
            raise UndirectedError(
                f"FamilyModel: {len(self.letters)} letters for {self.potts.states} states"
            )

    @property
    def n_positions(self) -> int:
        """The number of columns of the alignment."""
        return self.potts.fields.shape[0]

    def energies(self, alignment: Alignment) -> Float[np.ndarray, " N"]:
        """E of every sequence; the lower, the better it suits the family."""
        states = self._states_of(alignment)
        fields, matrix = np.asarray(self.potts.fields), self.potts.coupling_matrix
        found = np.full(len(states), float(self.potts.offset))
        places = np.arange(self.n_positions)
        for n, row in enumerate(states):
            picked = matrix[places[:, None], row[:, None], places, row]
            found[n] += fields[places, row].sum(dtype=float) + 0.5 * picked.sum(dtype=float)
        return 0.0 - found

    def mutations(self, sequence: str) -> Float[np.ndarray, "L q"]:
        """E(mutant) - E(sequence) of every single mutation: position, then letter.

        Negative where a mutation suits the family better than the letter that is there.
        """
        row = self._states_of(in_letters("mutations", [sequence], self.letters))[0]
        places, matrix = np.arange(self.n_positions), self.potts.coupling_matrix
        field = np.asarray(self.potts.fields) + matrix[:, :, places, row].sum(2)
        return field[places, row][:, None] - field

    def contacts(self, separation: int = SEPARATION) -> Contacts:
        """Pairs of positions from 1, more than `separation` apart, best first."""
        return rank_contacts(contact_scores(self.potts), separation)

    def sample(
        self,
        count: int = 100,
        sweeps: int = 1000,
        seed: int = 0,
        given: Mapping[int, str] | None = None,
    ) -> Alignment:
        """New sequences, each from a chain of its own that starts at independent positions.

        `given` are letters that are held, `{position: letter}`, positions from 1 as in contacts.
        """
        check_counts("sample", count=count, sweeps=sweeps)
        fields = self._held({} if given is None else given)
        x = _draw(fields, jnp.asarray(self.potts.coupling_matrix), count, sweeps, seed)
        names = tuple(f"sample_{n + 1}" for n in range(count))
        return Alignment(x, self.letters, names)

    def save(self, folder: str | Path, extra: dict[str, Any] | None = None) -> None:
        """Write a model folder, which `undirected` and `un.load_family` read."""
        from undirected.io.model_files import save_model

        notes = {"family": {"letters": self.letters, **self.notes}}
        save_model(Path(folder), self.potts, notes | (extra or {}))

    def _held(self, given: Mapping[int, str]) -> Float[np.ndarray, "L q"]:
        """The fields, with all letters but the given ones forbidden."""
        if not isinstance(given, Mapping):
            raise UndirectedError(
                f"sample: given is {given!r:.40}; pass {{position: letter}}, positions from 1"
            )
        fields = np.array(self.potts.fields)
        for position, letter in given.items():
            whole = isinstance(position, Integral) and not isinstance(position, bool)
            if not whole or not 1 <= position <= self.n_positions:
                raise UndirectedError(
                    f"sample: position {position!r:.40} is given; pass 1 to {self.n_positions}"
                )
            if not isinstance(letter, str) or len(letter) != 1 or letter not in self.letters:
                raise UndirectedError(
                    f"sample: {letter!r:.40} is given at position {position}; pass one of "
                    f"{self.letters}"
                )
            fields[int(position) - 1] = NEG_INF
            fields[int(position) - 1, self.letters.index(letter)] = 0.0
        return fields

    def _states_of(self, alignment: Alignment) -> np.ndarray:
        """States by this model's letters, of as many positions."""
        _check_alignment("energies", alignment)
        if alignment.letters != self.letters:
            alignment = in_letters("energies", alignment.sequences, self.letters, alignment.names)
        if alignment.n_positions != self.n_positions:
            raise UndirectedError(
                f"sequences of {alignment.n_positions} aligned letters for a model of "
                f"{self.n_positions} positions; align them to the family"
            )
        return alignment.states


def _check_alignment(caller: str, alignment: Any) -> None:
    """Refuse what is no alignment."""
    if not isinstance(alignment, Alignment):
        raise UndirectedError(
            f"{caller}: got a {type(alignment).__name__}; pass an Alignment, as read_fasta(path) "
            "or Alignment.of(rows) makes one"
        )


def _draw(fields: Any, couplings: Any, count: int, sweeps: int, seed: int) -> np.ndarray:
    """States of chains that ran for so many sweeps."""
    start, run = jax.random.split(make_key("sample", None, seed))
    x = jax.jit(profile_chains, static_argnums=1)(jax.nn.softmax(fields, axis=1), count, start)
    x = jax.jit(run_sweeps)(fields, couplings, x, run, sweeps)
    return np.asarray(x.reshape(*fields.shape, count).argmax(1).T, np.uint8)


def fit_family(
    alignment: Alignment,
    method: str = "pseudo-likelihood",
    *,
    identity: float = 0.8,
    pseudocount: float | None = None,
    l2: float = 0.01,
    settings: BoltzmannSettings | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    store: str | Path | Store | None = None,
) -> FamilyModel:
    """Fit a Potts model to an alignment.

    Args:
        alignment: the sequences of a family.
        method: "pseudo-likelihood" (plmDCA, the best contacts for the time), "pcd" (maximum
            likelihood by chains, bmDCA, for new sequences), "mean-field" (the quickest), or
            interaction screening, "rise" and "logrise".
        identity: sequences that agree in this share of positions share their weight; 1 weighs
            copies only.
        pseudocount: share of the uniform distribution in the frequencies; by default 0.5 for
            "mean-field" and 1 / the effective number of sequences for "pcd".
        l2: penalty of fields and couplings of "pseudo-likelihood", "rise" and "logrise".
        settings: target and schedule of "pcd".
        seed: of the chains of "pcd".
        progress: told steps done, and the objective or Pearson.
        store: the folder in which checkpoints of "pcd" go, so that a stopped run goes on.

    Returns:
        A `FamilyModel`.

    Example:
        >>> import undirected as un
        >>> family = un.Alignment.of(["ACGU", "ACGA", "GUGU", "GUGA"] * 5, "rna")
        >>> model = un.fit_family(family, "mean-field")
        >>> model.contacts(separation=0)[0][0], model.contacts(separation=0)[1][0]
        (np.int64(1), np.int64(2))
    """
    if method not in METHODS:
        raise UndirectedError(f"fit_family: method '{method}'; pass one of {', '.join(METHODS)}")
    _check_alignment("fit_family", alignment)
    check_family("fit_family", alignment.states)
    weights, q = sequence_weights(alignment, identity), alignment.n_states
    notes = {"method": method, "sequences": len(alignment), "effective": float(weights.sum())}
    if method == "mean-field":
        share = 0.5 if pseudocount is None else pseudocount
        found = frequencies(alignment.states, q, weights, share)
        return FamilyModel(mean_field_potts(found), alignment.letters, notes)
    if method == "pcd":
        share = 1 / float(weights.sum()) if pseudocount is None else pseudocount
        found = frequencies(alignment.states, q, weights, share)
        kept = Checkpoints(store) if isinstance(store, str | Path) else store
        learned = boltzmann_potts(found, settings, seed, progress, kept)
        notes |= {"pearson": learned.pearson, "steps": learned.steps}
        notes |= {"converged": learned.converged}
        return FamilyModel(learned.model, alignment.letters, notes)
    best = fit_pairwise(alignment.states, q, weights, method, Penalty(l2, l2), progress=progress)
    notes |= {"steps": best.iterations, "converged": best.converged, "objective": best.value}
    return FamilyModel(Potts.dense(*best.at).zero_sum(), alignment.letters, notes)


def load_family(folder: str | Path) -> FamilyModel:
    """A `FamilyModel` from the folder that `undirected fit` or `FamilyModel.save` wrote.

    Args:
        folder: of the model.

    Returns:
        The model with its letters.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> folder = pathlib.Path(tempfile.mkdtemp(), "model")
        >>> un.FamilyModel(un.Potts.create(6, 5), "-ACGU").save(folder)
        >>> un.load_family(folder).letters
        '-ACGU'
    """
    from undirected.io.model_files import load_model

    model, notes = load_model(folder), family_notes(folder)
    if notes is None or not isinstance(model, Potts):
        raise UndirectedError(
            f"{folder}: this is a {type(model).__name__}, not a Potts model of an alignment; fit "
            "one with `undirected fit FAMILY.fasta --model potts` or un.fit_family"
        )
    letters = notes.get("letters")
    if not isinstance(letters, str) or len(letters_of(letters)) != model.states:
        raise BadFile(
            f"{folder}: model.json notes letters {letters!r:.60}; wanted {model.states} of them"
        )
    rest = {name: value for name, value in notes.items() if name != "letters"}
    return FamilyModel(model, letters, rest)


def family_notes(folder: str | Path) -> dict[str, Any] | None:
    """What a model folder says of its family; None where it is of no alignment."""
    from undirected.io.model_record import describe_model

    notes = describe_model(folder)["extra"].get("family")
    return notes if isinstance(notes, dict) else None
