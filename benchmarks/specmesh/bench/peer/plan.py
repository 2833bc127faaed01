"""The plan of ``specmesh bench vllm``, and its prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.models import heldout_prompts

PROMPT_TOKENS = 129
"""A block of vLLM's on CPUs, which it keeps from one round to the next as the mesh does, and the
token that is always computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPlan:
    """The user's options: ``streams`` are numbers of concurrent answers, each of ``num_tokens``."""

    target: str
    """Folder or Hugging Face id of the target, in float32."""
    drafters: Sequence[str]
    backend: str
    """Engine of the mesh's target."""
    strategies: Sequence[str]
    temperatures: Sequence[float]
    streams: Sequence[int]
    num_tokens: int
    rounds: int
    threads: int
    """Number of threads of vLLM's forwards."""
    mesh_threads: int
    """Number of threads of each process of the mesh."""

    @property
    def num_rounds(self) -> int:
        """Return the rounds of all cells, including the first one of each, which only warms up."""
        return len(self.temperatures) * len(self.streams) * (self.rounds + 1)

    def prompts(self) -> list[list[int]]:
        """Return a prompt for each stream: stretches of the shipped held-out prompts, no two of
        which begin at the same token. Raises ``ModelNotLoadable``."""
        from transformers import AutoTokenizer

        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(self.target)
        except (OSError, ValueError) as error:
            raise ModelNotLoadable(f"cannot load the tokenizer of {self.target}: {error}") from None
        text = "\n".join(prompt.text for prompt in heldout_prompts())
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        number = max(self.streams)
        step = max(1, (len(ids) - PROMPT_TOKENS) // number)
        return [ids[n * step : n * step + PROMPT_TOKENS] for n in range(number)]
