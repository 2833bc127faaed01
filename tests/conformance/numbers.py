"""Numbers to begin with, for engines in other languages: python -m tests.conformance.numbers"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specmesh.decoding.noise import Purpose, gumbel, uniforms
from specmesh.decoding.prefix import BLOCK_TOKENS, SALT_BYTES, PrefixChain


def lines() -> Iterator[str]:
    """As docs/engines.md has them."""
    for name, noise in (("uniform", uniforms), ("Gumbel", gumbel)):
        numbers = noise(5, 10, Purpose.COUPLED, np.array([0, 1, 4095])).tolist()
        yield (
            f"{name} noise (seed 5, position 10, purpose 0, ids 0, 1, 4095): "
            f"{' '.join(map(repr, numbers))}"
        )
    tokens = range(BLOCK_TOKENS)
    yield f"digest of the tokens 0 to 15: {PrefixChain(tokens).digest_at(BLOCK_TOKENS).hex()}"
    salted = PrefixChain(tokens, bytes(range(SALT_BYTES)))
    yield f"with the salt 00 01 ... 1f: {salted.digest_at(BLOCK_TOKENS).hex()}"


if __name__ == "__main__":
    print(*lines(), sep="\n")  # noqa: T201 - the command's output
