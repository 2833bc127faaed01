"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from specmesh.client import ToolChoice
from specmesh.client.requests.build import TemplateOptions
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.arguments import checked_arguments
from specmesh.gateway.requests.fields import MAX_TOP_LOGPROBS, Pairs, Uint32
from specmesh.gateway.requests.messages import Message, without_nothing
from specmesh.gateway.requests.parameters.standing import ignored
from specmesh.gateway.requests.parameters.tables import CHAT
from specmesh.gateway.requests.reading import read_request
from specmesh.gateway.requests.request import Request
from specmesh.gateway.requests.tools.chat_tools import MAX_TOOLS, Tool
from specmesh.gateway.requests.tools.choice import AnyChoice, check_choice, forced, shown

IGNORED = ignored(CHAT)
MAX_MESSAGES = 4096
LIMIT = "max_completion_tokens"
"""The present name of ``max_tokens``."""


class ChatRequest(Request):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[
        list[Annotated[Message, BeforeValidator(without_nothing)]],
        Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    ]
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] = Field(
        default_factory=list
    )
    tool_choice: AnyChoice = "auto"
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    max_completion_tokens: Uint32 | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: Annotated[dict[str, Any], BeforeValidator(checked_arguments)] = Field(
        default_factory=dict
    )
    # Ignored.
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Annotated[dict[str, Any], Pairs] | None = None
    prompt_cache_retention: str | None = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise ApiError.invalid(
                "top_logprobs", "'top_logprobs' has no meaning unless 'logprobs' is true"
            )
        if self.max_tokens not in {None, self.max_completion_tokens} and (
            self.max_completion_tokens is not None
        ):
            raise ApiError.invalid(
                "max_tokens", "'max_tokens' differs from 'max_completion_tokens'"
            )
        return self

    @model_validator(mode="after")
    def _check_tool_choice(self) -> Self:
        check_choice(self.tool_choice, self.tools)
        if self.forced_calls and self.grammars:
            raise ApiError.invalid(
                "tool_choice", "'tool_choice' that forces calls excludes a format of the text"
            )
        return self

    @property
    def forced_calls(self) -> ToolChoice | None:
        """The tools that the model must call; None if it decides."""
        return forced(self.tool_choice, parallel=self.parallel_tool_calls)

    @property
    def names(self) -> dict[str, str]:
        """The caller's names for what errors of the mesh tell of; a grammar may force calls."""
        by_tools = "tool_choice" if self.forced_calls else "tools"
        forced = {} if self.grammars else {"response_format": by_tools}
        limit = {} if self.max_completion_tokens is None else {"max_tokens": LIMIT}
        return {**super().names, **forced, **limit}

    @property
    def token_limit(self) -> int | None:
        """The most tokens that an answer may have; None for as many as the context allows."""
        given = self.max_completion_tokens
        return self.max_tokens if given is None else given

    @property
    def chat_keywords(self) -> TemplateOptions:
        """The keyword arguments of the SDK's ``chat`` that control how its prompt is rendered."""
        return {
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
            "template_arguments": self.chat_template_kwargs,
            "content_as_text": self.specmesh.content_as_text,
            "tools": [each.written for each in shown(self.tool_choice, self.tools)],
            "tool_choice": self.forced_calls,
        }

    @property
    def num_top_logprobs(self) -> int | None:
        """The number of likeliest tokens to report per position; None for no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


def chat_request(given: Mapping[str, object]) -> ChatRequest:
    """Validate the body ``given`` as a chat request, and forget what has no effect. Raises
    ``ApiError``."""
    return read_request(ChatRequest, given, CHAT).model_copy(update=dict.fromkeys(IGNORED))
