from dataclasses import replace

import numpy as np
import pytest
import torch

from specmesh.training.pair import build, logits
from specmesh.training.samples import SamplePlan, continue_prompts, read_samples, write_shard
from specmesh.training.shards import Shards

PLAN = SamplePlan(shards=3, rows=4, row_tokens=24, prompt_tokens=(3, 9))


def _sharp_model():
    """Random weights, scaled so that greedy and sampled choices differ."""
    model = build("target", 0).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(60)
    return model


@torch.inference_mode()
def _greedy(model, prompt, row_tokens):
    row = list(prompt)
    while len(row) < row_tokens:
        row.append(int(logits(model, torch.tensor([row]))[0, -1].argmax()))
    return row


def test_greedy_rows_of_unequal_prompts_equal_one_by_one_decoding():
    model = _sharp_model()
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5, 4, 3], [1, 2, 3, 4, 5]]
    rows = continue_prompts(model, prompts, 20, [0.0] * 3, torch.Generator().manual_seed(1))
    assert rows.tolist() == [_greedy(model, prompt, 20) for prompt in prompts]


def test_sampled_tokens_follow_the_distribution_at_their_temperature():
    model = build("target", 0).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(60)
    rows = continue_prompts(
        model, [[5, 6, 7]] * 4000, 4, [0.8] * 4000, torch.Generator().manual_seed(1)
    )
    scores = logits(model, torch.tensor([[5, 6, 7]]))[0, -1].detach()
    expected = (scores / 0.8).softmax(-1)
    top = int(expected.argmax())
    observed = (rows[:, 3] == top).float().mean().item()
    # Six standard deviations: a false alarm once in half a billion seeds.
    deviation = (expected[top] * (1 - expected[top]) / 4000).sqrt().item()
    assert observed == pytest.approx(expected[top].item(), abs=6 * deviation)


def _write(model, tokens, shards, plan=PLAN):
    return shards.write(lambda number: write_shard(model, tokens, plan, number))


def test_prompts_are_cut_from_the_training_tokens(tokens):
    text = "," + ",".join(map(str, tokens)) + ","
    for row in write_shard(_sharp_model(), tokens, PLAN, 0):
        assert "," + ",".join(map(str, row[:3])) + "," in text


def test_stopped_sampling_resumes_with_the_same_text(tokens, tmp_path):
    model = _sharp_model()
    whole, resumed = (Shards(tmp_path / name, PLAN.shards) for name in ("whole", "stopped"))
    list(_write(model, tokens, whole))
    stopped = _write(model, tokens, resumed)
    next(stopped)
    stopped.close()
    assert not resumed.complete
    assert [p.step for p in _write(model, tokens, resumed)] == [1, 2, 3]
    assert resumed.complete
    assert np.array_equal(read_samples(whole), read_samples(resumed))


def test_each_row_is_opened_by_end_of_text(tokens, tmp_path):
    plan = replace(PLAN, shards=1)
    shards = Shards(tmp_path, 1)
    list(_write(_sharp_model(), tokens, shards, plan))
    flat = read_samples(shards).reshape(plan.rows, plan.row_tokens + 1)
    assert (flat[:, 0] == 0).all()
    assert np.array_equal(flat[:, 1:], np.load(tmp_path / "00000.npy"))
