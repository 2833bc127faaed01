"""Simulated models: exact tokens, at the time they are due."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from tests.inference.drafting import grow
from tests.metrics import recorded
from tokenizers import Tokenizer

from specmesh.decoding.acceptance import verify
from specmesh.decoding.drafting import draw_children
from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose
from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, ForwardSize, Interrupted
from specmesh.inference.models.simulated.model import ForwardLatency, SimulatedModel
from specmesh.inference.service.growth import DraftShape
from specmesh.serving.templates.tokenizers import fingerprint

__all__ = ["recorded"]

NUM_TRIES = 3
"""Of what takes no longer than it should unless the machine is busy."""
AT_ONCE = ForwardLatency(0, 0)
TARGET = SimulatedTarget(seed=5)
DRAFTER = SimulatedDrafter(TARGET, acceptance=0.7, runner_up=0.6)
PREFIX = [int(token) for token in np.random.default_rng(4).integers(0, 256, 40)]
TREE = TokenTree((10, 11, 12, 13), (0, 0, 1, 3))
SAMPLINGS = pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0),
        Sampling(temperature=2, seed=1),
        Sampling(temperature=2, seed=1, mode=AcceptanceMode.REJECTION),
    ],
    ids=lambda sampling: sampling.mode.name.lower(),
)


def score_once(model: SimulatedModel, prefix: list[int], tree: TokenTree = EMPTY, keep=()):
    """One call, and the sequence it used."""
    sequence = model.open(prefix, Cancellation())
    rows = sequence.score(tree)
    sequence.close(keep)
    return rows, sequence


def state_after(*tokens: int) -> int:
    return TARGET.after(TARGET.start, tokens)


def test_every_row_points_at_what_the_target_says_after_its_path():
    rows, _ = score_once(SimulatedModel(TARGET, AT_ONCE), PREFIX, TREE)
    paths = [TREE.tokens_on(TREE.path(node)) for node in range(len(TREE) + 1)]
    assert rows.argmax(axis=1).tolist() == [
        TARGET.token(state_after(*PREFIX, *path)) for path in paths
    ]


def test_rows_are_the_same_whatever_is_cached_and_in_however_many_steps():
    model = SimulatedModel(DRAFTER, AT_ONCE)
    whole, _ = score_once(model, PREFIX, TREE, keep=(1, 3))
    for prefix, tokens in [(PREFIX, ()), (PREFIX[:20], PREFIX[20:]), ([*PREFIX, 10, 12, 9], ())]:
        fresh, _ = score_once(SimulatedModel(DRAFTER, AT_ONCE), [*prefix, *tokens])
        again, _ = score_once(model, [*prefix, *tokens])
        assert np.array_equal(again, fresh)
    sequence = model.open(PREFIX, Cancellation())
    steps = [EMPTY, TokenTree(TREE.token_ids[:2], TREE.parents[:2]), TREE, TREE]
    assert np.array_equal(np.concatenate([sequence.score(tree) for tree in steps]), whole)


def test_forwards_are_measured_by_kind_and_size(recorded):
    model = SimulatedModel(TARGET, ForwardLatency(first_s=0.02, each_s=0.01), max_batch=2)
    with_draft, alone = (model.open(prefix, Cancellation()) for prefix in (PREFIX, PREFIX[:3]))
    model.forward([ForwardRequest(with_draft, TREE), ForwardRequest(alone, EMPTY)])
    with_draft.close(())
    model.forward([ForwardRequest(model.open(PREFIX, Cancellation()), TREE)])
    model.forward([ForwardRequest(model.open(PREFIX, Cancellation()), EMPTY)])
    found = {
        tuple(point.attributes.values()): point.sum
        for point in recorded.points("specmesh.engine.forward.duration")
    }
    width = 64  # of 39 unread tokens and 5 rows, 2 and 1
    assert set(found) == {("prefill", width), ("verify", 8), ("decode", 1)}
    assert found["prefill", width] >= 0.01
    (tokens,) = recorded.points("specmesh.engine.batch.tokens")
    assert (tokens.count, tokens.sum) == (3, 39 + 5 + 2 + 1 + 5 + 1)


@SAMPLINGS
def test_sampling_always_takes_the_first_choice(sampling):
    rows, _ = score_once(SimulatedModel(DRAFTER, AT_ONCE), PREFIX)
    first, second = DRAFTER.choices(state_after(*PREFIX))
    for position in range(2_000):
        drawn = draw_children(rows[0], sampling, position, 1, num_choices=4)
        assert drawn.children == (first,)
        assert drawn.choices.token_ids[:2] == (first, second)
        if sampling.mode is not AcceptanceMode.REJECTION:
            assert choose(rows[0], sampling, position) == first


@SAMPLINGS
def test_speculation_gives_the_text_of_the_target_at_the_rate_asked_for(sampling):
    target, drafter = SimulatedModel(TARGET, AT_ONCE), SimulatedModel(DRAFTER, AT_ONCE)
    text, num_tried, num_accepted = PREFIX[:], 0, 0
    for _ in range(150):
        draft = list(
            grow(
                drafter.open(text, Cancellation()),
                EMPTY,
                text,
                DraftShape((0,), 3),
                sampling,
            )
        )
        tree = draft[-1].tree
        drawn_from = {node: d for level in draft for node, d in level.distributions.items()}
        rows, _ = score_once(target, text, tree)
        verdict = verify(tree, rows, sampling, len(text), drawn_from)
        num_accepted += len(verdict.accepted_nodes)
        num_tried += len(verdict.accepted_nodes) + verdict.recovered
        text += [*tree.tokens_on(verdict.accepted_nodes), verdict.next_token]
    state = state_after(*PREFIX)
    for token in text[len(PREFIX) :]:
        assert token == TARGET.token(state)
        state = TARGET.after(state, [token])
    assert abs(num_accepted / num_tried - 0.7) < 5 * (0.7 * 0.3 / num_tried) ** 0.5


def test_prefixes_are_kept_and_found_by_digest():
    model = SimulatedModel(TARGET, AT_ONCE)
    _, sequence = score_once(model, PREFIX, TREE, keep=(1, 3))
    assert (sequence.num_cached_tokens, sequence.num_computed_tokens) == (0, 40 + 4)
    _, sequence = score_once(model, [*PREFIX, 10, 12, 7], TREE)
    assert (sequence.num_cached_tokens, sequence.num_computed_tokens) == (42, 1 + 4)
    length, digest = PrefixChain(PREFIX).base()
    found = model.find_base(length, digest)
    assert found is not None
    assert list(found) == PREFIX[:length]


def spent(model: SimulatedModel, prefix: list[int]) -> float:
    began = time.perf_counter()
    score_once(model, prefix, TREE)
    return time.perf_counter() - began


def test_first_forward_on_a_prefix_takes_its_own_time():
    model = SimulatedModel(TARGET, ForwardLatency(first_s=0.15, each_s=0.01))
    other = [PREFIX[0], *PREFIX[2:]]  # begins with the same letter
    for prefix in (PREFIX, other, [1, 2]):
        assert spent(model, prefix) >= 0.15
        later = [spent(model, [*prefix, *range(1, number)]) for number in range(2, 7)]
        assert 0.01 <= min(later) < 0.15  # not all, for the machine may be busy


def test_many_forwards_do_not_drift_whatever_is_done_between_them():
    def taken_s() -> float:
        model = SimulatedModel(TARGET, ForwardLatency(0.02, 0.02))
        began = time.perf_counter()
        sequence = model.open(PREFIX, Cancellation())
        tree = EMPTY
        for number in range(1, 21):
            sequence.score(tree)
            tree = tree.extend([number], [len(tree)])
            assert time.perf_counter() - began >= number * 0.02
            time.sleep(0.01)  # in sum 10 forwards
        return time.perf_counter() - began

    assert any(taken_s() < (20 + 8) * 0.02 for _ in range(NUM_TRIES))


def test_forwards_made_up_for_are_at_most_one():
    model = SimulatedModel(TARGET, ForwardLatency(0.01, 0.01))
    sequence = model.open(PREFIX, Cancellation())
    sequence.score(EMPTY)
    time.sleep(0.1)  # the consumer stalls for 10 forwards
    resumed = time.perf_counter()
    sequence.score(TokenTree.chain([1]))
    sequence.score(TokenTree.chain([1, 2]))
    assert time.perf_counter() - resumed >= 0.02


def test_cancellation_ends_a_forward_at_once_and_leaves_nothing_cached():
    model = SimulatedModel(TARGET, ForwardLatency(60, 60))
    cancellation = Cancellation()
    sequence = model.open(PREFIX, cancellation)
    threading.Timer(0.02, cancellation.set).start()
    began = time.perf_counter()
    with pytest.raises(Interrupted):
        sequence.score(TREE)
    assert time.perf_counter() - began < 5
    sequence.close(())
    assert model.open(PREFIX, Cancellation()).num_cached_tokens == 0


def test_calls_that_share_a_forward_get_what_they_would_get_alone():
    model = SimulatedModel(TARGET, AT_ONCE, max_batch=8)
    asked = [(PREFIX, TREE), (PREFIX[:20], EMPTY), ([1, 2], TokenTree.chain([7]))]
    sharing = [ForwardRequest(model.open(prefix, Cancellation()), tree) for prefix, tree in asked]
    together = model.forward(sharing)
    for (prefix, tree), logits, request in zip(asked, together, sharing, strict=True):
        alone, sequence = score_once(SimulatedModel(TARGET, AT_ONCE), prefix, tree)
        assert np.array_equal(logits, alone)
        assert request.sequence.num_computed_tokens == sequence.num_computed_tokens
        assert request.sequence.latest_forward == ForwardSize(3, 5 + 1 + 2)


def test_a_shared_forward_takes_its_time_once():
    model = SimulatedModel(TARGET, ForwardLatency(0.15, 0.15), max_batch=8)

    def took_s() -> float:
        began = time.perf_counter()
        model.forward([ForwardRequest(model.open(PREFIX, Cancellation()), EMPTY) for _ in range(8)])
        return time.perf_counter() - began

    assert 0.15 <= min(took_s() for _ in range(NUM_TRIES)) < 0.3


def test_a_shared_forward_ends_early_only_if_no_call_wants_it():
    model = SimulatedModel(TARGET, ForwardLatency(0.05, 0.05), max_batch=8)
    cancellations = Cancellation(), Cancellation()
    requests = [ForwardRequest(model.open(PREFIX, each), EMPTY) for each in cancellations]
    cancellations[0].set()
    began = time.perf_counter()
    assert len(model.forward(requests)) == 2
    assert time.perf_counter() - began >= 0.05 - 0.001
    slow = SimulatedModel(TARGET, ForwardLatency(60, 60), max_batch=8)
    requests = [ForwardRequest(slow.open(PREFIX, each), EMPTY) for each in cancellations]
    threading.Timer(0.02, cancellations[1].set).start()
    with pytest.raises(Interrupted):
        slow.forward(requests)


@pytest.mark.parametrize("seconds", [0, 60])
def test_forward_that_nobody_wants_does_not_begin(seconds):
    cancelled = Cancellation()
    cancelled.set()
    with pytest.raises(Interrupted):
        SimulatedModel(TARGET, ForwardLatency(seconds, seconds)).open(PREFIX, cancelled).score(
            EMPTY
        )


def test_target_and_drafter_describe_themselves_and_speak_one_tokenizer():
    target = SimulatedModel(TARGET, AT_ONCE).description
    drafter = SimulatedModel(SimulatedDrafter(TARGET, 0.5, salt=3), AT_ONCE).description
    assert (target.name, drafter.name) == ("simulated-target", "simulated-drafter-3")
    assert (target.context_tokens, drafter.context_tokens) == (1 << 20, 0)
    assert fingerprint(target.tokenizer_json) == fingerprint(drafter.tokenizer_json)
    assert target.vocab_size == Tokenizer.from_str(target.tokenizer_json).get_vocab_size() == 256


@pytest.mark.parametrize("vocab_size", [4, 60, 256, 1000])
def test_tokenizer_has_one_entry_a_token_and_takes_any_text(vocab_size):
    model = SimulatedModel(SimulatedTarget(vocab_size=vocab_size), AT_ONCE)
    tokenizer = Tokenizer.from_str(model.description.tokenizer_json)
    assert tokenizer.get_vocab_size() == vocab_size
    text = "def f(x):\n\treturn x  # 5 €\n"
    ids = tokenizer.encode(text).ids
    assert len(ids) == len(text.encode())
    assert max(ids) < vocab_size


def test_ascii_comes_back_and_any_token_can_be_printed():
    tokenizer = Tokenizer.from_str(SimulatedModel(TARGET, AT_ONCE).description.tokenizer_json)
    text = "".join(map(chr, range(32, 127))) + "\n\t  end "
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    for token in range(256):
        said = tokenizer.decode([token])
        assert len(said) == 1
        assert said.isprintable() or said in "\n\t\u00ad"


def test_a_prefix_takes_longer_for_each_token_that_is_not_cached():
    model = SimulatedModel(TARGET, ForwardLatency(0, 0, token_s=0.004))
    began = time.perf_counter()
    score_once(model, PREFIX)
    assert time.perf_counter() - began >= 0.004 * (len(PREFIX) - 1)
    _, again = score_once(model, [*PREFIX, 1, 2])
    assert again.num_computed_tokens == 2
