"""The agreement between answers of programs and batches, and how close the ties were where they
differ.

In exact arithmetic they would all agree. Rounding depends on the shapes of the matrices, so where
two tokens are about equally likely, another batch may prefer the other one. In bfloat16, with 8
bits of mantissa, logits of 16 to 32 are 0.125 apart and ties are common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmesh.bench.engine.figures import TimedAnswer
from specmesh.bench.engine.plan import EnginePlan


@dataclass(frozen=True, slots=True)
class Flip:
    """The first token that differs between two answers to a prompt."""

    prompt: int
    position: int
    token_ids: tuple[int, int]
    before: tuple[int, ...]
    """The common tokens of both answers before that, without the prompt."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The number of compared pairs of answers to the same prompts, and the differences."""

    num_answers: int
    flips: tuple[Flip, ...]


def compare(answers: Sequence[TimedAnswer], others: Sequence[TimedAnswer]) -> Agreement:
    """Compare answers to the same prompts from the first on; the rest of the longer list is
    ignored."""
    pairs = list(zip(answers, others, strict=False))
    flips = []
    for number, (answer, other) in enumerate(pairs):
        for position, token_ids in enumerate(zip(answer.token_ids, other.token_ids, strict=True)):
            if token_ids[0] != token_ids[1]:
                flips.append(Flip(number, position, token_ids, answer.token_ids[:position]))
                break
    return Agreement(len(pairs), tuple(flips))


def compare_all(
    ours: Mapping[int, Sequence[TimedAnswer]], baseline: Mapping[int, Sequence[TimedAnswer]]
) -> dict[str, Agreement]:
    """Compare both programs with one stream, and each with every smaller number of streams."""
    found = {"ours 1, generate 1": compare(ours[1], baseline[1])}
    for name, runs in (("ours", ours), ("generate", baseline)):
        for streams in sorted(runs):
            for fewer in sorted(runs):
                if fewer < streams:
                    found[f"{name} {streams}, {name} {fewer}"] = compare(runs[streams], runs[fewer])
    return found


def margins_nats(plan: EnginePlan, flips: Sequence[Flip]) -> list[float]:
    """Return the difference in log-probability, in float32, of the two tokens of each flip."""
    import torch

    from specmesh.bench.engine.baseline import load_plain
    from specmesh.bench.engine.prompts import Prompts

    torch.set_num_threads(plan.threads)
    model = load_plain(plan.model, "float32", plan.device)
    prompts = Prompts(plan.model, plan.seed).mixed(max(flip.prompt for flip in flips) + 1)
    margins = []
    for flip in flips:
        tokens = torch.tensor([[*prompts[flip.prompt], *flip.before]], device=model.device)
        with torch.inference_mode():
            logits = model(tokens, logits_to_keep=1).logits[0, -1]
        one, other = logits[list(flip.token_ids)].tolist()
        margins.append(abs(one - other))
    return margins
