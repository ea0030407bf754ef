"""Tables that are read as they are used: every row once an epoch, and the same steps."""

import jax
import numpy as np
import optax
import pytest

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.io.checkpoint import Checkpoints
from undirected.learning import fit, trainer
from undirected.learning.streams import Reader


class Watched:
    """A source that only gives slices, and notes which."""

    def __init__(self, rows):
        self.rows, self.asked, self.slices = rows, [], []
        self.shape, self.dtype = rows.shape, rows.dtype

    def __getitem__(self, where):
        assert isinstance(where, slice) and where.stop - where.start <= 4
        self.asked.append(where.start)
        self.slices.append((where.start, where.stop))
        return self.rows[where]


@pytest.mark.parametrize(("rows", "size"), [(23, 5), (24, 4), (7, 7), (9, 2)])
def test_every_row_comes_once_an_epoch(rows, size):
    batches = un.StreamedBatches(np.zeros((rows, 1)), size, block=4, buffer=8)
    stream = batches.indices(0, 3 * rows).ravel()
    for epoch in range(3):
        assert sorted(stream[epoch * rows : (epoch + 1) * rows]) == list(range(rows))
    orders = stream[: 2 * rows].reshape(2, rows)
    if size < rows:  # a batch of all rows is the same in any order
        assert (orders[0] != orders[1]).any()
    assert (batches.indices(3, 9) == stream.reshape(-1, size)[3:9]).all()


def test_rows_are_mixed_beyond_their_block():
    order = un.StreamedBatches(np.zeros((400, 1)), 1, block=10, buffer=100).indices(0, 400).ravel()
    first = order[:100] // 10  # the blocks of the first buffer
    assert len(set(first)) == 10  # ten blocks,
    assert (np.diff(first) != 0).mean() > 0.7  # in no runs,
    assert set(first) != set(range(10))  # and not the first ten
    kept = un.StreamedBatches(np.zeros((400, 1)), 1, shuffle=False, block=10, buffer=100)
    assert (kept.indices(0, 400).ravel() == np.arange(400)).all()


def test_a_reader_gives_the_rows_that_the_order_names():
    source = Watched(np.arange(46).reshape(23, 2))
    batches = un.StreamedBatches(source, 5, block=4, buffer=8)
    reader = Reader(batches)
    for start, stop in ((0, 3), (3, 6), (6, 7), (20, 24)):  # in turn, and by leaps
        found = reader(start, stop)
        assert (found == source.rows[batches.indices(start, stop)]).all()
        assert len(reader.held) <= 2
    reader.close()
    assert set(source.asked) == {0, 4, 8, 12, 16, 20}


@pytest.mark.parametrize("shuffle", [True, False], ids=["mixed", "in order"])
@pytest.mark.parametrize("processes", [2, 4])
def test_readers_of_parts_of_a_batch_share_out_the_rows(processes, shuffle):
    """Each row is read by one of them; together they have the batches of one reader."""
    rows, size = np.arange(96).reshape(48, 2) + 1, 8
    whole = un.StreamedBatches(rows, size, block=4, buffer=24, shuffle=shuffle)
    expected, total, times = Reader(whole).read(0, 18), 0, np.zeros(48, int)  # three epochs
    for process in range(processes):
        own = np.arange(size) * processes // size == process
        source = Watched(rows)
        reader = Reader(
            un.StreamedBatches(source, size, block=4, buffer=24, shuffle=shuffle), own=own
        )
        found = reader.read(0, 6)
        assert (found[:, ~own] == 0).all()
        asked = np.concatenate([np.arange(*where) for where in source.slices])
        assert len(asked) == len(set(asked)) == 48 // processes
        times[asked] += 1
        total = total + np.concatenate([found, reader.read(6, 18)])
    assert (times == 1).all()
    assert (total == expected).all()


@pytest.mark.slow
def test_a_stream_makes_the_steps_of_its_rows_in_memory(tmp_path):
    """An oracle that knows nothing of streams: a table whose rows lie in the stream's order."""
    rows = (np.random.default_rng(0).random((40, 6)) < 0.5).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    source = np.load(tmp_path / "rows.npy", mmap_mode="r")
    streamed = un.StreamedBatches(source, 8, block=4, buffer=12)
    sorted_ = un.Batches(rows[streamed.indices(0, 10).ravel()], 8, shuffle=False)
    model, objective = un.RBM.create(6, 3, seed=0), un.Persistent(un.BlockGibbs(), chains=4)

    def run(batches, steps=10, **options):
        how = optax.sgd(0.1), batches, jax.random.key(0)
        return fit(model, objective, *how, steps=steps, log_every=4, **options)

    def same(a, b):
        pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        return all((np.asarray(x) == np.asarray(y)).all() for x, y in pairs)

    whole = run(streamed)
    expected = run(sorted_)
    assert same((whole.model, whole.carry), (expected.model, expected.carry))
    store = Checkpoints(tmp_path / "run")
    run(streamed, steps=5, store=store)
    resumed = run(streamed, store=store)
    assert same((whole.model, whole.carry), (resumed.model, resumed.carry))
    with pytest.raises(UndirectedError, match="the store has block 4, not 8"):
        run(un.StreamedBatches(source, 8, block=8, buffer=16), store=store)
    split = run(streamed, mesh=un.device_mesh(1))
    assert same((whole.model, whole.carry), (split.model, split.carry))


def test_values_are_checked_when_they_come():
    rows = np.zeros((40, 6), np.uint8)
    rows[33, 2] = 7
    batches = un.StreamedBatches(rows, 8, block=4, buffer=8)
    model, objective = un.RBM.create(6, 3, seed=0), un.Persistent(un.BlockGibbs(), chains=4)
    with pytest.raises(UndirectedError, match="row 33 of the data has the value 7"):
        fit(model, objective, optax.sgd(0.1), batches, jax.random.key(0), epochs=1, log_every=4)


def test_what_is_no_source_is_refused():
    with pytest.raises(UndirectedError, match="pass a memory map"):
        un.StreamedBatches([[0, 1]], 1)
    with pytest.raises(UndirectedError, match="have 2 and 3 rows"):
        un.StreamedBatches((np.eye(2), np.eye(3)), 1)
    for options in ({"size": 0}, {"size": 1, "block": -1}, {"size": 1, "buffer": -1}):
        with pytest.raises(UndirectedError, match="pass 1 or more"):
            un.StreamedBatches(np.eye(3), **options)


def test_a_block_is_a_megabyte_and_a_buffer_64_of_them():
    rows = np.broadcast_to(np.zeros((1, 1000), np.uint8), (10**6, 1000))
    batches = un.StreamedBatches(rows, 10)
    assert 2**20 - 1000 < 1000 * batches.block <= 2**20
    assert 63 * 2**20 < 1000 * batches.buffer <= 2**26
    assert batches.buffer % batches.block == 0


def test_steps_whose_rows_do_not_fit_at_once_are_made_in_parts(monkeypatch):
    """Three steps at a time, of ten; the oracle is a table that lies in the stream's order."""
    rows = (np.random.default_rng(0).random((40, 6)) < 0.5).astype(np.float32)
    streamed = un.StreamedBatches(rows, 8, block=4, buffer=12)
    whole = un.Batches(rows[streamed.indices(0, 10).ravel()], 8, shuffle=False)
    monkeypatch.setattr(trainer, "MOST_BYTES", 3 * rows[:8].nbytes)
    how = un.Ising.create(6), un.PseudoLikelihood(), optax.sgd(0.1)
    found, wanted = (fit(*how, own, jax.random.key(0), steps=10) for own in (streamed, whole))
    assert (np.asarray(found.model.weights) == np.asarray(wanted.model.weights)).all()
    (mean,), (whole_mean,) = (
        [row["negative_log_pseudo_likelihood"] for row in run.history] for run in (found, wanted)
    )
    assert mean == pytest.approx(whole_mean, rel=1e-6)
