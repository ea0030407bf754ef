"""Transfer matrices of long chains against their closed form."""

import numpy as np
import pytest

from undirected.core import graph
from undirected.inference import Transfer
from undirected.models import Ising


def test_long_chains_keep_the_digits_of_log_z():
    """A free chain has log Z = log 2 + (n - 1) log(2 cosh J), and means of one half."""
    n, coupling = 20_000, 0.2
    model = Ising.from_spins(np.full(n - 1, coupling), np.zeros(n), graph.chain(n))
    found = Transfer.plan(model.graph)(model)
    wanted = np.log(2) + (n - 1) * np.log(2 * np.cosh(coupling))
    assert float(found.log_z) == pytest.approx(wanted, rel=2e-6)  # some 16 roundings of 1.2e-7
    np.testing.assert_allclose(found.unary, 0.5, atol=1e-5)
