"""The body that both calls share: supported and ignored fields, with their types.

Types are checked here. The orchestrator checks ranges, before any work, and the gateway maps the
field names in its errors back to these, so that each limit is defined in one place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.extension import OPTIONS, Extension
from specmesh.gateway.requests.fields import Fields, Float32, Pairs, Uint32, Uint64
from specmesh.gateway.requests.parameters import EXTENSION, taken
from specmesh.gateway.requests.standing import Parameters

MAX_STOP = 16
SEED_BITS = 53

HINTS = {
    **{name: f"{EXTENSION}.{name}" for name in Extension.model_fields},
    "max_completion_tokens": "max_tokens",
}
"""Field names of other servers' extensions, and the fields to use instead."""


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
    skip_special_tokens: bool = True
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
            "keep_special_tokens": not self.skip_special_tokens,
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


R = TypeVar("R", bound=Request)


def read_request(request_class: type[R], given: Mapping[str, object], parameters: Parameters) -> R:
    """Validate the body ``given`` of a call that takes ``parameters``. Raises ``ApiError``."""
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
