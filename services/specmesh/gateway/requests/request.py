"""The body that both calls share: supported and ignored fields, with their types.

Types are checked here. The orchestrator checks ranges, before any work, and the gateway maps the
field names in its errors back to these, so that each limit is defined in one place.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, Tag, create_model, model_validator

from specmesh.client import Grammar
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.extension import Extension
from specmesh.gateway.requests.fields import (
    MAX_TOP_LOGPROBS,
    Fields,
    Float32,
    Pairs,
    Uint32,
    one_or,
)
from specmesh.gateway.requests.grammars import (
    GUIDED,
    Choices,
    GivenSchema,
    ResponseFormat,
    StructuredOutputs,
    check_size,
    grammars_of,
)
from specmesh.gateway.requests.parameters.tables import EXTENSION, NO_SEED
from specmesh.gateway.requests.protocol_fields import OPTIONS, PARAMETERS, PROCESSED

MAX_STOP = 16
MAX_STOP_CHARS = 256
"""The orchestrator's own limit, before a request is written for each answer."""
SEED_BITS = 53
"""The orchestrator's own limit."""

_Stop = Annotated[str, Field(max_length=MAX_STOP_CHARS)]


class StreamOptions(Fields):
    """The options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: tells the usage so far in every chunk, if ``include_usage`` is true as well."""


if TYPE_CHECKING:

    class ProtocolFields(Fields):
        """The fields of a request that the protocol describes."""
else:
    ProtocolFields = create_model("ProtocolFields", __base__=Fields, **PARAMETERS)


class Request(ProtocolFields):
    """The fields that both calls share."""

    model: Annotated[str, Field(min_length=1, max_length=512)]
    temperature: Float32 | None = None
    top_p: Annotated[Float32, Field(ge=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, lt=2**31)] = 1
    stop: (
        Annotated[
            Annotated[_Stop, Tag("<one>")]
            | Annotated[list[_Stop], Field(max_length=MAX_STOP, fail_fast=True), Tag("<many>")],
            one_or("strings"),
        ]
        | None
    ) = None
    seed: Annotated[int, Field(ge=NO_SEED, lt=2**SEED_BITS)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Uint32 | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], Pairs] | None = None
    ignore_eos: bool = False
    cache_salt: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    include_stop_str_in_output: bool = False
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: GivenSchema = None
    guided_regex: str | None = None
    guided_choice: Choices = None
    guided_grammar: str | None = None
    prompt_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    skip_special_tokens: bool = True
    specmesh: Extension = Field(default_factory=Extension)

    @model_validator(mode="after")
    def _check_stream_options(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ApiError.invalid(
                "stream_options", "'stream_options' has no meaning unless 'stream' is true"
            )
        return self

    @model_validator(mode="after")
    def _check_grammar(self) -> Self:
        check_size(self.grammars)
        return self

    @model_validator(mode="after")
    def _check_prompt_logprobs(self) -> Self:
        if self.stream and self.prompt_logprobs is not None:
            raise ApiError.invalid("prompt_logprobs", "'prompt_logprobs' excludes 'stream'")
        return self

    @property
    def grammars(self) -> dict[str, Grammar]:
        """The grammar of the answer, by the name of the parameter that has it; none for any text.
        Raises ``ApiError`` for two."""
        return grammars_of(
            self.response_format,
            self.structured_outputs,
            {name: getattr(self, name) for name in GUIDED},
        )

    @property
    def num_candidates(self) -> int:
        """The number of answers to each prompt."""
        return self.n

    @property
    def include_usage(self) -> bool:
        """True if the stream is to end with a chunk about usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def includes_running_usage(self) -> bool:
        """True if every chunk of the stream is to tell the usage so far."""
        options = self.stream_options
        return self.include_usage and options is not None and bool(options.continuous_usage_stats)

    @property
    def names(self) -> dict[str, str]:
        """The caller's names for what errors of the mesh tell of: a single stop string, the
        grammar, and the feature that parameters of sampling need."""
        names = {"stop[0]": "stop"} if isinstance(self.stop, str) else {}
        if given := next(iter(self.grammars), None):
            names["response_format"] = given
        places = (("", self), (f"{EXTENSION}.", self.specmesh))
        processed = [
            at + name for at, part in places for name in PROCESSED if getattr(part, name, None)
        ]
        if processed:
            names["LOGIT_PROCESSING"] = processed[0]
        return names

    def keywords(self, number: int, num_answers: int) -> dict[str, Any]:
        """Return the keyword arguments that the SDK's ``generate`` and ``chat`` share, for answer
        ``number`` of ``num_answers``."""
        more = self.specmesh
        # The smallest nucleus holds only the likeliest token.
        is_greedy = self.top_p == 0
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return {
            **{name: getattr(self, name) for name in PARAMETERS if name != "max_tokens"},
            "model": self.model,
            "temperature": 0.0 if is_greedy else self.temperature,
            "top_p": None if is_greedy else self.top_p,
            "seed": seed_of(self.seed, number % self.num_candidates),
            "acceptance_mode": more.acceptance_mode,
            "grammar": next(iter(self.grammars.values()), None),
            "stop_strings": stops or (),
            "ignore_end_of_text": self.ignore_eos,
            "include_stop_string": self.include_stop_str_in_output,
            "keep_special_tokens": not self.skip_special_tokens,
            "cache_salt": self.cache_salt,
            "strategy": more.strategy,
            "filter": None if more.filter is None else more.filter.chosen,
            "request_id": _request_id(more.request_id, number, num_answers),
            **{name: getattr(more, name) for name in OPTIONS},
        }


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
