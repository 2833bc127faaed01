"""The plan of ``specmesh bench vllm``, and its prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specmesh.bench.engine.prompts import Prompts
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.loading import read_files
from specmesh.tools.kit.experiment import SEED

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

    @property
    def num_context_tokens(self) -> int:
        """Return the context length that vLLM needs: it reserves room for one more token."""
        return PROMPT_TOKENS + self.num_tokens + 1

    def check_context(self) -> None:
        """Raise ``ModelNotLoadable`` if the target's context has no room for the answers."""
        context_tokens = int(read_files(self.target).text_config.max_position_embeddings)
        if self.num_context_tokens > context_tokens:
            most = context_tokens - (self.num_context_tokens - self.num_tokens)
            raise ModelNotLoadable(
                f"--tokens is at most {most} with {self.target!r}, which has a context of "
                f"{context_tokens} tokens"
            )

    def prompts(self) -> list[list[int]]:
        """Return a prompt for each stream. Raises ``ModelNotLoadable``."""
        try:
            prompts = Prompts(self.target, SEED)
        except (OSError, ValueError) as error:
            raise ModelNotLoadable(f"cannot load the tokenizer of {self.target}: {error}") from None
        return prompts.several(PROMPT_TOKENS, max(self.streams))
