"""What is compared with transformers at load, whatever the length of the context."""

import numpy as np
import pytest
import torch

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.loading.probe import PlainLogits

VOCAB_SIZE = 64


def said(tokens):
    """Logits that tell the text before them."""
    texts = [tuple(tokens[: end + 1]) for end in range(len(tokens))]
    return np.array([[hash(text) % 1000 + 1] * VOCAB_SIZE for text in texts])


class Served:
    """Says the same, but for what it says in its call number ``wrong_call``."""

    def __init__(self, context_tokens, wrong_call=None):
        self.calls = []
        self._context_tokens = context_tokens
        self._wrong_call = wrong_call

    def open(self, prefix, cancellation, room):
        self._prefix = prefix
        return self

    def score(self, chain):
        tokens = [*self._prefix, *chain.token_ids]
        assert len(tokens) <= self._context_tokens
        self.calls.append((len(self._prefix), len(chain)))
        rows = said(tokens)[len(self._prefix) - 1 :]
        return -rows if len(self.calls) - 1 == self._wrong_call else rows

    def close(self, keep):
        pass


def plain(length):
    text = list(range(1, length + 1))
    return PlainLogits("tiny", torch.float32, [text], [said(text)])


@pytest.mark.parametrize("length", [8, 9, 10, 11, 12, 24])
def test_every_row_behind_the_prefix_is_compared(length):
    served = Served(length)
    plain(length).check(served)
    assert served.calls[0][0] == 8
    for wrong_call in range(len(served.calls)):
        with pytest.raises(ModelNotLoadable, match="different logits for 'tiny'"):
            plain(length).check(Served(length, wrong_call))


def test_the_second_call_goes_on_behind_a_rejected_draft():
    served = Served(24)
    plain(24).check(served)
    assert served.calls == [(8, 4), (11, 13)]
