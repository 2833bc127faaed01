"""A model's chat template, as it travels from the verifier that read it to the orchestrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_TEMPLATE_BYTES = 1 << 20
"""The largest known ones have some 30 KB; it travels in one message beside the tokenizer."""


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """What makes a prompt of a chat.

    ``source`` is Jinja as models on Hugging Face have it (``template_language.py``);
    ``special_tokens`` are those that it may name, such as ``bos_token``.
    """

    source: str
    special_tokens: Mapping[str, str]
