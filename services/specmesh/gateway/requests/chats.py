"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from specmesh.client.requests.build import TemplateOptions
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.arguments import checked_arguments
from specmesh.gateway.requests.fields import MAX_TOP_LOGPROBS, Fields, Pairs, Uint32
from specmesh.gateway.requests.parameters import CHAT
from specmesh.gateway.requests.request import Request, read_request

MAX_MESSAGES = 4096
MAX_PARTS = 1024
MAX_NAME_CHARS = 64
"""OpenAI's own limit for the name of a participant in a chat."""


class TextPart(Fields):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


def without_nothing(value: object) -> object:
    """Drop fields that are null or an empty list, of which responses sent back have many."""
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if each is not None and each != []}


class Message(Fields):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[str, Tag("<one>")]
        | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True), Tag("<many>")],
        Discriminator(lambda value: "<many>" if isinstance(value, list) else "<one>"),
    ]
    name: Annotated[str, Field(max_length=MAX_NAME_CHARS)] = ""

    @property
    def spoken(self) -> dict[str, str]:
        """The message for the chat template, which knows ``developer`` as ``system``."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text, "name": self.name}


class ChatRequest(Request):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[
        list[Annotated[Message, BeforeValidator(without_nothing)]],
        Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True),
    ]
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
        }

    @property
    def num_top_logprobs(self) -> int | None:
        """The number of likeliest tokens to report per position; None for no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


def chat_request(given: Mapping[str, object]) -> ChatRequest:
    """Validate the body ``given`` as a chat request. Raises ``ApiError``."""
    return read_request(ChatRequest, given, CHAT)
