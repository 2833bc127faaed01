"""Conversion between the message of a grammar and its value."""

from __future__ import annotations

from typing import Any

from specmesh.decoding.errors import InvalidField, within
from specmesh.decoding.grammar import Grammar, GrammarKind
from specmesh.v1 import sampling_pb2


def read_grammar(message: sampling_pb2.Grammar) -> Grammar:
    """Return the grammar of a request. Raises ``InvalidField``."""
    given = message.WhichOneof("source")
    if given is None:
        raise InvalidField("grammar", f"must have one of: {', '.join(GrammarKind)}")
    with within("grammar"):
        match kind := GrammarKind(given):
            case GrammarKind.CHOICE:
                return Grammar.of_choices(message.choice.texts)
            case GrammarKind.JSON_OBJECT:
                if not message.json_object:
                    raise InvalidField(kind, "must be true")
                return Grammar(kind)
        return Grammar(kind, getattr(message, kind))


def write_grammar(grammar: Grammar) -> sampling_pb2.Grammar:
    """Return the message for ``grammar``."""
    match grammar.kind:
        case GrammarKind.CHOICE:
            choice = sampling_pb2.GrammarChoice(texts=grammar.choices)
            return sampling_pb2.Grammar(choice=choice)
        case GrammarKind.JSON_OBJECT:
            return sampling_pb2.Grammar(json_object=True)
    source: dict[str, Any] = {grammar.kind.value: grammar.text}
    return sampling_pb2.Grammar(**source)
