"""Progress of long work on standard error: a bar on a terminal, else a line every five seconds.

Nothing is drawn by a thread on a terminal: drawing takes the core that a client may need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from specmesh.cli.silence import lines

Item = TypeVar("Item")


@contextmanager
def progress(what: str, total: int, console: Console | None = None) -> Iterator[Callable[[], None]]:
    """Show how many of ``total`` steps are done; the block calls what it is given after each."""
    console = console or Console(stderr=True)
    if console.is_terminal:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(
            TextColumn("{task.description}"),
            *columns,
            console=console,
            auto_refresh=False,
            transient=True,
        ) as bar:
            task = bar.add_task(what, total=total)
            yield lambda: bar.update(task, advance=1, refresh=True)
        return
    num_done = 0

    def advance() -> None:
        nonlocal num_done
        num_done += 1

    with lines(lambda elapsed_s: steps_line(what, num_done, total, elapsed_s), console):
        yield advance


def tracked(results: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield ``results`` as they come, and show how many of ``total`` have."""
    with progress(what, total) as advance:
        for result in results:
            yield result
            advance()


def steps_line(what: str, num_done: int, total: int, elapsed_s: float) -> str:
    """Say how far work has got and, once a tenth is done, how long the rest takes if it goes on
    like this: the first steps take longer than others."""
    said = f"{what}: {num_done} of {total} after {duration(elapsed_s)}"
    if not total / 10 <= num_done < total:
        return said
    return f"{said}, about {duration(elapsed_s / num_done * (total - num_done))} left"


def duration(seconds: float) -> str:
    """Write ``seconds`` as people say them: 40 s, 2 min 5 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
