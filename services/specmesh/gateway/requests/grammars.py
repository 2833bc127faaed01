"""The format of an answer, as OpenAI's API has it and as vLLM's does: both are grammars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from specmesh.client import Grammar
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.fields import Fields

MAX_CHOICES = 4096
MAX_GRAMMAR_BYTES = 2**16
"""The orchestrator's own limit, before a request is written for each answer."""
MAX_NAME_CHARS = 64
"""OpenAI's own limit for the name of a schema."""


def _as_json(value: object) -> object:
    """Return an object as JSON, once for all answers of a request."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise PydanticCustomError("schema_type", "Input should be an object, or one as JSON")
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise PydanticCustomError("too_deep", "is nested too deep") from None


def _is_object(value: object) -> object:
    if not isinstance(value, dict):
        raise PydanticCustomError("object_type", "Input should be an object")
    return value


GivenSchema = Annotated[str | None, BeforeValidator(_as_json)]
"""A JSON Schema as an object, or as JSON itself."""
_Choice = Annotated[str, Field(min_length=1)]
Choices = (
    Annotated[list[_Choice], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)] | None
)


class JsonSchema(Fields):
    """A JSON Schema for the answer. It is always enforced, whether or not it is ``strict``; its
    name and description are for models whose prompts have them."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    description: str | None = None
    schema_: Annotated[
        str, BeforeValidator(_as_json), BeforeValidator(_is_object), Field(alias="schema")
    ]
    strict: bool | None = None


class JsonSchemaFormat(Fields):
    """An answer that is valid under a JSON Schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema

    @property
    def grammar(self) -> Grammar:
        """The grammar of the answer."""
        return Grammar(json_schema=self.json_schema.schema_)


class PlainFormat(Fields):
    """An answer that is any text, or any JSON object; the others are read as they say."""

    type: Literal["text", "json_object", "json_schema"]

    @property
    def grammar(self) -> Grammar | None:
        """The grammar of the answer; None for any text."""
        return Grammar(json_object=True) if self.type == "json_object" else None


class FlatSchemaFormat(JsonSchema):
    """The same in POST /v1/responses."""

    type: Literal["json_schema"]


def _tag(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return "<schema>" if kind == "json_schema" else "<plain>"


_Plain = Annotated[PlainFormat, Tag("<plain>")]

ResponseFormat = Annotated[
    _Plain | Annotated[JsonSchemaFormat, Tag("<schema>")], Discriminator(_tag)
]
"""The format of a completion or of a chat."""
TextFormat = Annotated[_Plain | Annotated[FlatSchemaFormat, Tag("<schema>")], Discriminator(_tag)]
"""The format of a response."""


class StructuredOutputs(Fields):
    """vLLM's ``structured_outputs``: exactly one grammar."""

    json_: Annotated[GivenSchema, Field(alias="json")] = None
    regex: str | None = None
    choice: Choices = None
    grammar_: Annotated[str | None, Field(alias="grammar")] = None
    json_object: bool | None = None
    # Nothing but what is meant here anyway.
    disable_fallback: bool = False
    disable_any_whitespace: Literal[False] = False
    disable_additional_properties: Literal[False] = False
    whitespace_pattern: None = None
    structural_tag: None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        # The SDK checks the same, but by its own names.
        given = (self.json_, self.json_object or None, self.regex, self.choice, self.grammar_)
        if sum(each is not None for each in given) != 1:
            names = "json, json_object, regex, choice and grammar"
            raise PydanticCustomError("one_grammar", f"must have exactly one of {names}")
        return self

    @property
    def grammar(self) -> Grammar:
        """The grammar of the answer."""
        return Grammar(
            json_schema=self.json_,
            json_object=bool(self.json_object),
            regex=self.regex,
            ebnf=self.grammar_,
            choice=self.choice,
        )


GUIDED = {
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "ebnf",
}
"""The names that earlier versions of vLLM have for ``structured_outputs``, and the kinds of
grammars."""


def grammars_of(
    response_format: PlainFormat | JsonSchemaFormat | None,
    structured: StructuredOutputs | None,
    guided: Mapping[str, Any],
) -> dict[str, Grammar]:
    """Return the one grammar of a request by the name of its parameter; none for any text.
    ``guided`` has the parameters of ``GUIDED``. Raises ``ApiError`` for two."""
    given = {
        "response_format": None if response_format is None else response_format.grammar,
        "structured_outputs": None if structured is None else structured.grammar,
        **{
            name: Grammar(**{GUIDED[name]: value})
            for name, value in guided.items()
            if value is not None
        },
    }
    found = {name: grammar for name, grammar in given.items() if grammar is not None}
    if len(found) > 1:
        first, second, *_ = found
        raise ApiError.invalid(second, f"{second!r} and {first!r} exclude each other")
    return found


def check_size(grammars: Mapping[str, Grammar]) -> None:
    """Raise ``ApiError`` for a grammar whose source is longer than the mesh takes."""
    for name, grammar in grammars.items():
        sources = (grammar.json_schema, grammar.regex, grammar.ebnf, *(grammar.choice or ()))
        if sum(len(each.encode()) for each in sources if isinstance(each, str)) > MAX_GRAMMAR_BYTES:
            raise ApiError.invalid(name, f"{name!r}: is longer than {MAX_GRAMMAR_BYTES} bytes")
