"""Random verifications, and the verdict that our own engine gives token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from specmesh.decoding.prefix import SALT_BYTES
from specmesh.decoding.sampling import Sampling, choose
from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest
from specmesh.inference.models.transformers_model import TransformersModel

MAX_DRAFT = 16
BORDERS = (16, 32, 64, 128, 256)
SALTS = (b"", bytes(range(SALT_BYTES)))
SAMPLINGS = (
    {"temperature": 0},
    {"temperature": 0.8},
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 50, "top_p": 0.95},
)
AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Case:
    """A draft below a prefix, and what the target alone says there."""

    prefix: tuple[int, ...]
    draft: tuple[int, ...]
    sampling: Sampling
    salt: bytes
    own: tuple[int, ...]
    """The target's own tokens, one more than are drafted."""

    @property
    def num_accepted(self) -> int:
        pairs = zip(self.draft, self.own, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    @property
    def verdict(self) -> tuple[list[int], int]:
        """The nodes that are accepted, and the next token."""
        return list(range(1, self.num_accepted + 1)), self.own[self.num_accepted]


def cases(model: TransformersModel, texts: Sequence[Sequence[int]], number: int) -> Iterator[Case]:
    """Prefixes of ``texts``, many of them around the ends of blocks; drafts of up to 16 tokens,
    wrong from a random one on."""
    dice = np.random.default_rng(21)
    for first in range(0, number, AT_ONCE):
        asked = [_ask(dice, texts) for _ in range(min(AT_ONCE, number - first))]
        prefixes, widths, samplings = zip(*asked, strict=True)
        for prefix, width, sampling, own in zip(
            prefixes, widths, samplings, say(model, prefixes, widths, samplings), strict=True
        ):
            draft = list(own[:width])
            wrong = int(dice.integers(0, 2 * width + 1))  # every second draft is right
            if wrong < width:
                draft[wrong] = (draft[wrong] + 1) % model.description.vocab_size
            salt = SALTS[int(dice.integers(len(SALTS)))]
            yield Case(prefix, tuple(draft), sampling, salt, own)


def _ask(
    dice: np.random.Generator, texts: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], int, Sampling]:
    text = texts[int(dice.integers(len(texts)))]
    if dice.random() < 0.5:
        length = int(dice.choice(BORDERS)) + int(dice.integers(-2, 3))
    else:
        length = int(dice.integers(1, len(text)))
    settings = SAMPLINGS[int(dice.integers(len(SAMPLINGS)))]
    sampling = Sampling(**settings, seed=int(dice.integers(1 << 40)))
    return tuple(text[: min(length, len(text))]), int(dice.integers(MAX_DRAFT + 1)), sampling


def say(
    model: TransformersModel,
    prefixes: Sequence[tuple[int, ...]],
    widths: Sequence[int],
    samplings: Sequence[Sampling],
) -> list[tuple[int, ...]]:
    """By prefix, the model's own next tokens, one more than ``widths`` say, one token at a time."""
    said: list[list[int]] = [[] for _ in prefixes]
    sequences = [model.open(prefix, Cancellation(), MAX_DRAFT) for prefix in prefixes]
    waiting = list(range(len(prefixes)))
    while waiting:
        trees = [TokenTree.chain(said[each]) if said[each] else EMPTY for each in waiting]
        requests = [
            ForwardRequest(sequences[each], tree) for each, tree in zip(waiting, trees, strict=True)
        ]
        for each, logits in zip(waiting, model.forward(requests), strict=True):
            if logits is not None:
                position = len(prefixes[each]) + len(said[each])
                said[each].append(choose(logits[-1], samplings[each], position))
        waiting = [each for each in waiting if len(said[each]) <= widths[each]]
    for sequence in sequences:
        sequence.close(())
    return [tuple(each) for each in said]
