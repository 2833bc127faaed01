"""A simulated target and drafter made from a hash: tokens are known in advance, and acceptance is a
parameter.

A model's token is a function of the whole context, so an error anywhere in an answer changes
everything after it. The services and the simulator both use this module, so they give the same
tokens on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from specmesh.decoding.errors import InvalidField

MIN_VOCAB_SIZE = 4
"""The smallest vocabulary: two different wrong tokens beside the right one, and a spare."""

_MASK = (1 << 64) - 1

# Added to a hash chain in place of a token: no token id (uint32) equals them.
_START = 1 << 40
_TARGET = 1 << 41
_DRAFTER = 1 << 42

_AGREES, _RUNS_UP, _WRONG, _OTHER = range(4)


def chained(state: int, token: int) -> int:
    """Return the state after ``token``: a 64-bit hash of the whole context so far."""
    # SplitMix64's output function as in noise.py; inline, since every token goes through it.
    z = (state ^ token) + 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    return z ^ (z >> 31)


@dataclass(frozen=True, slots=True)
class SimulatedTarget:
    """A target with one token after every context; each of ``vocab_size`` (at least 4) is equally
    likely.

    ``seed`` is any uint64. Wrong values raise ``InvalidField``.
    """

    seed: int = 0
    vocab_size: int = 256

    def __post_init__(self) -> None:
        _check_word("seed", self.seed)
        if self.vocab_size < MIN_VOCAB_SIZE:
            raise InvalidField("vocab_size", f"must be at least {MIN_VOCAB_SIZE}")

    @property
    def start(self) -> int:
        """The state of the empty context."""
        return chained(_START, self.seed)

    def after(self, state: int, tokens: Iterable[int]) -> int:
        """Return the state of the context of ``state`` followed by ``tokens``."""
        return reduce(chained, tokens, state)

    def token(self, state: int) -> int:
        """Return the target's token after the context of ``state``."""
        return _below(self.vocab_size, chained(state, _TARGET))


@dataclass(frozen=True, slots=True)
class SimulatedDrafter:
    """A drafter that guesses the token of ``target``, independently at every context.

    Its first choice is the target's token with probability ``acceptance``; otherwise its second
    choice is with probability ``runner_up``. ``salt``, any uint64, distinguishes drafters of one
    target: drafters with different salts agree with it independently of each other. Wrong values
    raise ``InvalidField``.

    The numbers compared with the probabilities do not depend on them (common random numbers): a
    higher acceptance turns rejections into acceptances and changes nothing else.
    """

    target: SimulatedTarget
    acceptance: float
    runner_up: float = 0.5
    salt: int = 0

    def __post_init__(self) -> None:
        for field in ("acceptance", "runner_up"):
            if not 0 <= getattr(self, field) <= 1:
                raise InvalidField(field, "must be in [0, 1]")
        _check_word("salt", self.salt)

    def choices(self, state: int) -> tuple[int, int]:
        """Return the likeliest and the second likeliest token after the context of ``state``."""
        vocab_size, token = self.target.vocab_size, self.target.token(state)
        noise = chained(chained(state, _DRAFTER), self.salt)
        step = 1 + _below(vocab_size - 1, chained(noise, _WRONG))
        wrong = (token + step) % vocab_size
        if _uniform(chained(noise, _AGREES)) < self.acceptance:
            return token, wrong
        if _uniform(chained(noise, _RUNS_UP)) < self.runner_up:
            return wrong, token
        other = 1 + _below(vocab_size - 2, chained(noise, _OTHER))
        return wrong, (token + other + (other >= step)) % vocab_size


def _uniform(bits: int) -> float:
    """Return a number in [0, 1): never below a probability of 0, always below 1."""
    return (bits >> 11) * 2.0**-53


def _below(limit: int, bits: int) -> int:
    return bits * limit >> 64


def _check_word(field: str, value: int) -> None:
    if not 0 <= value <= _MASK:
        raise InvalidField(field, "must fit in 64 bits without a sign")
