"""What two chat templates make of the same question: two prompts."""

from __future__ import annotations

from collections.abc import Callable

from tests.schedules.models import VOCAB_SIZE

from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.requests.prompts import PromptReader
from specmesh.v1 import generation_pb2


def other_prompt(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """What the other template makes of what the first one makes ``prompt`` of."""
    return (*prompt, VOCAB_SIZE - 1)


class Prompts(PromptReader):
    """Reads as its orchestrator's template has it; ``is_other`` says which that is now."""

    def __init__(self, is_other: Callable[[], bool]) -> None:
        super().__init__()
        self._is_other = is_other

    async def read(
        self, request: generation_pb2.GenerateRequest, target: Target
    ) -> tuple[int, ...]:
        """See ``PromptReader``."""
        prompt = await super().read(request, target)
        return other_prompt(prompt) if self._is_other() else prompt
