"""Ways a file goes wrong: cut short anywhere, or any one bit turned over."""

from collections.abc import Iterator

import numpy as np


def damaged(data: bytes, cuts: int = 200, flips: int = 1000) -> Iterator[tuple[str, bytes]]:
    """The file cut at random lengths, then with one random bit turned over."""
    random = np.random.default_rng(0)
    for length in random.permutation(len(data))[:cuts].tolist():
        yield f"cut to {length} bytes", data[:length]
    for bit in random.permutation(8 * len(data))[:flips].tolist():
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit % 8} of byte {bit // 8} turned over", bytes(turned)
