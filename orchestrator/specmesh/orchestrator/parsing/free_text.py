"""The rules of a grammar for text in which calls may come: a marker makes it one."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from specmesh.orchestrator.parsing.call_rules import CallRules, begun, quoted

TAIL = "tail"
"""The rule for the text behind the last call."""


def free_text(rules: CallRules, ends: Collection[int], not_first: str = "") -> str:
    """Return the rules for text before each of the markers of ``rules``, and behind the last call.

    The text has no marker, and none of the special tokens ``ends``. No part of it begins with the
    marker ``not_first``, if there is one. A lexeme that is lazy ends with the first marker, which
    no other lexeme can then hold.
    """
    return "\n".join(_lines(rules, ends, not_first))


def _lines(rules: CallRules, ends: Collection[int], not_first: str) -> Iterator[str]:
    marked = {*rules.begins, not_first}
    others = sorted(
        token_id
        for spelling, token_id in rules.special_tokens.items()
        if spelling not in marked and token_id not in ends
    )
    excluded = ""
    if not_first and not_first not in rules.special_tokens:
        excluded = f" & ~(/\\s*/ {quoted(not_first)} /(?s:.*)/)"
    yield f"TEXT: /(?s:.+)/{excluded}"
    other = f"<[{','.join(map(str, others))}]>"
    yield f"spoken: (TEXT? {other})*" if others else 'spoken: ""'
    yield f"{TAIL}: spoken TEXT?"
    for number, spelling in enumerate(rules.begins):
        if spelling in rules.special_tokens:
            yield f"{begun(number)}: spoken TEXT? {rules.literal(spelling)}"
        else:
            yield f"{begun(number)}: spoken up_to_{number}"
            yield f"up_to_{number}[lazy]: UP_TO_{number}"
            yield f"UP_TO_{number}: TEXT? {quoted(spelling)}"
