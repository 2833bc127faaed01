"""A picture of the speed-up by ``auto`` over the number of answers, beside published points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean
from typing import Final

from specmesh.bench.crowd.speeds import CellSpeeds

Points = Mapping[int, float]
"""Speed-ups by the number of answers."""

PUBLISHED: Final[Mapping[str, Points]] = {
    "SpecActor (published)": {1: 1.81, 8: 1.91, 32: 1.56, 64: 1.21},
    "DSpark (published)": {4: 2.36, 256: 1.50},
}
"""Speed-ups that others have published, for models and machines of their own."""
COLORS: Final = ("#1f6feb", "#8250df", "#1a7f37", "#0969da", "#6e7781", "#57606a", "#0a3069")
OTHERS: Final = ("#cf222e", "#bc4c00")
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 50, 250, 20, 45
"""Margins; the legend is in the right one."""
TEXT: Final = 'font-family="sans-serif" font-size="12" fill="#57606a"'


def speed_ups(cells: Sequence[CellSpeeds]) -> dict[str, Points]:
    """Return the speed-ups of ``auto`` over the target alone by target: the geometric means of all
    cells with as many answers."""
    found: dict[str, dict[int, list[float]]] = {}
    for each in cells:
        if each.auto is not None:
            of_target = found.setdefault(each.cell.forward, {})
            of_target.setdefault(each.cell.answers, []).append(each.auto / each.alone)
    return {
        f"auto, {target}": {number: geometric_mean(each) for number, each in sorted(own.items())}
        for target, own in found.items()
    }


def drawn(cells: Sequence[CellSpeeds]) -> str:
    """Return an SVG of the speed-ups in ``cells``, and of the published ones."""
    ours = speed_ups(cells)
    every = [ours, PUBLISHED]
    answers = {number for curves in every for points in curves.values() for number in points}
    scale = _Place(
        max(answers),
        max(ratio for curves in every for own in curves.values() for ratio in own.values()),
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *scale.axes(),
    ]
    styles = [*((color, "") for color in COLORS), *((color, "6 4") for color in OTHERS)]
    styles = styles[: len(ours)] + styles[len(COLORS) :]
    for row, ((name, points), (color, dashes)) in enumerate(
        zip({**ours, **PUBLISHED}.items(), styles, strict=False)
    ):
        lines += _curve(name, [scale.at(*each) for each in points.items()], row, color, dashes)
    return "\n".join([*lines, "</svg>", ""])


class _Place:
    """The place of a speed-up: answers on a logarithmic axis, ratios on a linear one from 0."""

    def __init__(self, most_answers: int, most: float) -> None:
        self._doublings = max(1, math.ceil(math.log2(most_answers)))
        self._most = math.ceil(most)

    def at(self, answers: int, ratio: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * math.log2(answers) / self._doublings
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * ratio / self._most
        return round(x, 1), round(y, 1)

    def axes(self) -> Iterator[str]:
        end = WIDTH - RIGHT
        for ratio in range(self._most + 1):
            y = self.at(1, ratio)[1]
            color = "#57606a" if ratio == 1 else "#d0d7de"
            yield f'<path d="M{LEFT} {y}H{end}" stroke="{color}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" {TEXT}>{ratio}×</text>'
        for doubling in range(self._doublings + 1):
            x = self.at(2**doubling, 0)[0]
            y = HEIGHT - BOTTOM + 18
            yield f'<text x="{x}" y="{y}" text-anchor="middle" {TEXT}>{2**doubling}</text>'
        x, y = (LEFT + end) / 2, HEIGHT - 8
        said = "answers at once; tokens per second over the target alone"
        yield f'<text x="{x}" y="{y}" text-anchor="middle" {TEXT}>{said}</text>'


def _curve(
    name: str, places: Sequence[tuple[float, float]], row: int, color: str, dashes: str
) -> Iterator[str]:
    path = "L".join(f"{x} {y}" for x, y in places)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    yield f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"{dashed}/>'
    for x, y in places:
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}"/>'
    x, y = WIDTH - RIGHT + 25, TOP + 15 + 22 * row
    yield f'<path d="M{x} {y}h24" stroke="{color}" stroke-width="2"{dashed}/>'
    yield f'<text x="{x + 32}" y="{y + 4}" {TEXT}>{name}</text>'
