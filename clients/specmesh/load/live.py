"""What a run looks like while it goes on, in a terminal."""

from __future__ import annotations

import time
from collections import Counter, deque
from statistics import median
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from specmesh.load.durations import written
from specmesh.load.messages import Progress

_WINDOW_S = 5.0
_REFRESH_PER_S = 2


class LiveView:
    """Shows the last seconds of a run, on a terminal alone."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._recent: deque[tuple[float, Progress]] = deque()
        self._under_way: dict[int, int] = {}
        self._num_ended = 0
        self._failures: Counter[str] = Counter()
        self._began_s = time.monotonic()
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
        )
        self._shown = console.is_terminal

    def __enter__(self) -> Self:
        if self._shown:
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            self._live.stop()

    def heard(self, worker: int, progress: Progress) -> None:
        """Take in what a worker tells."""
        now_s = time.monotonic()
        self._under_way[worker] = progress.num_under_way
        self._num_ended += progress.num_ended
        self._failures += progress.failures
        self._recent.append((now_s, progress))
        while now_s - self._recent[0][0] > _WINDOW_S:
            self._recent.popleft()

    def _render(self) -> Text:
        now_s = time.monotonic()
        within_s = min(_WINDOW_S, max(now_s - self._began_s, 1.0))
        recent = [progress for _, progress in self._recent]
        ttfts = [each for progress in recent for each in progress.ttfts_s]
        lines = [
            f"{self._title}  {now_s - self._began_s:.0f} s",
            f"{sum(self._under_way.values()):>7} under way {self._num_ended:>9} ended"
            f" {sum(self._failures.values()):>7} failed",
            f"{sum(each.num_ended for each in recent) / within_s:>7.1f} ended/s"
            f" {sum(each.num_tokens for each in recent) / within_s:>11.1f} tokens/s"
            f"   TTFT p50 {written(median(ttfts)) if ttfts else '-'}",
        ]
        lines += [f"{count:>7} {reason}" for reason, count in self._failures.most_common(3)]
        return Text("\n".join(lines))
