"""The tools of POST /v1/responses, which writes them flatter than chats do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from specmesh.gateway.requests.fields import Fields
from specmesh.gateway.requests.tools.chat_tools import MAX_TOOLS, OfferedFunction
from specmesh.gateway.requests.tools.choice import BY_KIND, Word


class FlatTool(OfferedFunction):
    """A function that the model may call."""

    type: Literal["function"]

    @property
    def as_chat(self) -> dict[str, Any]:
        """The tool of a chat that is the same."""
        function = self.model_dump(exclude={"type"}, exclude_unset=True)
        return {"type": "function", "function": function}


class FlatChoice(Fields):
    """The one function to call. A choice of the other type is read as one."""

    type: Literal["function", "allowed_tools"]
    name: Annotated[str, Field(min_length=1)]

    @property
    def as_chat(self) -> dict[str, Any]:
        """The choice of a chat that is the same."""
        return {"type": "function", "function": {"name": self.name}}


class FlatAllowed(Fields):
    """Some of the tools, of which the model may call some, or must."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[FlatChoice], Field(min_length=1, max_length=MAX_TOOLS, fail_fast=True)]

    @property
    def as_chat(self) -> dict[str, Any]:
        """The choice of a chat that is the same."""
        tools = [each.as_chat for each in self.tools]
        return {"type": "allowed_tools", "allowed_tools": {"mode": self.mode, "tools": tools}}


AnyFlatChoice = Annotated[
    Annotated[Word, Tag("<word>")]
    | Annotated[FlatChoice, Tag("<one>")]
    | Annotated[FlatAllowed, Tag("<some>")],
    BY_KIND,
]
