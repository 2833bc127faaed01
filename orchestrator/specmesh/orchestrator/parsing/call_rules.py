"""The rules from which formats build the grammar of their calls, in Lark's notation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specmesh.decoding.grammar import json_rule


@dataclass(frozen=True, slots=True)
class CallRules:
    """The tools to call, and how their calls are written."""

    names: Sequence[str]
    special_tokens: Mapping[str, int]
    """The special tokens of the model, by spelling."""
    is_single: bool
    """True for exactly one call, False for one or more."""
    begins: Sequence[str] = ()
    """The markers that begin a call wherever there is text; none if the answer is calls alone."""

    def marker(self, spelling: str) -> str:
        """Return a marker: a special token if the model has it, otherwise its text. One of
        ``begins`` comes with the text before it."""
        if spelling in self.begins:
            return begun(self.begins.index(spelling))
        return self.literal(spelling)

    def literal(self, spelling: str) -> str:
        """Return a marker alone."""
        token_id = self.special_tokens.get(spelling)
        return quoted(spelling) if token_id is None else f"<[{token_id}]>"

    def arguments(self, number: int) -> str:
        """Return the name of the rule for the arguments of the tool at this place of ``names``."""
        return f"arguments_{number}"

    def objects(self, key: str, more: str = "") -> str:
        """Return a call of any tool as a JSON object: its name, its arguments under ``key``, and
        ``more``."""
        return either(
            f'{quoted(_beginning(name, key))} {self.arguments(number)} {more} "}}"'
            for number, name in enumerate(self.names)
        )

    def any_tool(self, before: str, after: str = "", marker: str = "") -> str:
        """Return a call of any tool: its arguments between ``before``, with the name of the tool in
        place of ``{}``, and ``after``; ``marker`` is an expression for what precedes them."""
        end = quoted(after) if after else ""
        return either(
            " ".join([quoted(before.replace("{}", name)), marker, self.arguments(number), end])
            for number, name in enumerate(self.names)
        )

    def text_up_to(self, spelling: str, name: str) -> str:
        """Return the rule ``name``: any text, and the marker that ends it."""
        if spelling in self.special_tokens:
            return f"{name}: /(?s:.*)/ {self.marker(spelling)}"
        return f"{name}[suffix={quoted(spelling)}]: /(?s:.*)/"

    def repeated(self, call: str, between: str = "") -> str:
        """Return as many of ``call`` as there may be, with ``between`` from one to the next."""
        return call if self.is_single else f"{call} ({between} {call})*"


def whole_arguments(
    rules: CallRules, number: int, schema: Mapping[str, Any] | None
) -> Sequence[str]:
    """Return the rule for the arguments of tool ``number`` as one JSON object; any without a
    schema."""
    return [f"{rules.arguments(number)}: {json_rule(schema or {'type': 'object'})}"]


def begun(number: int) -> str:
    """Return the name of the rule for text and the marker at this place of ``begins``."""
    return f"begun_{number}"


def either(alternatives: Iterable[str]) -> str:
    """Return an expression for any of some expressions."""
    return f"({' | '.join(alternatives)})"


def quoted(text: str) -> str:
    """Return an expression for exactly ``text``."""
    return json.dumps(text)


def _beginning(name: str, key: str) -> str:
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{key}": '
