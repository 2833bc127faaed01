"""The rules from which formats build the grammar of their calls, in Lark's notation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallRules:
    """The tools to call, and how their calls are written."""

    names: Sequence[str]
    special_tokens: Mapping[str, int]
    """The special tokens of the model, by spelling."""
    is_single: bool
    """True for exactly one call, False for one or more."""

    def marker(self, spelling: str) -> str:
        """Return a marker: a special token if the model has it, otherwise its text."""
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

    def repeated(self, call: str, between: str = "") -> str:
        """Return as many of ``call`` as there may be, with ``between`` from one to the next."""
        return call if self.is_single else f"{call} ({between} {call})*"


def either(alternatives: Iterable[str]) -> str:
    """Return an expression for any of some expressions."""
    return f"({' | '.join(alternatives)})"


def quoted(text: str) -> str:
    """Return an expression for exactly ``text``."""
    return json.dumps(text)


def _beginning(name: str, key: str) -> str:
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{key}": '
