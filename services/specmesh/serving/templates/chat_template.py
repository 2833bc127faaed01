"""A model's chat template, which the verifier reads and sends to the orchestrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_TEMPLATE_BYTES = 1 << 20
"""The largest known templates have about 30 KB. The limit exists since a template shares a message
with the tokenizer."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A template that renders a chat as a prompt.

    ``source`` is Jinja in the dialect of Hugging Face (see ``template_language.py``);
    ``special_tokens`` are the variables for special tokens, such as ``bos_token``. Some models have
    a template of their own for chats with tools, ``tool_source``; "" if ``source`` serves them too.
    """

    source: str
    special_tokens: Mapping[str, str]
    tool_source: str = ""

    def source_for(self, *, tools: bool) -> str:
        """Return the source for chats with or without ``tools``."""
        return (self.tool_source if tools else "") or self.source
