"""Sums of messages at units, against additions one by one in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from undirected.factors.incidence import connect
from undirected.models import discrete


@pytest.mark.parametrize(("slots", "tables"), [(0, 0), (40, 1), (300, 2), (20_000, 10)])
def test_messages_are_summed_where_they_end(slots: int, tables: int) -> None:
    """A few units have very many slots, some none; small groups make do with few tables."""
    rng = np.random.default_rng(slots)
    n = 500
    units = (n * rng.random((2, slots)) ** 6).astype(int)
    units[rng.random(units.shape) < 0.1] = n  # not used
    wiring = connect(discrete(x=n), units)
    messages = rng.normal(size=units.shape).astype(np.float32)
    wanted = np.zeros(n + 1)
    np.add.at(wanted, units, messages)
    np.testing.assert_allclose(wiring.gather(messages), wanted[:n], atol=2e-3)
    assert len(wiring.incoming) == tables
    assert sum(table.size for table in wiring.incoming) <= 2 * units.size + 4096

    x = jnp.asarray(rng.normal(size=n), jnp.float32)
    np.testing.assert_array_equal(wiring.spread(x, -7.0), np.append(x, np.float32(-7))[units])
