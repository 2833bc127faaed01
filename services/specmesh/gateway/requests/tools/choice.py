"""The choice among a chat's tools: those that the model may call, or must."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from pydantic import Field, Tag

from specmesh.client import ToolChoice
from specmesh.gateway.errors import ApiError
from specmesh.gateway.requests.fields import Fields, told_apart
from specmesh.gateway.requests.tools.chat_tools import MAX_TOOLS, Tool

Word = Literal["none", "auto", "required"]


class NamedFunction(Fields):
    """A function by its name."""

    name: Annotated[str, Field(min_length=1)]


class FunctionChoice(Fields):
    """The one function to call. A choice of the other type is read as one."""

    type: Literal["function", "allowed_tools"]
    function: NamedFunction


class AllowedFunctions(Fields):
    """Some of the tools, of which the model may call some, or must."""

    mode: Literal["auto", "required"]
    tools: Annotated[
        list[FunctionChoice], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)
    ]


class AllowedChoice(Fields):
    """The choice of some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedFunctions


Choice = Word | FunctionChoice | AllowedChoice


def tag_of(choice: object) -> str | None:
    """Return the mark of a choice in the union of all; None for what is no choice."""
    if isinstance(choice, dict):
        return "<some>" if choice.get("type") == "allowed_tools" else "<one>"
    return "<word>" if choice in get_args(Word) else None


BY_KIND = told_apart(tag_of, f"one of {', '.join(map(repr, get_args(Word)))}, or an object")
"""Tells the kinds of choices apart."""


AnyChoice = Annotated[
    Annotated[Word, Tag("<word>")]
    | Annotated[FunctionChoice, Tag("<one>")]
    | Annotated[AllowedChoice, Tag("<some>")],
    BY_KIND,
]


def shown(choice: Choice, tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools that the model is shown: those that it may call, or all if it must."""
    match choice:
        case "none":
            return []
        case AllowedChoice(allowed_tools=AllowedFunctions(mode="auto")):
            return [tool for tool in tools if tool.function.name in _names(choice)]
    return list(tools)


def forced(choice: Choice, *, parallel: bool) -> ToolChoice | None:
    """Return the choice for the mesh, with one call unless several may be ``parallel``; None if the
    model decides whether it calls tools."""
    match choice:
        case "required":
            return ToolChoice(single_call=not parallel)
        case FunctionChoice():
            return ToolChoice(_names(choice), single_call=True)
        case AllowedChoice(allowed_tools=AllowedFunctions(mode="required")):
            return ToolChoice(_names(choice), single_call=not parallel)
    return None


def check_choice(choice: Choice, tools: Sequence[Tool]) -> None:
    """Raise ``ApiError`` for a choice of tools that are not there."""
    if choice == "required" and not tools:
        raise ApiError.invalid("tool_choice", "'tool_choice': 'required' needs 'tools'")
    known = {tool.function.name for tool in tools}
    for name in _names(choice):
        if name not in known:
            reason = f"'tool_choice': none of the 'tools' is named {name[:64]!r}"
            raise ApiError.invalid("tool_choice", reason)


def _names(choice: Choice) -> list[str]:
    match choice:
        case FunctionChoice(function=function):
            return [function.name]
        case AllowedChoice(allowed_tools=allowed):
            return [each.function.name for each in allowed.tools]
    return []
