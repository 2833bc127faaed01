"""The bodies of the two calls: supported and ignored fields, with their types.

Types are checked here. The orchestrator checks ranges, before any work, and the gateway maps the
field names in its errors back to these, so that each limit is defined in one place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from specmesh.client.requests.build import TemplateOptions
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.arguments import checked_arguments
from specmesh.gateway.requests.extension import OPTIONS, Extension
from specmesh.gateway.requests.fields import Fields, Float32, Pairs, Uint32, Uint64
from specmesh.gateway.requests.parameters import CHAT, COMPLETIONS, EXTENSION, taken
from specmesh.gateway.requests.standing import Parameters

MAX_STOP = 16
MAX_PROMPTS = 1024
"""At least the upper bound of ``--max-answers``."""
MAX_PROMPT_TOKENS = 2**19
MAX_MESSAGES = 4096
MAX_PARTS = 1024
MAX_TOP_LOGPROBS = 20
MAX_NAME_CHARS = 64
"""OpenAI's own limit for the name of a participant in a chat."""
DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's own default for completions. Chats have none: they end where the model ends them."""
SEED_BITS = 53

HINTS = {
    **{name: f"{EXTENSION}.{name}" for name in Extension.model_fields},
    "max_completion_tokens": "max_tokens",
}
"""Field names of other servers' extensions, and the fields to use instead."""


def _shape(value: object) -> str:
    """Return the tag of the union member that ``value`` belongs to."""
    if not isinstance(value, list):
        return "<one>"
    first = value[0] if value else None
    if isinstance(first, list):
        return "<lists of ids>"
    return "<ids>" if isinstance(first, int) else "<many>"


class StreamOptions(Fields):
    """The options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None
    continuous_usage_stats: bool | None = None
    """Ignored, but accepted since load generators send it. Usage comes once, at the end."""


class Request(Fields):
    """The fields that both calls share."""

    model: Annotated[str, Field(min_length=1, max_length=512)]
    temperature: Float32 | None = None
    top_p: Annotated[Float32, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, lt=2**31)] = 1
    stop: (
        Annotated[
            Annotated[str, Tag("<one>")]
            | Annotated[list[str], Field(max_length=MAX_STOP, fail_fast=True), Tag("<many>")],
            Discriminator(lambda value: "<many>" if isinstance(value, list) else "<one>"),
        ]
        | None
    ) = None
    seed: Uint64 | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Uint32 | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], Pairs] | None = None
    ignore_eos: bool = False
    specmesh: Extension = Field(default_factory=Extension)

    @model_validator(mode="after")
    def _check_stream_options(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ApiError.invalid(
                "stream_options", "'stream_options' has no meaning unless 'stream' is true"
            )
        return self

    @property
    def include_usage(self) -> bool:
        """True if the stream is to end with a chunk about usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def keywords(self, number: int, num_answers: int) -> dict[str, Any]:
        """Return the keyword arguments that the SDK's ``generate`` and ``chat`` share, for answer
        ``number`` of ``num_answers``."""
        more = self.specmesh
        # The smallest nucleus holds only the likeliest token.
        is_greedy = self.top_p == 0
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return {
            "model": self.model,
            "temperature": 0.0 if is_greedy else self.temperature,
            "top_p": None if is_greedy else self.top_p,
            "seed": seed_of(self.seed, number % self.n),
            "acceptance_mode": more.acceptance_mode,
            "stop_strings": stops or (),
            "stop_token_ids": more.stop_token_ids,
            "ignore_end_of_text": more.ignore_end_of_text or self.ignore_eos,
            "strategy": more.strategy,
            "filter": None if more.filter is None else more.filter.chosen,
            "request_id": _request_id(more.request_id, number, num_answers),
            **{name: getattr(more, name) for name in OPTIONS},
        }


_Ids = Annotated[list[Uint32], Field(max_length=MAX_PROMPT_TOKENS, fail_fast=True)]


class CompletionRequest(Request):
    """The body of POST /v1/completions."""

    prompt: Annotated[
        Annotated[str, Tag("<one>")]
        | Annotated[
            list[str],
            Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True),
            Tag("<many>"),
        ]
        | Annotated[_Ids, Tag("<ids>")]
        | Annotated[
            list[_Ids], Field(max_length=MAX_PROMPTS, fail_fast=True), Tag("<lists of ids>")
        ],
        Discriminator(_shape),
    ]
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    add_special_tokens: bool | None = None

    @model_validator(mode="after")
    def _check_extension(self) -> Self:
        if self.specmesh.content_as_text:
            name = f"{EXTENSION}.content_as_text"
            raise ApiError.invalid(name, f"{name!r} has no meaning for a completion")
        return self

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, as a list even if there is only one."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt

    @property
    def token_limit(self) -> int:
        """The most tokens that an answer may have."""
        return DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens


class TextPart(Fields):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


def _without_nothing(value: object) -> object:
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
        list[Annotated[Message, BeforeValidator(_without_nothing)]],
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


def seed_of(seed: int | None, number: int) -> int | None:
    """Return the seed of choice ``number`` of a prompt: choice 0 has the request's own seed, and so
    equals the answer to a request with n=1; seeds of the others are derived from it."""
    if seed is None or number == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)


def _request_id(given: str, number: int, num_answers: int) -> str:
    """Return the id by which the mesh recognizes a repeated request for an answer."""
    return f"{given}/{number}" if given and num_answers > 1 else given


R = TypeVar("R", bound=Request)


def completion_request(given: Mapping[str, object]) -> CompletionRequest:
    """Validate the body ``given`` as a completion request. Raises ``ApiError``."""
    return _read(CompletionRequest, given, COMPLETIONS)


def chat_request(given: Mapping[str, object]) -> ChatRequest:
    """Validate the body ``given`` as a chat request. Raises ``ApiError``."""
    return _read(ChatRequest, given, CHAT)


def _read(request_class: type[R], given: Mapping[str, object], parameters: Parameters) -> R:
    try:
        return request_class.model_validate(taken(given, parameters, HINTS))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    # An unknown field takes precedence, since it may be why another is missing: a message with tool
    # calls has no content.
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    param = _path(first["loc"])
    if first["type"] == "missing":
        raise ApiError.invalid(param, f"{param!r} is missing", code="missing_required_parameter")
    if first["type"] == "extra_forbidden":
        raise ApiError.invalid(param, f"unknown parameter {param!r}", code="unknown_parameter")
    if first["type"] == "model_type":  # pydantic's message names an internal class
        raise ApiError.invalid(param, f"{param!r}: Input should be an object")
    raise ApiError.invalid(param, f"{param!r}: {first['msg']}")


def _path(location: tuple[int | str, ...]) -> str:
    """Return a path such as ``messages[0].content``, without the tags of unions."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("<"):
            path += f".{part}" if path else part
    return path
