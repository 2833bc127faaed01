"""The display of a run in progress: live in a terminal, otherwise a line now and then."""

from __future__ import annotations

import time
from collections import Counter, deque
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from specmesh.cli.printable import in_brief
from specmesh.cli.silence import lines
from specmesh.load.generators.messages import WorkerProgress
from specmesh.load.results.histograms import percentile_of
from specmesh.load.workload.durations import written
from specmesh.load.workload.plan import RunLength, RunPhase

_WINDOW_S = 5.0
_REFRESH_PER_S = 2


class LiveView:
    """A live view of the last seconds of a run on ``console``. If ``console`` is not a terminal,
    lines on ``elsewhere`` (by default standard error) say how far the run, which lasts ``extent``,
    is."""

    def __init__(
        self, console: Console, title: str, extent: RunLength, elsewhere: Console | None = None
    ) -> None:
        self._elsewhere = elsewhere or Console(stderr=True)
        self._saying = ExitStack()
        self._title = title
        self._extent = extent
        self._at_s: float | None = None
        self._recent: deque[tuple[float, WorkerProgress]] = deque()
        self._under_way: dict[int, int] = {}
        self._num_ended = 0
        self._failures: Counter[str] = Counter()
        self._live = Live(
            console=console,
            get_renderable=self.__rich__,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
        )
        self._shown = console.is_terminal

    def __enter__(self) -> Self:
        if self._shown:
            self._live.start()
        else:
            self._saying.enter_context(lines(lambda _: self._line(), self._elsewhere))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            self._live.stop()
        self._saying.close()

    def heard(self, worker: int, progress: WorkerProgress) -> None:
        """Record the progress of a worker."""
        now_s = time.monotonic()
        self._at_s = max(self._at_s or 0.0, progress.at_s)
        self._under_way[worker] = progress.num_under_way
        self._num_ended += progress.num_ended
        self._failures += progress.failures
        self._recent.append((now_s, progress))
        while now_s - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()

    def _line(self) -> str:
        if self._at_s is None:
            return f"{self._title}: connecting"
        return (
            f"{self._title}: {progress_of(self._extent, self._at_s)}; "
            f"{sum(self._under_way.values())} under way, {self._num_ended} ended, "
            f"{sum(self._failures.values())} failed"
        )

    def __rich__(self) -> Text:
        """Return the current text."""
        if self._at_s is None:
            return Text(f"{self._title}  connecting")
        within_s = min(_WINDOW_S, max(self._at_s, 1.0))
        recent = [progress for _, progress in self._recent]
        ttfts = [each for progress in recent for each in progress.ttfts_s]
        lines = [
            f"{self._title}  {progress_of(self._extent, self._at_s)}",
            f"{sum(self._under_way.values()):>7} under way {self._num_ended:>9} ended"
            f" {sum(self._failures.values()):>7} failed",
            f"{sum(each.num_ended for each in recent) / within_s:>7.1f} ended/s"
            f" {sum(each.num_tokens for each in recent) / within_s:>11.1f} tokens/s"
            f"   TTFT p50 {written(percentile_of(ttfts, 50)) if ttfts else '-'}",
        ]
        most = self._failures.most_common(3)
        lines += [f"{count:>7} {in_brief(reason)}" for reason, count in most]
        return Text("\n".join(lines))


def progress_of(extent: RunLength, at_s: float) -> str:
    """Return how far a run is, such as ``warm-up, 3 of 40 s``."""
    if extent.total_s is None:
        return f"{at_s:.0f} s"
    if at_s >= extent.total_s:
        return f"everything is sent; waiting for the last answers, {at_s - extent.total_s:.0f} s"
    phase = extent.phase(at_s)
    named = "" if phase is RunPhase.MEASURED else f"{phase.value}, "
    return f"{named}{at_s:.0f} of {extent.total_s:.0f} s"
