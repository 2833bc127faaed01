"""What becomes of a parameter of a request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """What becomes of a parameter."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """Taken and checked, but nothing follows from it: the text would be the same."""
    REFUSED = "refused"
    """A value that would change the text is an error; null and its neutral values are none."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter by name. ``neutral`` are the values that mean what leaving it out means."""

    name: str
    standing: Standing
    neutral: tuple[object, ...] = ()

    def is_neutral(self, value: object) -> bool:
        """Whether ``value`` says nothing that leaving the parameter out doesn't say."""
        # True == 1 and False == 0 in Python; not in JSON.
        return value is None or any(
            value == each and isinstance(value, bool) == isinstance(each, bool)
            for each in self.neutral
        )


Parameters = dict[str, Parameter]
