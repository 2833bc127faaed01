"""Progress of a long stage: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LOG_LINES = 40
LOSS_SMOOTHING = 0.95


class Report(Protocol):
    """Told after each step how many are done, and the step's loss if there is one."""

    def __call__(self, step: int, loss: float | None = None, /) -> None: ...


@contextmanager
def stage(console: Console, name: str, steps: int, step_tokens: int) -> Iterator[Report]:
    """Show a stage of ``steps`` steps of ``step_tokens`` tokens; yields what to report to."""
    bars = Progress(
        TextColumn("{task.description:<16}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    )
    task = bars.add_task(name, total=steps, detail="")
    first: tuple[int, float] | None = None
    smooth: float | None = None

    def report(step: int, loss: float | None = None, /) -> None:
        nonlocal first, smooth
        if first is None:  # a resumed stage: the speed counts from here
            first = (step, time.monotonic())
            bars.reset(task, completed=step)
        if loss is not None:
            smooth = loss + LOSS_SMOOTHING * ((loss if smooth is None else smooth) - loss)
        elapsed = time.monotonic() - first[1]
        rate = (step - first[0]) * step_tokens / elapsed if step > first[0] else 0.0
        detail = f"{rate:,.0f} tok/s" + ("" if smooth is None else f"  loss {smooth:.3f}")
        bars.update(task, completed=step, detail=detail)
        if not console.is_terminal and (step % max(1, steps // LOG_LINES) == 0 or step == steps):
            console.print(f"{name}: {step}/{steps}  {detail}")

    with bars:
        yield report
