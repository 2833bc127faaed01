"""The grammar of an answer, as callers write it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from specmesh.client.requests.filled import filled
from specmesh.v1 import sampling_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The texts allowed as an answer: exactly one of a JSON Schema (as an object, or as JSON),
    any JSON object, the texts that match a regular expression as a whole, those of a context-free
    grammar (in Lark's notation or in GBNF), and one of some texts."""

    json_schema: Mapping[str, Any] | str | None = None
    json_object: bool = False
    regex: str | None = None
    ebnf: str | None = None
    choice: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.choice, str):  # would be read as a sequence of characters
            raise TypeError("grammar.choice: expected a sequence of strings, got one string")
        if len(self._given) != 1:
            raise ValueError(f"grammar: must have exactly one of {', '.join(SOURCES)}")

    @property
    def message(self) -> sampling_pb2.Grammar:
        """The grammar in a request. Raises TypeError or ValueError for a source that none can
        hold."""
        source: dict[str, Any] = dict(self._given)
        if isinstance(self.json_schema, Mapping):
            source["json_schema"] = json.dumps(dict(self.json_schema), ensure_ascii=False)
        if self.choice is not None:
            source["choice"] = filled(sampling_pb2.GrammarChoice, texts=self.choice)
        return filled(sampling_pb2.Grammar, **source)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the grammar written as ``json_object``, or as ``NAME=SOURCE`` or ``NAME=@FILE``
        with one of the other names; the texts of a choice are a JSON list. Raises ValueError."""
        name, _, source = text.partition("=")
        if name not in SOURCES:
            raise ValueError(f"{name!r} is not one of: {', '.join(SOURCES)}")
        if source.startswith("@"):
            try:
                source = Path(source[1:]).read_text(encoding="utf-8")
            except FileNotFoundError:
                raise ValueError(f"there is no file {source[1:]!r}") from None
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"cannot read {source[1:]!r}: {error}") from None
        if (name == "json_object") == bool(source):
            raise ValueError("write json_object, or NAME=SOURCE")
        if name == "json_object":
            return cls(json_object=True)
        given: dict[str, Any] = {name: _texts(source) if name == "choice" else source}
        return cls(**given)

    @property
    def _given(self) -> Mapping[str, object]:
        values = {name: getattr(self, name) for name in SOURCES}
        return {name: value for name, value in values.items() if value not in (None, False)}


def _texts(source: str) -> list[str]:
    """Return the texts in a JSON list. Raises ValueError."""
    try:
        texts = json.loads(source)
    except ValueError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ValueError("""choice takes a JSON list, such as '["yes", "no"]'""")
    return texts


SOURCES: Sequence[str] = tuple(each.name for each in fields(Grammar))
"""The languages of grammars."""
