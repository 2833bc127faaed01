"""Progress of a long stage: a bar on a terminal, occasional lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

LOG_LINES = 40
LOSS_SMOOTHING = 0.95


@dataclass(frozen=True, slots=True)
class StepsDone:
    """The number of steps done, and the last step's loss, if it has one."""

    step: int
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A named run of ``steps`` steps of ``step_tokens`` tokens each."""

    name: str
    steps: int
    step_tokens: int


def watch(console: Console, stage: Stage, work: Iterable[StepsDone]) -> None:
    """Run ``work`` to its end, showing tokens per second, smoothed loss and time left."""
    bars = Bars(
        TextColumn("{task.description:<16}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    )
    task = bars.add_task(stage.name, total=stage.steps, detail="")
    meter: _SpeedMeter | None = None
    with bars:
        for progress in work:
            if meter is None:
                meter = _SpeedMeter(stage.step_tokens, progress.step, time.monotonic())
                bars.reset(task, completed=progress.step, detail="")
            detail = meter.read(progress)
            bars.update(task, completed=progress.step, detail=detail)
            if not console.is_terminal and _is_logged(progress.step, stage.steps):
                console.print(f"{stage.name}: {progress.step}/{stage.steps}  {detail}")


def _is_logged(step: int, steps: int) -> bool:
    return step == steps or step % max(1, steps // LOG_LINES) == 0


@dataclass(slots=True)
class _SpeedMeter:
    """Speed since ``first_step``, which is above 1 in a resumed stage, and the smoothed loss."""

    step_tokens: int
    first_step: int
    started: float
    loss: float | None = None

    def read(self, progress: StepsDone) -> str:
        steps = progress.step - self.first_step
        speed = steps * self.step_tokens / (time.monotonic() - self.started) if steps else 0.0
        if progress.loss is None:
            return f"{speed:,.0f} tok/s"
        before = progress.loss if self.loss is None else self.loss
        self.loss = progress.loss + LOSS_SMOOTHING * (before - progress.loss)
        return f"{speed:,.0f} tok/s  loss {self.loss:.3f}"
