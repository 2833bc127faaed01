"""The processing units that share a forward pass, as ``--units`` names them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_UNIT = re.compile(r"(cpu):(\d{1,4})(?:-(\d{1,4}))?|(cuda):(\d{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """One unit: CPU cores ``numbers``, with a thread on each, or the GPU of that number."""

    kind: Literal["cpu", "cuda"]
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        first, last = self.numbers[0], self.numbers[-1]
        return f"{self.kind}:{first}" if first == last else f"{self.kind}:{first}-{last}"


def parse_units(text: str) -> tuple[UnitSpec, ...]:
    """Return the units that ``text`` names, as in "cpu:0,cpu:1-3,cuda:0". Raises ``ValueError`` for
    any other text."""
    units = tuple(_parse_unit(each.strip()) for each in text.split(","))
    if len(units) == 1:
        raise ValueError("names one unit, but a forward pass is divided among two or more")
    if units[0].kind != "cpu":
        raise ValueError(
            f"begins with {units[0]}, but the first unit runs all undivided work and must be "
            "CPU cores"
        )
    taken: set[tuple[str, int]] = set()
    for unit in units:
        for number in unit.numbers:
            if (unit.kind, number) in taken:
                raise ValueError(f"names {unit.kind}:{number} twice")
            taken.add((unit.kind, number))
    return units


def _parse_unit(text: str) -> UnitSpec:
    found = _UNIT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is neither cpu:CORE, cpu:FIRST-LAST nor cuda:NUMBER")
    if found[4]:
        return UnitSpec("cuda", (int(found[5]),))
    first, last = int(found[2]), int(found[3] or found[2])
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    return UnitSpec("cpu", tuple(range(first, last + 1)))
