import numpy as np
import pytest
import torch

from specmesh.decoding.predict.closed_forms import acceptance_rate, expected_tokens
from specmesh.training.distill import distillation_loss, divergences
from specmesh.training.evaluate import (
    CONTINUATION_TOKENS,
    GAMMAS,
    acceptance_rates,
    evaluate,
)
from specmesh.training.pair import build, logits


def _probabilities(scores, temperature=1.0):
    weights = np.exp(np.asarray(scores, dtype=np.float64) / temperature)
    return weights / weights.sum()


@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_acceptance_rate_equals_the_sum_over_the_vocabulary(temperature):
    generator = torch.Generator().manual_seed(0)
    p, q = torch.randn(2, 5, 30, generator=generator) * 3
    found = acceptance_rates(p, q, temperature)
    for row, (a, b) in enumerate(zip(p, q, strict=True)):
        brute = acceptance_rate(_probabilities(a, temperature), _probabilities(b, temperature))
        assert found[row].item() == pytest.approx(brute, abs=1e-5)


def test_divergences_equal_their_definitions():
    generator = torch.Generator().manual_seed(0)
    p_scores, q_scores = torch.randn(2, 1, 4, 30, generator=generator) * 3
    kl, tv = divergences(p_scores, q_scores)
    for i in range(4):
        p, q = _probabilities(p_scores[0, i]), _probabilities(q_scores[0, i])
        assert kl[0, i].item() == pytest.approx((p * np.log(p / q)).sum(), abs=1e-4)
        assert tv[0, i].item() == pytest.approx(1 - acceptance_rate(p, q), abs=1e-5)


def test_distillation_trains_the_drafter_alone():
    target, drafter = build("target", 1), build("drafter", 2)
    batch = torch.arange(34).reshape(2, 17)
    loss = distillation_loss(drafter, target, 0.5, batch)
    kl, tv = divergences(logits(target, batch[:, :-1]), logits(drafter, batch[:, :-1]))
    assert loss.item() == pytest.approx(0.5 * (kl.mean() + tv.mean()).item(), rel=1e-5)
    loss.backward()
    assert all(parameter.grad is None for parameter in target.parameters())
    assert all(parameter.grad is not None for parameter in drafter.parameters())


def test_evaluation_equals_a_position_by_position_count(tokens):
    target, drafter = build("target", 1).eval(), build("drafter", 2).eval()
    with torch.no_grad():
        for model in (target, drafter):
            model.model.embed_tokens.weight.mul_(60)
    found = evaluate(target, drafter, tokens[:300], 900, [[5, 6, 7], [9, 8]])

    text = torch.from_numpy(tokens[:300].astype(np.int64))
    p, q = (logits(model, text[None, :-1])[0].detach() for model in (target, drafter))
    rows = range(299)
    nats = [-np.log(_probabilities(p[i])[text[i + 1]]) for i in rows]
    alphas = [acceptance_rate(_probabilities(p[i]), _probabilities(q[i])) for i in rows]
    same = [int(p[i].argmax() == q[i].argmax()) for i in rows]
    assert found.target.nats_per_token == pytest.approx(np.mean(nats), rel=1e-4)
    assert found.target.bits_per_byte == pytest.approx(np.mean(nats) / np.log(2) / 3, rel=1e-4)
    assert found.held_out.num_tokens == 299
    assert found.held_out.alpha == pytest.approx(np.mean(alphas), abs=1e-5)
    assert found.held_out.greedy == pytest.approx(np.mean(same))
    assert found.greedy_text.num_tokens <= 2 * CONTINUATION_TOKENS
    assert found.greedy_tokens_per_round == tuple(
        expected_tokens(found.greedy_text.greedy, gamma) for gamma in GAMMAS
    )


def test_model_agrees_with_itself(tokens):
    model = build("target", 1).eval()
    found = evaluate(model, model, tokens[:100], 300, [[5, 6, 7]])
    for rates in (found.held_out, found.greedy_text, found.sampled_text):
        assert rates.alpha == pytest.approx(1, abs=1e-5)
        assert rates.greedy == 1
