"""The baseline: transformers' own ``generate``, on left-padded batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from specmesh.bench.engine.figures import TimedAnswer, Turn
from specmesh.bench.engine.plan import EnginePlan
from specmesh.bench.engine.prompts import Prompts

_PADDING_ID = 0  # It is masked, so any token will do.
_WARM_UP_TOKENS = 2


class TokenClock:
    """A ``BaseStreamer`` that records when ``generate`` hands out tokens; unlike others it accepts
    batches."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def put(self, _token_ids: Any) -> None:
        """Record the time; ``generate`` calls it with the prompts, then with every token of the
        batch."""
        self.seconds.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing; ``generate`` calls it at the end of the answers."""


def generate_batches(plan: EnginePlan, batch_size: int) -> Iterator[Turn]:
    """Yield greedy answers to the prompts, batch after batch."""
    import torch

    torch.set_num_threads(plan.threads)
    model = load_plain(plan.model, plan.dtype, plan.device)
    prompts = Prompts(plan.model, plan.seed)
    _generate(model, prompts.warm_up(batch_size), _WARM_UP_TOKENS)
    timed = prompts.mixed(plan.num_answers(batch_size))
    for turn in plan.turns(batch_size):
        yield [
            answer
            for first in range(turn.start, turn.stop, batch_size)
            for answer in _generate(model, timed[first : first + batch_size], plan.num_tokens)
        ]


def load_plain(name: str, dtype: str, device: str) -> Any:
    """Load the model with transformers, so that it continues past an end of text."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = _PADDING_ID
    return model.to(device).eval()


def _generate(model: Any, prompts: Sequence[list[int]], num_tokens: int) -> list[TimedAnswer]:
    import torch

    longest = max(map(len, prompts))
    padded = [[_PADDING_ID] * (longest - len(prompt)) + prompt for prompt in prompts]
    seen = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    clock = TokenClock()
    asked_s = time.perf_counter()
    tokens = model.generate(
        torch.tensor(padded, device=model.device),
        attention_mask=torch.tensor(seen, device=model.device),
        max_new_tokens=num_tokens,
        do_sample=False,
        streamer=clock,
    )
    token_s = tuple(clock.seconds[1:])
    return [TimedAnswer(tuple(row), asked_s, token_s) for row in tokens[:, longest:].tolist()]
