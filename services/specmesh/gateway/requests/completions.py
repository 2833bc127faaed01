"""The body of POST /v1/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, Tag, model_validator

from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.fields import MAX_TOP_LOGPROBS, Uint32, told_apart
from specmesh.gateway.requests.parameters.standing import ignored
from specmesh.gateway.requests.parameters.tables import COMPLETIONS, EXTENSION
from specmesh.gateway.requests.reading import read_request
from specmesh.gateway.requests.request import Request
from specmesh.gateway.requests.weight import VALUE_BYTES

IGNORED = ignored(COMPLETIONS)
MAX_PROMPTS = 1024
"""The most answers of a request: at least the upper bound of ``--max-answers``."""
MAX_PROMPT_TOKENS = 2**19
DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's own default for completions. Chats have none: they end where the model ends them."""


def _shape(value: object) -> str | None:
    """Return the tag of the union member that ``value`` belongs to; None if there is none."""
    if not isinstance(value, list):
        return "<one>" if isinstance(value, str) else None
    first = value[0] if value else None
    if isinstance(first, list):
        return "<lists of ids>"
    return "<ids>" if isinstance(first, int) else "<many>"


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
        told_apart(_shape, "a string, a list of strings, or token ids"),
    ]
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    add_special_tokens: bool | None = None
    echo: bool = False
    best_of: Annotated[int, Field(ge=1, lt=2**31)] | None = None

    @model_validator(mode="after")
    def _check_candidates(self) -> Self:
        if self.best_of is None:
            return self
        if self.best_of < self.n:
            raise ApiError.invalid("best_of", "'best_of' is below 'n', of which it has candidates")
        if self.stream and self.best_of > self.n:
            raise ApiError.invalid(
                "best_of", "'best_of' excludes 'stream': the best is known at the end"
            )
        return self

    @model_validator(mode="after")
    def _check_token_limit(self) -> Self:
        if self.max_tokens == 0 and not self.echo:
            raise ApiError.invalid("max_tokens", "'max_tokens': 0 has no meaning without 'echo'")
        return self

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
    def prompt_bytes(self) -> int:
        """The bytes of the request that are those of its prompts, as ``num_bytes`` counts."""
        return sum(
            len(each.encode()) if isinstance(each, str) else VALUE_BYTES * len(each)
            for each in self.prompts
        )

    @property
    def num_candidates(self) -> int:
        """The number of answers to each prompt, of which ``n`` are returned."""
        return self.n if self.best_of is None else self.best_of

    @property
    def compares(self) -> bool:
        """True if the answers are ranked by their likelihood, which is known at the end alone."""
        return self.best_of is not None and not self.stream

    @property
    def token_limit(self) -> int:
        """The most tokens that an answer may have."""
        return DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens


def completion_request(given: Mapping[str, object]) -> CompletionRequest:
    """Validate the body ``given`` as a completion request, and forget what has no effect. Raises
    ``ApiError``."""
    asked = read_request(CompletionRequest, given, COMPLETIONS)
    return asked.model_copy(update=dict.fromkeys(IGNORED))
