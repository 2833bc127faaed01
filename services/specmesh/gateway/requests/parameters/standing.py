"""The standing of a request's parameter: supported, ignored or refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """The treatment of a parameter."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """Accepted and checked, but without effect: it would not change the text."""
    REFUSED = "refused"
    """An error, except for null and neutral values, which would not change the text."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter by name. ``neutral`` values mean the same as leaving it out."""

    name: str
    standing: Standing
    neutral: tuple[object, ...] = ()

    def is_neutral(self, value: object) -> bool:
        """Return True if ``value`` means the same as leaving the parameter out."""
        # True == 1 and False == 0 in Python, but not in JSON.
        return value is None or any(
            value == each and isinstance(value, bool) == isinstance(each, bool)
            for each in self.neutral
        )


Parameters = dict[str, Parameter]


def ignored(parameters: Parameters) -> frozenset[str]:
    """Return the names of the parameters that have no effect."""
    return frozenset(each.name for each in parameters.values() if each.standing is Standing.IGNORED)
