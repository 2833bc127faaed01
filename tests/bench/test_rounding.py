"""What the shape of a forward does to coupled tokens, and how it is counted."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from specmesh.bench.rounding import Differences, DrawnTokens, _logits, _Text, app, measure
from specmesh.decoding.sampling import Sampling, coupled
from specmesh.inference.models.cuda.device_logits import DeviceLogits

PROMPTS = ([5, 6, 7], list(range(8, 40)), [30])
NUM_TOKENS = 17


def drawn(token, *left):
    return DrawnTokens(token, np.array(left, np.int64))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (drawn(3, 3, 5), drawn(3, 3, 5), Differences(1)),
        (drawn(3, 3, 5), drawn(3, 3, 6), Differences(1, sets=1)),
        (drawn(3, 3, 5), drawn(5, 3, 5), Differences(1, reordered=1)),
        (drawn(3, 3, 5), drawn(5, 3, 5, 6), Differences(1, sets=1, reordered=1)),
        (drawn(5, 3, 5), drawn(3, 3, 6), Differences(1, sets=1, cut=1)),
        (drawn(3, 3, 5), drawn(6, 3, 6), Differences(1, sets=1, cut=1)),
        (drawn(3), drawn(5), Differences(1, reordered=1)),
    ],
)
def test_a_token_that_one_shape_does_not_leave_is_cut(one, other, expected):
    differences = Differences()
    differences.count(one, other)
    assert differences == expected


@pytest.mark.parametrize("sampling", [Sampling(top_k=2), Sampling(top_p=0.7)])
def test_a_rounding_at_the_boundary_changes_tokens_whose_scores_are_far_apart(sampling):
    """Of the last two tokens the likelier one is left; any difference decides which that is."""
    logits = np.log(np.array([0.5, 0.25, 0.25], np.float32))
    others = logits.copy()
    others[2] = np.nextafter(others[2], np.float32(0))
    found, margins = Differences(), []
    for position in range(200):
        found.count(*(DrawnTokens.of(each, sampling, position) for each in (logits, others)))
        first, second = coupled(logits, sampling, position, 2).scores
        margins.append(first - second)
    assert found.sets == 200
    assert found.cut > 50  # the token drawn is one of these two half the time, more or less
    assert found.reordered == 0
    assert min(margins) > 1e-3


def test_logits_that_the_next_forward_overwrites_are_read_before(load, monkeypatch):
    model = load("llama", chunk_tokens=32)
    texts = [_Text(list(range(40)) * 2, (5, 6), 1), _Text([9, 8] * 40, (7, 8), 2)]
    expected = [row for _, _, row in _logits(model, texts, 2)]
    model = load("llama", chunk_tokens=32)  # without what was cached
    memory = torch.zeros(4, model.description.vocab_size)
    compute = model.compute

    def overwrite(*arguments):
        logits = compute(*arguments)
        memory[: len(logits)] = torch.from_numpy(logits)
        return DeviceLogits(memory[: len(logits)])

    monkeypatch.setattr(model, "compute", overwrite)
    found = [row for _, _, row in _logits(model, texts, 2)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_every_shape_goes_through_every_place(load, monkeypatch):
    model = load("llama")
    sizes = set()
    compute = model.compute

    def record(batch, *arguments):
        sizes.add(tuple((len(group.blocks), group.width) for group in batch.groups))
        return compute(batch, *arguments)

    monkeypatch.setattr(model, "compute", record)
    found = measure(model, PROMPTS, NUM_TOKENS)
    for by_sampling in found.values():
        for differences in by_sampling.values():
            assert differences == Differences(len(PROMPTS) * NUM_TOKENS)  # in float32
    assert {((1, 1),), ((1, 8),), ((3, 1),), ((3, 8),)} <= sizes


def test_bfloat16_is_counted_on_the_shipped_target():
    pytest.importorskip("specmesh.models")
    options = ["--dtype", "bfloat16", "--prompts", "2", "--tokens", "4", "--threads", "1"]
    done = CliRunner().invoke(app, options, catch_exceptions=False)
    for by_sampling in json.loads(done.stdout).values():
        assert {each["positions"] for each in by_sampling.values()} == {8}
        whole = by_sampling["not truncated"]
        assert whole["sets"] == whole["cut"] == 0
        assert all(each["cut"] <= each["sets"] for each in by_sampling.values())
