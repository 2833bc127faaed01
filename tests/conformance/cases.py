"""Random verifications, and the verdict of the reference on each.

In greedy and coupled mode it comes from what the reference says token by token, without our rules
of acceptance; in rejection mode, where the draft is part of the question, from these rules and the
reference's logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.inference.drafting import bushy, grow

from specmesh.decoding.acceptance import Verdict, verify
from specmesh.decoding.prefix import SALT_BYTES
from specmesh.decoding.sampling import AcceptanceMode, Distribution, Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, LanguageModel, Logits
from specmesh.inference.service.growth import DraftShape

Tokens = tuple[int, ...]

MAX_DRAFT = 16
MAX_NODES = 48
MAX_REJECTION_DEPTH = 6
BORDERS = (16, 32, 64, 128, 256)
SALTS = (b"", bytes(range(SALT_BYTES)))
GREEDY = {"temperature": 0.0}
DRAWN = (
    {"temperature": 0.8},
    {"temperature": 1.0, "top_k": 20},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 50, "top_p": 0.95},
)
PROCESSED = {
    "min_p": 0.01,
    "repetition_penalty": 1.3,
    "frequency_penalty": 0.5,
    "logit_bias": ((3, 2.0), (20, -4.0)),
    "banned_token_ids": (11,),
    "banned_sequences": ((7, 8), (9,)),
    "num_prompt_tokens": 20,
    "min_tokens": 500,
    "end_token_ids": (0,),
}
"""Sampling parameters that change logits before a token is chosen."""
AT_ONCE = 32
FORGETFUL = 8
"""So many tokens see drafters of rejection mode that are to be wrong often."""


@dataclass(frozen=True, slots=True)
class Case:
    """A draft below a prefix, and the target's verdict on it."""

    prefix: Tokens
    tree: TokenTree
    sampling: Sampling
    expected: Verdict
    distributions: dict[int, Distribution] = field(default_factory=dict)
    salt: bytes = b""


def chains(model: LanguageModel, texts: Sequence[Tokens], number: int, mode: str) -> list[Case]:
    """Chains of 0 to 16 tokens, wrong from a random one on or right throughout: ``greedy`` or
    ``coupled``."""
    rng = np.random.default_rng(21)
    asked = [_ask(rng, texts, index, mode) for index in range(number)]
    found = []
    for (prefix, width, sampling), own in zip(asked, say(model, asked), strict=True):
        draft = list(own[:width])
        wrong = int(rng.integers(0, 2 * width + 1))  # every second draft is right
        if wrong < width:
            draft[wrong] = (draft[wrong] + 1) % model.description.vocab_size
        tree = TokenTree.chain(draft) if draft else EMPTY
        found.append(_case(rng, prefix, tree, sampling, own))
    return found


def trees(model: LanguageModel, texts: Sequence[Tokens], number: int) -> list[Case]:
    """Trees whose siblings come in any order, the target's own token among them or not."""
    rng = np.random.default_rng(22)
    modes = [("greedy", "coupled")[index % 2] for index in range(number)]
    asked = [_ask(rng, texts, index, mode) for index, mode in enumerate(modes)]
    vocab_size = model.description.vocab_size
    return [
        _case(rng, prefix, _around(rng, own[:width], vocab_size), sampling, own)
        for (prefix, width, sampling), own in zip(asked, say(model, asked), strict=True)
    ]


def draws(
    model: LanguageModel, texts: Sequence[Tokens], number: int, *, with_trees: bool
) -> list[Case]:
    """Drafts of rejection mode, by the model itself, every second without most of the context."""
    rng = np.random.default_rng(23)
    return [
        _draw(rng, model, texts, index, with_trees=with_trees and bool(index % 4 > 1))
        for index in range(number)
    ]


Asked = tuple[Tokens, int, Sampling]
"""A prefix, how many tokens are drafted below it, and how they are chosen."""


def say(model: LanguageModel, asked: Sequence[Asked]) -> list[Tokens]:
    """By what was asked, the model's own next tokens, one more than are drafted, one at a time."""
    each = min(AT_ONCE, model.max_batch)
    groups = [asked[first : first + each] for first in range(0, len(asked), each)]
    return [own for group in groups for own in _say_together(model, group)]


def half_right(own: Sequence[int], vocab_size: int) -> TokenTree:
    """Some of the model's ``own`` next tokens, and a wrong one for the one after them."""
    *right, last = own[:4]
    return TokenTree.chain([*right, (last + 1) % vocab_size])


def rows_of(model: LanguageModel, prefix: Sequence[int], tree: TokenTree) -> Logits:
    """The model's logits ``[nodes + 1, vocab]`` after the prefix and each node of ``tree``."""
    sequence = model.open(prefix, Cancellation(), len(tree))
    rows = sequence.score(tree)
    sequence.close(())
    return rows


def _ask(rng: np.random.Generator, texts: Sequence[Tokens], index: int, mode: str) -> Asked:
    """A prefix of one of ``texts``, every second around the end of a block."""
    text = texts[int(rng.integers(len(texts)))]
    if rng.random() < 0.5:
        length = int(rng.choice(BORDERS)) + int(rng.integers(-2, 3))
    else:
        length = int(rng.integers(1, len(text)))
    settings = GREEDY if mode == "greedy" else DRAWN[int(rng.integers(len(DRAWN)))]
    acceptance = AcceptanceMode.REJECTION if mode == "rejection" else AcceptanceMode.COUPLED
    sampling = Sampling(**settings, seed=int(rng.integers(1 << 40)), mode=acceptance)
    return tuple(text[: min(length, len(text))]), index % (MAX_DRAFT + 1), sampling


def _case(
    rng: np.random.Generator, prefix: Tokens, tree: TokenTree, sampling: Sampling, own: Tokens
) -> Case:
    accepted = tree.follow(own)
    is_leaf = not tree.children(accepted[-1] if accepted else 0)
    verdict = Verdict(accepted, own[len(accepted)], recovered=not is_leaf)
    return Case(prefix, tree, sampling, verdict, salt=SALTS[int(rng.integers(len(SALTS)))])


def _around(rng: np.random.Generator, own: Tokens, vocab_size: int) -> TokenTree:
    """A tree of up to three children a node, ``own`` on a path of it as far as dice allow."""
    tree, node = EMPTY, 0
    for token in own:
        if len(tree) > MAX_NODES:
            break
        wrong = rng.choice(vocab_size, size=int(rng.integers(1, 3)), replace=False)
        children = {int(each) for each in wrong}
        if rng.random() < 0.8:
            children.add(token)
        siblings = [int(each) for each in rng.permutation(sorted(children))]
        tree = tree.extend(siblings, [node] * len(siblings))
        node = tree.child_with(node, token) or len(tree)
    return tree


def _draw(
    rng: np.random.Generator,
    model: LanguageModel,
    texts: Sequence[Tokens],
    index: int,
    *,
    with_trees: bool,
) -> Case:
    prefix, _, sampling = _ask(rng, texts, index, "rejection")
    known = prefix if index % 2 else prefix[-FORGETFUL:]
    depth = 1 + index % MAX_REJECTION_DEPTH
    shape = bushy((0,), depth, 2, 2) if with_trees else DraftShape((0,), depth)
    sequence = model.open(known, Cancellation(), shape.num_nodes)
    levels = list(grow(sequence, EMPTY, prefix, shape, sampling))
    sequence.close(())
    tree = levels[-1].tree
    distributions = {node: each for level in levels for node, each in level.distributions.items()}
    rows = rows_of(model, prefix, tree)
    verdict = verify(tree, rows, sampling, len(prefix), distributions)
    return Case(prefix, tree, sampling, verdict, distributions)


def _say_together(model: LanguageModel, asked: Sequence[Asked]) -> list[Tokens]:
    said: list[list[int]] = [[] for _ in asked]
    sequences = [model.open(prefix, Cancellation(), width) for prefix, width, _ in asked]
    waiting = list(range(len(asked)))
    while waiting:
        requests = [
            ForwardRequest(sequences[each], TokenTree.chain(said[each])) for each in waiting
        ]
        for each, logits in zip(waiting, model.forward(requests), strict=True):
            if logits is not None:
                prefix, _, sampling = asked[each]
                said[each].append(choose(logits[-1], sampling, len(prefix) + len(said[each])))
        waiting = [each for each in waiting if len(said[each]) <= asked[each][1]]
    for sequence in sequences:
        sequence.close(())
    return [tuple(each) for each in said]
