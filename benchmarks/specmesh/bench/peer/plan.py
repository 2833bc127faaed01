"""The plan of ``specmesh bench vllm``, and its prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.models import heldout_prompts

PROMPT_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPlan:
    """The user's options: ``streams`` are numbers of concurrent answers, each of ``num_tokens``."""

    target: str
    """Folder or Hugging Face id of the target."""
    strategies: Sequence[str]
    temperatures: Sequence[float]
    streams: Sequence[int]
    num_tokens: int
    rounds: int
    threads: int
    """Number of threads of vLLM's forwards."""

    @property
    def num_rounds(self) -> int:
        """Return the rounds of all cells, including the first one of each, which only warms up."""
        return len(self.temperatures) * len(self.streams) * (self.rounds + 1)

    def prompts(self) -> list[list[int]]:
        """Return a prompt for each stream: stretches of the shipped held-out prompts, no two of
        which begin at the same token."""
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(self.target)
        text = "\n".join(prompt.text for prompt in heldout_prompts())
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        number = max(self.streams)
        step = max(1, (len(ids) - PROMPT_TOKENS) // number)
        return [ids[n * step : n * step + PROMPT_TOKENS] for n in range(number)]
