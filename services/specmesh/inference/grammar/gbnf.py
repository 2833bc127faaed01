"""GBNF, llama.cpp's notation, in Lark's."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported only where grammars are possible
    from llguidance.gbnf_to_lark import RuleNode


def lark_of_gbnf(text: str) -> str:
    """Return ``text`` in Lark's notation. Raises the errors of llguidance's converter."""
    from llguidance.gbnf_to_lark import GrammarParser, resolve

    rules = GrammarParser().parse(text)
    resolve(rules)
    _make_rules_of_terminals(rules.values())
    return "\n".join(str(rule) for rule in rules.values())


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
