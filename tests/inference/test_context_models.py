"""Drafters that guess from the context alone, against slow counting."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.inference.drafting import grow

from specmesh.decoding.sampling import Sampling
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ModelDescription
from specmesh.inference.models.context.lookup import ContextModel, PromptLookup, RandomTokens
from specmesh.inference.models.context.ngram import NGram
from specmesh.inference.service.growth import DraftShape

NEVER = Cancellation()

VOCAB_SIZE = 6
tokens = st.integers(0, VOCAB_SIZE - 2)  # the last token never occurs
DESCRIPTION = ModelDescription("guess", VOCAB_SIZE, 0, (), "", 0, "guess", "")


def counted(corpus: list[int], order: int, context: list[int]) -> np.ndarray:
    """Relative frequencies after the longest end of ``context`` that the corpus continues."""
    for length in range(min(order - 1, len(context)), -1, -1):
        end = context[len(context) - length :]
        followers = Counter(
            corpus[at + length]
            for at in range(len(corpus) - length)
            if corpus[at : at + length] == end
        )
        if followers:
            row = np.zeros(VOCAB_SIZE)
            for token, count in followers.items():
                row[token] = count / followers.total()
            return row
    return np.zeros(VOCAB_SIZE)


@given(
    corpus=st.lists(tokens, max_size=40),
    order=st.integers(1, 4),
    context=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=6),
)
def test_ngram_rows_are_counted_frequencies(corpus, order, context):
    row = NGram(corpus, VOCAB_SIZE, order)(np.array(context, np.uint32))
    np.testing.assert_allclose(np.exp(row), counted(corpus, order, context), rtol=1e-6)


@pytest.mark.parametrize(
    ("order", "context", "likeliest"),
    [
        (1, [1], 1),  # unigram: the most frequent token, whatever came before
        (2, [1], 2),  # bigram
        (3, [3, 1], 4),  # trigram: 3 1 4, though 1 2 is more frequent
        (3, [5, 1], 2),  # 5 1 was never seen: back off to what follows 1
        (3, [5, 5], 1),  # nor 5: back off to the unigram
        (3, [], 1),
    ],
)
def test_ngram_backs_off_to_the_longest_known_context(order, context, likeliest):
    corpus = [1, 2, 1, 2, 3, 1, 4, 1]
    assert NGram(corpus, VOCAB_SIZE, order)(np.array(context, np.uint32)).argmax() == likeliest


@pytest.mark.parametrize("order", [0, 6])
def test_ngram_order_outside_its_range_is_refused(order):
    with pytest.raises(ValueError, match="order must be 1 to 5"):
        NGram([1, 2], VOCAB_SIZE, order)


def looked_up(context: list[int], max_ngram: int) -> int | None:
    for size in range(max_ngram, 0, -1):
        for start in range(len(context) - size - 1, -1, -1):
            if context[start : start + size] == context[-size:]:
                return context[start + size]
    return None


@given(context=st.lists(tokens, min_size=1, max_size=20), max_ngram=st.integers(1, 4))
def test_prompt_lookup_copies_what_followed_the_longest_and_latest_match(context, max_ngram):
    row = PromptLookup(VOCAB_SIZE, max_ngram)(np.array(context, np.uint32))
    found = looked_up(context, max_ngram)
    assert np.flatnonzero(row > -np.inf).tolist() == ([] if found is None else [found])


def test_random_tokens_vary_by_position_alone():
    guess = RandomTokens(50)
    contexts = np.arange(60, dtype=np.uint32)
    assert np.array_equal(guess(contexts[1:4]), guess(contexts[4:7]))
    assert len({int(guess(contexts[:length]).argmax()) for length in range(1, 20)}) > 10
    assert np.ptp(guess(contexts[:1])) < 2e-3


def test_scorer_gives_each_node_the_guess_after_its_path():
    model = ContextModel(DESCRIPTION, PromptLookup(VOCAB_SIZE))
    sequence = model.open([1, 2, 3, 1], NEVER)
    first = sequence.score(TokenTree((2, 3), (0, 0)))
    assert first.argmax(axis=1).tolist() == [2, 3, 1]
    more = sequence.score(TokenTree((2, 3, 3), (0, 0, 1)))
    assert more.argmax(axis=1).tolist() == [1]
    assert sequence.num_computed_tokens == 3 + 4  # what comes before the prompt's last, and nodes


def test_tokens_of_a_closed_scorer_are_found_as_a_base():
    model = ContextModel(DESCRIPTION, PromptLookup(VOCAB_SIZE))
    sequence = model.open([1] * 30, NEVER)
    assert sequence.num_cached_tokens == 0
    sequence.score(TokenTree((2, 3, 4), (0, 0, 1)))
    sequence.close((1, 3))
    again = model.open([*[1] * 30, 2, 4, 5], NEVER)
    assert again.num_cached_tokens == 32
    assert model.open([*[1] * 30, 2], NEVER).num_cached_tokens == 30  # its last is asked about


def draft(guess, prefix: list[int], depth: int) -> list[int]:
    sequence = ContextModel(DESCRIPTION, guess).open(prefix, NEVER)
    levels = list(grow(sequence, EMPTY, prefix, DraftShape((0,), depth), Sampling(temperature=0)))
    return list(levels[-1].tree.token_ids) if levels else []


def test_draft_without_a_guess_has_no_level():
    assert draft(PromptLookup(VOCAB_SIZE), [1, 2, 3], depth=4) == []


def test_draft_ends_early_when_the_guesses_run_out():
    class Countdown:
        """Guesses the token below the last, and nothing after 0."""

        def __call__(self, context):
            row = np.full(VOCAB_SIZE, -np.inf, np.float32)
            if context[-1]:
                row[context[-1] - 1] = 0
            return row

    assert draft(Countdown(), [5, 3], depth=10) == [2, 1, 0]
