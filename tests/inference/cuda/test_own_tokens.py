"""Tokens that a pass finds on the device, and logits that stay there until they are read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from specmesh.decoding.acceptance import verify
from specmesh.decoding.own_tokens import OwnTokens
from specmesh.decoding.sampling import AcceptanceMode, Sampling, choose
from specmesh.decoding.trees.tree import EMPTY, TokenTree
from specmesh.inference.model import Cancellation, ForwardRequest, Interrupted
from specmesh.inference.models.cuda import device_logits
from specmesh.inference.models.cuda.device_logits import DeviceLogits

PREFIX = list(range(1, 40))
TREE = TokenTree((10, 11, 12, 13, 14), (0, 0, 1, 1, 3))
SAMPLINGS = {
    "greedy": Sampling(mode=AcceptanceMode.GREEDY),
    "coupled": Sampling(0.8, seed=7),
    "nucleus": Sampling(0.8, seed=7, top_p=0.9),
}


@pytest.fixture
def model(load_target):
    return load_target()


@pytest.mark.parametrize("mode", SAMPLINGS)
def test_tokens_found_after_every_node_are_those_of_a_verification(model, mode):
    sampling = SAMPLINGS[mode]
    own = OwnTokens.of(sampling, len(PREFIX))
    sequence = model.open(PREFIX, Cancellation(), 8)
    (logits,) = model.forward([ForwardRequest(sequence, TREE, own)])
    assert isinstance(logits, DeviceLogits)
    whole = Sampling(sampling.temperature, seed=sampling.seed, mode=sampling.mode)
    assert own.found == {
        node: choose(logits[node], whole, len(PREFIX) + TREE.depths[node])
        for node in range(len(TREE) + 1)
    }
    rows = np.asarray(logits)
    found = verify(TREE, logits, sampling, len(PREFIX), own=own)
    assert found == verify(TREE, rows, sampling, len(PREFIX))


def test_a_tree_that_grows_gets_the_tokens_after_its_new_nodes(model):
    sequence = model.open(PREFIX, Cancellation(), 8)
    own = OwnTokens.of(SAMPLINGS["coupled"], len(PREFIX))
    model.forward([ForwardRequest(sequence, TokenTree((10, 11), (0, 0)), own)])
    assert list(own.found) == [0, 1, 2]
    model.forward([ForwardRequest(sequence, TREE, own)])
    assert list(own.found) == [0, 1, 2, 3, 4, 5]


def test_requests_of_one_pass_get_their_own(model):
    prefixes = [PREFIX, PREFIX[:7], PREFIX[5:]]
    owns = [OwnTokens.of(SAMPLINGS["coupled"], len(prefixes[0])), None]
    owns.append(OwnTokens.of(SAMPLINGS["greedy"], len(prefixes[2])))
    sequences = [model.open(prefix, Cancellation(), 8) for prefix in prefixes]
    trees = [TREE, EMPTY, EMPTY]
    model.forward(list(map(ForwardRequest, sequences, trees, owns)))
    assert len(owns[0].found) == 6
    (alone,) = model.forward([ForwardRequest(model.open(PREFIX[5:], Cancellation(), 0), EMPTY)])
    assert owns[2].found == {0: int(alone[0].argmax())}


def test_a_long_prefix_that_is_not_complete_finds_nothing_yet(load):
    model = load("llama", chunk_tokens=32)
    own = OwnTokens.of(SAMPLINGS["greedy"], 100)
    request = ForwardRequest(model.open(list(range(50)) * 2, Cancellation(), 0), EMPTY, own)
    assert model.forward([request]) == [None]
    assert not own.found
    while (results := model.forward([request])) == [None]:
        pass
    assert own.found == {0: int(results[0][0].argmax())}


def test_a_row_that_is_not_finite_is_left_to_the_host(model):
    with torch.no_grad():
        model._model.get_output_embeddings().weight[5] = float("nan")
    own = OwnTokens.of(SAMPLINGS["greedy"], len(PREFIX))
    sequence = model.open(PREFIX, Cancellation(), 0)
    (logits,) = model.forward([ForwardRequest(sequence, EMPTY, own)])
    assert not own.found
    with pytest.raises(FloatingPointError):
        verify(EMPTY, logits, SAMPLINGS["greedy"], len(PREFIX), own=own)


def test_logits_are_read_as_rows_slices_or_whole(model):
    sequence = model.open(PREFIX, Cancellation(), 8)
    (logits,) = model.forward([ForwardRequest(sequence, TREE)])
    whole = np.asarray(logits)
    assert logits.shape == whole.shape == (6, model.description.vocab_size)
    assert len(logits[2:5]) == 3
    np.testing.assert_array_equal(logits[2:5][1], whole[3])
    np.testing.assert_array_equal(logits[-1], whole[5])


def test_logits_that_there_is_no_memory_to_read_are_a_lack_of_memory(model, monkeypatch):
    (logits,) = model.forward([ForwardRequest(model.open(PREFIX, Cancellation(), 0), EMPTY)])

    def fail(_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(device_logits, "on_host", fail)
    with pytest.raises(MemoryError):
        logits[0]
    with pytest.raises(MemoryError):
        np.asarray(logits)


def test_a_long_pass_computes_no_logits_but_those_wanted(model):
    counts = []
    head = model._model.get_output_embeddings()
    head.register_forward_hook(lambda _, __, out: counts.append(out.shape[1]))
    model.forward([ForwardRequest(model.open(PREFIX, Cancellation(), 8), TREE)])
    assert counts == [len(TREE) + 1]


def test_a_cancelled_pass_does_not_begin(model):
    cancellation = Cancellation()
    cancellation.set()
    with pytest.raises(Interrupted):
        model.forward([ForwardRequest(model.open(PREFIX, cancellation, 0), EMPTY)])
    assert not model.description.interruptible


def test_layers_are_compiled_once_for_all_and_for_any_number_of_tokens(monkeypatch, load_target):
    import torch._dynamo as dynamo

    dynamo.reset()
    monkeypatch.undo()
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph

    from specmesh.inference.models import transformers_model

    monkeypatch.setattr(transformers_model, "_can_have_graphs", lambda *_: True)
    compile_module = nn.Module.compile
    monkeypatch.setattr(
        nn.Module, "compile", lambda self, **options: compile_module(self, backend=count, **options)
    )
    model = load_target()
    assert len(graphs) == 2  # a single token, and any other number, for both layers
    sequence = model.open(PREFIX, Cancellation(), 8)
    model.forward([ForwardRequest(sequence, TREE)])
    assert len(graphs) == 2
    dynamo.reset()


def test_layers_that_cannot_be_compiled_run_as_they_are(monkeypatch, load_target, caplog):
    def fail(self, **_):
        self._compiled_call_impl = lambda *_, **__: 1 / 0

    monkeypatch.setattr(nn.Module, "compile", fail)
    model = load_target()
    assert "layers are not compiled" in caplog.text
    sequence = model.open(PREFIX, Cancellation(), 0)
    assert model.forward([ForwardRequest(sequence, EMPTY)])[0].shape[0] == 1


def test_hundreds_of_requests_share_a_pass(load):
    model = load("llama")
    assert model.max_batch == 256
    prefixes = [[number % 59 + 1, *PREFIX[: number % 30]] for number in range(model.max_batch)]
    owns = [OwnTokens.of(SAMPLINGS["greedy"], len(prefix)) for prefix in prefixes]
    sequences = [model.open(prefix, Cancellation(), 0) for prefix in prefixes]
    requests = [
        ForwardRequest(sequence, EMPTY, own) for sequence, own in zip(sequences, owns, strict=True)
    ]
    while any(logits is None for logits in model.forward(requests)):
        pass
    for prefix, own in list(zip(prefixes, owns, strict=True))[::50]:
        (alone,) = model.forward([ForwardRequest(model.open(prefix, Cancellation(), 0), EMPTY)])
        assert own.found == {0: int(alone[0].argmax())}
