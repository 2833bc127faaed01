"""GBNF, llama.cpp's notation, in Lark's."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported only where grammars are possible
    from llguidance.gbnf_to_lark import RuleNode

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)


def lark_of_gbnf(text: str) -> str:
    """Return ``text`` in Lark's notation. Raises the errors of llguidance's converter."""
    from llguidance.gbnf_to_lark import GrammarParser, resolve

    rules = GrammarParser().parse(_ESCAPE.sub(_unescaped, text))
    resolve(rules)
    _make_rules_of_terminals(rules.values())
    return "\n".join(str(rule) for rule in rules.values())


def _unescaped(escape: re.Match[str]) -> str:
    """Return a character by its number as both notations have it, and other escapes as they are."""
    digits = escape[1] or escape[2]
    if digits is None:
        return escape[0]
    character = chr(int(digits, 16))
    character.encode()  # raises for half of a pair of surrogates
    return f"\\x{ord(character):02x}" if character.isascii() else character


def _make_rules_of_terminals(rules: Collection[RuleNode]) -> None:
    """Rename what the converter makes a terminal: being as long as it can be, it swallowed what
    must follow. In GBNF nothing but characters is a terminal."""
    names = {rule.name for rule in rules}
    for rule in rules:
        if rule.rule_is_terminal:
            name = rule.name.lower()
            while name in names:
                name += "_"
            names.add(name)
            rule.name = name  # references have the rule itself
