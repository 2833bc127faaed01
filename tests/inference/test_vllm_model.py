"""What our side makes of vLLM's steps, also of those that are rare. vLLM itself is scripted here,
and real in ``tests/conformance``."""

from types import SimpleNamespace

import numpy as np
import pytest

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.engine.blocks.pool import TooLarge
from specmesh.inference.model import Cancellation, ForwardRequest, ForwardSize, ModelDescription
from specmesh.inference.models.vllm.core import Part
from specmesh.inference.models.vllm.model import VllmModel
from specmesh.inference.models.vllm.paths import Path, PathRead, new_paths

VOCAB_SIZE = 3
PREFIX = list(range(40))
DRAFT = TokenTree.chain([7, 8])

DESCRIPTION = ModelDescription(
    name="scripted",
    vocab_size=VOCAB_SIZE,
    context_tokens=100,
    end_of_text_ids=(),
    tokenizer_json="",
    num_parameters=1,
    backend="vllm",
    weights_digest="",
)


class Script:
    """What vLLM does in step after step: (start, number of tokens, whether they are the last)."""

    block_tokens = 32
    max_calls = 64
    kv = SimpleNamespace(capacity_tokens=96)

    def __init__(self, *steps: tuple[int, int, bool]) -> None:
        self._steps = list(steps)
        self.asked: dict[str, tuple[list[int], int]] = {}
        self.dropped: list[str] = []
        self._num_asked = 0

    def add(self, chain: PrefixChain, first_row: int) -> str:
        name = str(self._num_asked)
        self._num_asked += 1
        self.asked[name] = (list(chain), first_row)
        return name

    def drop(self, name: str) -> None:
        self.dropped.append(name)

    def step(self) -> dict[str, Part]:
        name = list(self.asked)[-1]
        start, number, is_last = self._steps.pop(0)
        first = max(start, self.asked[name][1])
        rows = np.arange(first, max(first, start + number), dtype=np.float32)
        return {name: Part(start, number, np.stack([rows] * VOCAB_SIZE, axis=1), is_last)}


def opened(script: Script):
    model = VllmModel(script, DESCRIPTION)
    return model, model.open(PREFIX, Cancellation(), 2)


def positions(logits) -> list[int]:
    """After which token each row was given."""
    return logits[:, 0].astype(int).tolist()


def test_a_long_prefix_takes_steps_without_rows_before_those_with():
    model, sequence = opened(Script((16, 16, False), (32, 8, False), (40, 2, True)))
    request = [ForwardRequest(sequence, DRAFT)]
    assert model.forward(request) == [None]
    assert model.forward(request) == [None]
    (logits,) = model.forward(request)
    assert positions(logits) == [39, 40, 41]
    assert (sequence.num_cached_tokens, sequence.num_computed_tokens) == (16, 26)
    assert sequence.latest_forward == ForwardSize(1, 2)


def test_rows_of_a_call_that_vllm_has_put_off_are_those_of_its_second_beginning():
    """It had given two of three when its blocks were taken away."""
    model, sequence = opened(Script((0, 41, False), (32, 4, False), (36, 6, True)))
    request = [ForwardRequest(sequence, DRAFT)]
    assert model.forward(request) == [None]
    assert model.forward(request) == [None]
    (logits,) = model.forward(request)
    assert positions(logits) == [39, 40, 41]
    assert sequence.num_cached_tokens == 0


def test_a_chain_that_has_grown_is_asked_for_its_new_rows_alone():
    script = Script((0, 40, True), (39, 3, True))
    _, sequence = opened(script)
    assert positions(sequence.score(EMPTY)) == [39]
    assert positions(sequence.score(DRAFT)) == [40, 41]
    assert list(script.asked.values()) == [(PREFIX, 39), ([*PREFIX, 7, 8], 40)]
    assert sequence.score(DRAFT).shape == (0, VOCAB_SIZE)


TREE = TokenTree((7, 8, 9, 5), (0, 0, 1, 1))
"""7 and 8 below the prefix, 9 and 5 below 7."""


def test_paths_lead_through_every_new_node_and_tell_each_once():
    assert new_paths(TREE, 0) == [Path(2, (0, 2)), Path(3, (1, 3)), Path(4, (4,))]
    assert new_paths(TREE, 3) == [Path(3, (3,)), Path(4, (4,))]
    assert new_paths(EMPTY, 0) == [Path(0, (0,))]
    assert new_paths(TREE, 5) == []


CHAIN = TokenTree.chain([7, 8, 9])


@pytest.mark.parametrize(
    ("num_scored", "paths"),
    [(0, [Path(3, (0, 1, 2, 3))]), (2, [Path(3, (2, 3))]), (4, [])],
)
def test_of_a_chain_the_new_nodes_are_one_path(num_scored, paths):
    assert new_paths(CHAIN, num_scored) == paths


def part(start: int, rows: list[int]) -> Part:
    return Part(start, len(rows), np.array([rows], np.float32).T, is_last=False)


@pytest.mark.parametrize(
    "steps",
    [
        [part(40, [0, 1, 2])],
        [part(38, [0]), part(41, [1, 2])],
        [part(40, [9]), part(32, []), part(40, [0, 1, 2])],
        [part(40, [9, 9]), part(32, [0]), part(41, [1]), part(42, [2])],
    ],
    ids=["at once", "in two", "taken away", "taken away, then one by one"],
)
def test_rows_come_in_any_number_of_steps_and_again(steps):
    read = PathRead((0, 1, 2), first_row=40)
    for each in steps:
        assert not read.is_done
        read.receive(each)
    assert read.is_done
    assert read.rows[:, 0].tolist() == [0, 1, 2]


class Together(Script):
    """Does all that it is asked in one step."""

    def step(self) -> dict[str, Part]:
        parts = {}
        for name, (tokens, first) in self.asked.items():
            rows = np.array([tokens[first:]] * VOCAB_SIZE, dtype=np.float32).T
            parts[name] = Part(32, len(tokens) - 32, rows, is_last=True)
        self.asked = {}
        return parts


def test_a_tree_is_read_path_by_path_and_its_rows_are_those_of_its_nodes():
    """Here each row is the token it comes after."""
    model, sequence = opened(Together())
    two = TokenTree(TREE.token_ids[:2], TREE.parents[:2])
    assert positions(sequence.score(two)) == [39, 7, 8]
    assert sequence.latest_forward == ForwardSize(1, 3)
    assert positions(sequence.score(TREE)) == [9, 5]
    assert sequence.num_cached_tokens == 32
    assert sequence.num_computed_tokens == 9 + 9 + 10 + 10
    sequence.close(())
    other = model.open(PREFIX, Cancellation(), 4)
    assert positions(other.score(TREE)) == [39, 7, 8, 9, 5]


def test_all_paths_of_a_call_that_is_no_longer_wanted_are_taken_out():
    script = Script((0, 16, False))
    model, sequence = opened(script)
    assert model.forward([ForwardRequest(sequence, TREE)]) == [None]
    sequence.close(())
    assert script.dropped == ["0", "1", "2"]


def test_a_call_that_is_no_longer_wanted_is_taken_out():
    script = Script((0, 16, False), (0, 42, True))
    model, sequence = opened(script)
    assert model.forward([ForwardRequest(sequence, DRAFT)]) == [None]
    sequence.close(())
    assert script.dropped == ["0"]
    done = model.open(PREFIX, Cancellation(), 2)
    done.score(DRAFT)
    done.close([1])
    assert script.dropped == ["0"]


def test_prefixes_are_known_by_digest_once_they_were_read():
    model, sequence = opened(Script((0, 42, True)))
    chain = PrefixChain(PREFIX)
    assert model.find_base(*chain.base()) is None
    sequence.score(DRAFT)
    sequence.close([1])
    base = model.find_base(*chain.base())
    assert base is not None
    assert list(base) == PREFIX[:32]


def test_more_than_all_blocks_hold_is_refused_for_good():
    model, _ = opened(Script())
    with pytest.raises(TooLarge):
        model.open(PREFIX, Cancellation(), 57)
