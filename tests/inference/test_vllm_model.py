"""What our side makes of vLLM's steps, also of those that are rare. vLLM itself is scripted here,
and real in ``test_vllm.py``."""

from types import SimpleNamespace

import numpy as np
import pytest

from specmesh.decoding.prefix import PrefixChain
from specmesh.decoding.tree import EMPTY, TokenTree
from specmesh.inference.engine.blocks import TooLarge
from specmesh.inference.model import Cancellation, ForwardRequest, ForwardSize, ModelDescription
from specmesh.inference.models.vllm.core import Part
from specmesh.inference.models.vllm.model import VllmModel

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
    kv = SimpleNamespace(capacity_tokens=96)

    def __init__(self, *steps: tuple[int, int, bool]) -> None:
        self._steps = list(steps)
        self.asked: dict[str, tuple[list[int], int]] = {}
        self.dropped: list[str] = []

    def add(self, name: str, chain: PrefixChain, first_row: int) -> None:
        self.asked[name] = (list(chain), first_row)

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
