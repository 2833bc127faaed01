"""The response object of POST /v1/responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from specmesh.client import FinishReason, GenerationResult
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.responses import ResponsesRequest
from specmesh.gateway.responses.envelope import Json, extension
from specmesh.gateway.responses.output_items import OutputItem


@dataclass(frozen=True, slots=True)
class ResponseObject:
    """Builds the object at each stage of the answer to ``asked``."""

    asked: ResponsesRequest
    id: str = field(default_factory=lambda: f"resp_{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def begun(self) -> Json:
        """Return the response before its first text."""
        return self._of("in_progress")

    def ended(self, result: GenerationResult, items: Sequence[OutputItem]) -> Json:
        """Return the whole response with all ``items`` of its output."""
        status = status_of(result)
        is_whole = status == "completed"
        return {
            **self._of(status),
            "completed_at": int(time.time()) if is_whole else None,
            "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
            "output": [
                *(item.written("completed") for item in items[:-1]),
                items[-1].written(status),
            ],
            "usage": _usage(result),
            **extension(result),
        }

    def failed(self, error: ApiError) -> Json:
        """Return the response that ``error`` broke off."""
        code = "rate_limit_exceeded" if error.type == "rate_limit_error" else "server_error"
        return {**self._of("failed"), "error": {"code": code, "message": error.message}}

    def _of(self, status: str) -> Json:
        own, chat = self.asked.own, self.asked.chat
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": own.instructions,
            "max_output_tokens": own.max_output_tokens,
            "max_tool_calls": None,
            "metadata": chat.metadata or {},
            "model": chat.model,
            "output": [],
            "parallel_tool_calls": chat.parallel_tool_calls,
            "previous_response_id": None,
            "prompt_cache_key": chat.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": chat.safety_identifier,
            "service_tier": "default",
            "store": False,  # whatever was asked: nothing can be retrieved later
            "temperature": chat.temperature,
            "text": {"format": own.text_format, "verbosity": "medium"},
            "tool_choice": own.told_choice,
            "tools": [each.model_dump() for each in own.tools],
            "top_logprobs": own.top_logprobs or 0,
            "top_p": chat.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": chat.user,
        }


def status_of(result: GenerationResult) -> str:
    """Return the status of a response with this answer, and of its last item."""
    return "incomplete" if result.finish_reason is FinishReason.LENGTH else "completed"


def _usage(result: GenerationResult) -> Json:
    stats = result.stats
    return {
        "input_tokens": stats.num_prompt_tokens,
        # Filling a cache is not charged for, so no tokens are told of it.
        "input_tokens_details": {
            "cached_tokens": stats.num_cached_tokens,
            "cache_write_tokens": 0,
        },
        "output_tokens": stats.num_output_tokens,
        "output_tokens_details": {"reasoning_tokens": stats.num_reasoning_tokens},
        "total_tokens": stats.num_prompt_tokens + stats.num_output_tokens,
    }
