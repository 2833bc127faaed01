"""The fields of sampling, stopping and speculation, as the two calls have them: by descriptor, so
that a new one needs at most its name here.

Clients of OpenAI's API and of vLLM's name most of them at the top level of a body. The others are
in the extension.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from specmesh.gateway.requests.fields import Float32, Uint32
from specmesh.v1 import sampling_pb2, speculation_pb2

MAX_LISTED = 1024
MAX_BAD_WORD_CHARS = 64
"""The orchestrator's own limits for lists of tokens, and for the texts of another. They are checked
here, too, since a request is written for each answer."""
MAX_TEXT_CHARS = 128
"""Room for any name of a predictor or of a shape."""

TOP_LEVEL = frozenset(
    {
        *("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty", "logit_bias"),
        *("top_k", "min_p", "repetition_penalty", "allowed_token_ids", "bad_words", "min_tokens"),
        *("max_tokens", "stop_token_ids"),
    }
)
"""Names of fields that OpenAI's API or vLLM's has at the top level, with the same meaning."""

_OTHERWISE = frozenset(
    {"stop_strings", "ignore_end_of_text", "include_stop_string", "end_token_ids"}
)
"""Fields with another name at the top level, and the orchestrator's own."""
_PLAIN = frozenset({"temperature", "top_k", "top_p", "seed", "num_prompt_tokens"})
"""Fields of sampling that every replica heeds."""
_SCALARS: Mapping[int, Any] = {
    FieldDescriptor.CPPTYPE_FLOAT: Float32,
    FieldDescriptor.CPPTYPE_UINT32: Uint32,
    FieldDescriptor.CPPTYPE_STRING: str,
}
_PARTS: tuple[type[Message], ...] = (
    sampling_pb2.SamplingParameters,
    sampling_pb2.StoppingCriteria,
    speculation_pb2.SpeculationOptions,
)

_MAX_DIGITS = 11
"""Longer numbers are cut to this; the first 11 digits are no token id either."""

_MOST_ENTRIES: Mapping[str, int] = {
    "banned_sequences": 256,
    "bad_words": 128,
    "stop_token_ids": 256,
}
"""The orchestrator's own limits for shorter lists."""
_MAX_SEQUENCE = 32
"""The same for the tokens of a banned sequence."""


def _by_token(value: object) -> object:
    """Return a map whose keys are token ids, which JSON has as strings."""
    if not isinstance(value, dict):
        return value
    # pydantic checks the max_length of a dict only after it has validated every value.
    if len(value) > MAX_LISTED:
        raise PydanticCustomError("too_long", f"must hold at most {MAX_LISTED} tokens")
    wrong = next((key for key in value if not (key.isascii() and key.isdecimal())), None)
    if wrong is not None:
        raise PydanticCustomError("token_id", f"{wrong[:64]!r} is not a token id")
    found = {int(key.lstrip("0")[:_MAX_DIGITS] or "0"): each for key, each in value.items()}
    if len(found) < len(value):  # "1" and "01", of which one would be dropped
        raise PydanticCustomError("token_id", "names a token twice")
    return found


def _list_of(kind: Any, most: int) -> Any:
    return Annotated[list[kind], Field(max_length=most, fail_fast=True)]


def _type_of(field: Any) -> Any:
    """Return the type of a parameter for ``field``; None for one that is described by hand."""
    most = _MOST_ENTRIES.get(field.name, MAX_LISTED)
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return Annotated[dict[Uint32, Float32], BeforeValidator(_by_token)]
        if field.message_type is sampling_pb2.TokenSequence.DESCRIPTOR:
            return _list_of(_list_of(Uint32, _MAX_SEQUENCE), most)
        return None
    kind = _SCALARS.get(field.cpp_type)
    if kind is str:
        longest = MAX_BAD_WORD_CHARS if field.is_repeated else MAX_TEXT_CHARS
        kind = Annotated[str, Field(max_length=longest)]
    return _list_of(kind, most) if kind is not None and field.is_repeated else kind


def _all_for_minus_one(value: int) -> int:
    """Return 0 for -1, by which clients of other servers keep all tokens."""
    return max(value, 0)


def _fields() -> Iterator[tuple[str, Any]]:
    for part in _PARTS:
        for field in part.DESCRIPTOR.fields:
            if field.name not in _OTHERWISE and (kind := _type_of(field)) is not None:
                yield field.name, (kind | None, None)


_FIELDS = {
    **dict(_fields()),
    "top_k": (
        Annotated[int, Field(ge=-1, lt=2**32), AfterValidator(_all_for_minus_one)] | None,
        None,
    ),
    # Empty, it would be left out of the mesh's request, and all tokens would be allowed.
    "allowed_token_ids": (
        Annotated[_list_of(Uint32, MAX_LISTED), Field(min_length=1)] | None,
        None,
    ),
}

PARAMETERS: Mapping[str, Any] = {name: _FIELDS[name] for name in _FIELDS.keys() & TOP_LEVEL}
"""The fields at the top level, as pydantic fields."""
OPTIONS: Mapping[str, Any] = {name: each for name, each in _FIELDS.items() if name not in TOP_LEVEL}
"""The fields of the extension, as pydantic fields."""
PROCESSED = [
    field.name
    for field in sampling_pb2.SamplingParameters.DESCRIPTOR.fields
    if field.name in _FIELDS and field.name not in _PLAIN
]
"""Parameters that need MODEL_FEATURE_LOGIT_PROCESSING."""
