"""A model and the schema of its table: questions, samples and scores in the table's own words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from undirected.core.columns import Schema
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.progress import Progress
from undirected.core.protocols import Model
from undirected.core.random import make_key
from undirected.core.table_units import TableUnits, part_of, same_states
from undirected.inference import QueryNetwork
from undirected.io.frames import Frame, as_frame
from undirected.io.model_files import load_model, save_model
from undirected.io.model_record import describe_model
from undirected.models import ConditionalRBM, FactorGraph, Potts
from undirected.tasks.choose import asks_entries
from undirected.tasks.conditional_columns import conditional_answers, given_and_asked
from undirected.tasks.network_data import network_units
from undirected.tasks.query import Answers, answer_rows, by_column
from undirected.tasks.rows import has_columns
from undirected.tasks.sample import sample_units
from undirected.tasks.sampler import Sampler, sampler_for
from undirected.tasks.table_kinds import in_kind_of
from undirected.tasks.words import ColumnAnswer, answers_by_column, filled, ones, read_words

if TYPE_CHECKING:
    from undirected.tasks.dependences import Dependence
    from undirected.tasks.evaluate import Evaluation


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted model and what the columns of its table hold.

    Args:
        model: the model.
        schema: the columns, as the model has them.
        network: the query network of a model that was trained to answer.
        given: numbers of the columns that a conditional model takes as known.
        notes: what else was written down of its training.

    Example:
        >>> import undirected as un
        >>> table = {"sky": ["clear", "grey", "dark"] * 20, "mm": [0.2, 1.4, 9.1] * 20}
        >>> model = un.fit_table(table, epochs=2, hidden=2)
        >>> sorted(model.query({"sky": [""], "mm": [9.0]}))
        ['mm', 'sky', 'sky_p']
    """

    model: Any
    schema: Schema
    network: QueryNetwork | None = None
    given: tuple[int, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        names = self.schema.names
        shown = ", ".join(names[:6]) + ", …" * (len(names) > 6)
        return f"TableModel({type(self.model).__name__} of {len(names)} columns: {shown})"

    def query(self, table: Any, *, method: str = "auto", seed: int = 0) -> Any:
        """The table with its missing cells filled in, and how sure each answer is.

        Cells by the names of their columns, as in `{"sky": None, "mm": 9.0}`, are one row. Beside a
        column with missing cells stands NAME_p, the probability of the word filled in, or NAME_sd,
        the standard deviation. A data frame or an Arrow table gives such a table, whose columns
        keep their types where those hold the answers; all else gives a mapping.
        """
        frame = as_frame(_as_columns(table))
        found = self.answers(self.encode(frame), method=method, seed=seed)
        columns = filled(frame.cells, found, len(frame))
        for answer in found:
            name = answer.column.name
            if answer.asked.all() and isinstance(columns[name][0], str):  # no cell shows its kind
                columns[name] = read_words(answer.column, np.array(columns[name], object)).tolist()
        answered = {answer.column.name for answer in found if answer.asked.any()}
        return in_kind_of(table, columns, answered)

    def sample(
        self, count: int, *, given: Any = None, seed: int = 0, sweeps: int = 1000
    ) -> dict[str, np.ndarray]:
        """Rows drawn from the model, column by column; `given` is one row to keep.

        Cells are words, numbers in the units of the table, or booleans, as the states of their
        column read.
        """
        row = np.full(len(self.schema), np.nan, np.float32)
        if given is not None:
            rows = self.encode(as_frame(_as_columns(given)))
            if len(rows) != 1:
                raise UndirectedError(f"sample: `given` has {len(rows)} rows; pass one")
            row = rows[0]
        found = self.schema.decode(self.samples(count, row, seed=seed, sweeps=sweeps))
        kinds = {column.name: column for column in self.schema if column.is_discrete}
        return {n: read_words(kinds[n], x) if n in kinds else x for n, x in found.items()}

    def evaluate(self, table: Any, *, seed: int = 0, **options: Any) -> "Evaluation":
        """The log-likelihood of a table, with its error; numbers are taken as standardised."""
        return self.score(self.encode(as_frame(_as_columns(table))), seed=seed, **options)

    def dependences(self, most: int = 20) -> "list[Dependence]":
        """The pairs of columns that tell most of each other, in bits, all others being known."""
        self.check_joint("dependences")
        from undirected.tasks.dependences import strongest_dependences

        return strongest_dependences(self.model, self.schema, most)

    def save(self, folder: str | Path) -> None:
        """Save the model with its schema, as the command line reads it."""
        extra = {**self.notes, "names": self.schema.names, "schema": self.schema.to_json()}
        save_model(folder, self.model, extra)

    def encode(self, frame: Frame) -> Float[np.ndarray, "rows columns"]:
        """The rows of a table as numbers; a column that it does not have is missing."""
        absent = [name for name in self.schema.names if name not in frame.cells]
        if len(absent) == len(self.schema):
            raise UndirectedError(
                f"{frame.source}: no column of the model is there; it knows "
                f"{', '.join(self.schema.names[:6])}, the table has {', '.join(frame.names[:6])}"
            )
        holes = {name: np.full(len(frame), np.nan) for name in absent}
        return self.schema.encode({**frame.cells, **holes}, frame.place)

    def answers(
        self,
        values: Float[np.ndarray, "rows columns"],
        *,
        method: str = "auto",
        seed: int = 0,
        progress: Progress | None = None,
    ) -> list[ColumnAnswer]:
        """What the model says of every column of encoded rows."""
        return self.answers_and_status(values, method=method, seed=seed, progress=progress)[0]

    def answers_and_status(
        self, values: np.ndarray, *, method: str, seed: int, progress: Progress | None = None
    ) -> tuple[list[ColumnAnswer], float | None]:
        """The answers, and the share of the rows whose inference settled, where one can settle."""
        if isinstance(self.model, ConditionalRBM):
            return self._conditional_answers(values), None
        if self.answers_by_network and method in ("auto", "bp"):
            from undirected.learning import answers as ask_network

            rows = self.units(values)
            means = np.where(np.isnan(rows), ask_network(self.network, rows), rows)
            return self._by_column(values, Answers(means, np.zeros(len(rows), int))), None
        if method == "bp" and not asks_entries(self.model):
            method = "auto"  # its factors send no messages
        found = answer_rows(
            self.model, self.rows(values), method=method, seed=seed, progress=progress
        )
        return self._by_column(values, found), found.converged

    @property
    def answers_by_network(self) -> bool:
        """Whether its query network answers, which takes no continuous units."""
        return self.network is not None and not self.model.layout.is_continuous.any()

    def samples(
        self,
        count: int,
        row: Float[np.ndarray, " columns"],
        *,
        seed: int = 0,
        sweeps: int = 1000,
        sampler: Sampler | None = None,
        progress: Progress | None = None,
    ) -> Float[np.ndarray, "count columns"]:
        """Encoded rows drawn from the model given the known cells of one."""
        self.check_joint("sample")
        key, units = make_key("sample", None, seed), self.units(row[None])[0]
        options = {"sweeps": sweeps, "sampler": sampler, "progress": progress}
        found = sample_units(self.model, count, units, key, **options)
        return self.table(found[:, : self.model.layout.n_visible])

    def sampler(self, row: Float[np.ndarray, " columns"]) -> Sampler:
        """How `samples` draws given the known cells of a row, and why so."""
        self.check_joint("sample")
        return sampler_for(self.model, self.units(row[None])[0])

    def score(self, values: np.ndarray, **options: Any) -> "Evaluation":
        """The log-likelihood of encoded rows."""
        self.check_joint("evaluate")
        from undirected.tasks.evaluate import evaluate

        means = self.notes.get("means")
        means = None if means is None else jnp.asarray(means, jnp.float32)
        return evaluate(self.model, self.rows(values), means=means, **options)

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Rows as the verbs take them: of columns where the model has columns, else of units."""
        return values if has_columns(self.model) else self.units(values)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Rows over the visible units."""
        table = self._table_units()
        return values if table is None else table.to_units(values)

    def table(self, units: np.ndarray) -> np.ndarray:
        """Encoded rows of one cell a column from rows over the visible units."""
        table = self._table_units()
        found = units if table is None else table.to_table(units)
        states = [column.n_states or np.inf for column in self.schema]
        return np.minimum(found, np.array(states, np.float32) - 1)  # a Potts model may have more

    def check_joint(self, caller: str) -> None:
        """Refuse what needs a distribution of whole rows, which a conditional model has not."""
        if isinstance(self.model, ConditionalRBM):
            raise UndirectedError(
                f"{caller}: a conditional model answers some columns given others, and has no "
                "distribution of rows; use query"
            )

    def _conditional_answers(self, values: np.ndarray) -> list[ColumnAnswer]:
        """Answers of a conditional model; of the given columns what is known, nothing asked."""
        kinds = TableUnits.of(self.schema)
        inputs, outputs = given_and_asked(kinds, self.given)
        units = conditional_answers(self.model, kinds, inputs, values)
        own = by_column(part_of(kinds, outputs), Answers(units, np.zeros(len(units), int)))
        found = []
        for j, column in enumerate(self.schema):
            cells, known = values[:, j], ~np.isnan(values[:, j])
            if column.is_discrete:
                one_hot = (cells[:, None] == np.arange(column.n_states)).astype(float)
                p = own.probabilities.get(column.name, np.ones(one_hot.shape))
                p = np.where(known[:, None], one_hot, p / p.sum(1, keepdims=True))
                found.append(ColumnAnswer(column, ~known & (j not in inputs), p))
            else:
                spread = np.where(known, 0.0, np.nan)
                nothing = np.zeros(len(values), bool)
                found.append(ColumnAnswer(column, nothing, None, column.decode(cells), spread))
        return found

    def _table_units(self) -> TableUnits | None:
        if has_columns(self.model):
            return self.model.table
        if isinstance(self.model, Potts) and len(self.schema) == len(self.model.fields):
            return same_states(TableUnits.of(self.schema))
        if isinstance(self.model, FactorGraph):
            return network_units(self.model.layout, self.schema)
        return None

    def _by_column(self, values: np.ndarray, found: Answers) -> list[ColumnAnswer]:
        table = self._table_units()
        if table is None and self.schema.kinds == {"binary"}:
            return ones(self.schema, values, found.values)
        if table is None:
            names = self.schema.names
            spread = np.full_like(found.values, np.nan) if found.std is None else found.std
            mean = dict(zip(names, found.values.T, strict=True))
            return answers_by_column(
                self.schema, values, {}, mean, dict(zip(names, spread.T, strict=True))
            )
        own = by_column(table, found)
        shares = {}
        for column in self.schema:
            if column.is_discrete:
                part = own.probabilities[column.name][:, : column.n_states]
                shares[column.name] = part / part.sum(1, keepdims=True)
        return answers_by_column(self.schema, values, shares, own.mean, own.std)


def _as_columns(table: Any) -> Any:
    """A table as it is; of one row that is given by its cells a mapping of columns."""
    if not isinstance(table, Mapping):
        return table
    cells = [isinstance(cell, str) or not hasattr(cell, "__len__") for cell in table.values()]
    return {name: [cell] for name, cell in table.items()} if cells and all(cells) else table


def load_table(folder: str | Path) -> TableModel:
    """A fitted model with its schema, from a folder.

    Args:
        folder: where `TableModel.save` or `undirected fit` put it.

    Returns:
        The `TableModel`.

    Example:
        >>> import tempfile
        >>> import undirected as un
        >>> folder = tempfile.mkdtemp()
        >>> un.fit_table({"a": [0, 1] * 20, "b": [1, 0] * 20}, model="ising").save(folder)
        >>> un.load_table(folder).schema.names
        ['a', 'b']
    """
    model, extra = load_model(folder), describe_model(folder)["extra"]
    if not isinstance(model, Model | ConditionalRBM):
        raise UndirectedError(f"{folder}: a {type(model).__name__} is no model; use un.load")
    if extra.get("schema") is None:
        raise BadFile(
            f"{folder}: no schema was kept with this model; use un.load, and rows of numbers"
        )
    query = extra.get("query")
    network = QueryNetwork(model, **query) if isinstance(query, dict) else None
    given = tuple(extra.get("given") or ())
    return TableModel(model, Schema.from_json(extra["schema"]), network, given, extra)
