"""The registry of formats of tool calls: those of specmesh, and those that installed packages add.

A package adds formats with entry points of the group ``specmesh.tool_formats``, each of which
refers to a ``ToolFormat``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeVar

from specmesh.orchestrator.parsing.reasoning import REASONING_FORMATS, ReasoningFormat
from specmesh.orchestrator.parsing.tool_format import ToolFormat

BUILT_IN = (
    *("hermes", "llama3", "mistral"),
    *("qwen3_coder", "glm45", "deepseek_v3", "pythonic"),
)
"""Modules in ``formats``, each with a ``FORMAT``."""
ENTRY_POINTS = "specmesh.tool_formats"
DETECTED, NONE = "auto", "none"
"""The names that let the chat template decide, and that leave text as it is."""

F = TypeVar("F", ToolFormat, ReasoningFormat)


@cache
def tool_formats() -> Mapping[str, ToolFormat]:
    """Return all formats of tool calls by name, those of specmesh first."""
    folder = "specmesh.orchestrator.parsing.formats"
    own = (import_module(f"{folder}.{name}").FORMAT for name in BUILT_IN)
    added = (entry.load() for entry in entry_points(group=ENTRY_POINTS))
    return {each.name: each for each in (*own, *added)}


def tool_format(name: str, template: str) -> ToolFormat | None:
    """Return the format of tool calls by its ``name``, which may be ``DETECTED``, for a model with
    this chat template; None if there is none. Raises ValueError for a name that is not known."""
    return _named(name, tool_formats(), lambda each: each.is_of(template))


def reasoning_format(name: str, template: str) -> ReasoningFormat | None:
    """Return the format of reasoning, as ``tool_format`` does."""
    return _named(name, REASONING_FORMATS, lambda each: each.is_of(template))


def check_tool_format(name: str) -> str:
    """Return ``name`` if it is one for ``tool_format``; raises ValueError."""
    return _checked(name, tool_formats())


def check_reasoning_format(name: str) -> str:
    """Return ``name`` if it is one for ``reasoning_format``; raises ValueError."""
    return _checked(name, REASONING_FORMATS)


def _named(name: str, known: Mapping[str, F], is_of: Callable[[F], bool]) -> F | None:
    if _checked(name, known) == DETECTED:
        return next(filter(is_of, known.values()), None)
    return known.get(name)


def _checked(name: str, known: Iterable[str]) -> str:
    names = (DETECTED, NONE, *known)
    if name not in names:
        raise ValueError(f"must be one of: {', '.join(names)}")
    return name
