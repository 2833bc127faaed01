"""The parts that all commands share around their runs: signals, live view, final report."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import typer

from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.output_files import STANDARD_OUTPUT, check_different, check_writable
from specmesh.cli.printable import PrintableConsole, printable
from specmesh.cli.runner import explain
from specmesh.client import SpecmeshError
from specmesh.load.commands.options import ResultOptions
from specmesh.load.generators.fleet import Fleet
from specmesh.load.html.contents import page
from specmesh.load.html.document import write_page
from specmesh.load.results.machine import machine, versions
from specmesh.load.results.report import Point, RunReport, RunSetting, SearchReport, SweepReport
from specmesh.load.runs.conduct import NO_STRATEGIES, FinishedRun, RunPlan, conduct
from specmesh.load.runs.live import LiveView
from specmesh.load.runs.servers import CannotScrape
from specmesh.load.transports.masking import masked
from specmesh.load.transports.mesh_transport import MeshDoor
from specmesh.load.transports.transport import RequestFailed, ServerAddress
from specmesh.load.workload.plan import Workload

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = "INTERRUPTED"
_STATUSES = {
    "UNAVAILABLE": ExitStatus.UNAVAILABLE,
    "CONNECTION": ExitStatus.UNAVAILABLE,
    NO_STRATEGIES: ExitStatus.USAGE,
    _INTERRUPTED: ExitStatus.INTERRUPTED,
}


class RunSession:
    """The consecutive runs of a command. ``stopped`` is set once the user has ended them, and
    ``failure`` once one could not be made, as when the server is gone."""

    def __init__(self, results: ResultOptions) -> None:
        json_file, html_file = results.json_, results.html
        check_writable(json_file, "--json")
        check_writable(html_file, "--html")
        check_different({"--json": json_file, "--html": html_file})
        self._json_file = json_file
        self._html_file = html_file
        self.console = PrintableConsole(stderr=json_file == STANDARD_OUTPUT, highlight=False)
        self.stopped = False
        self.failure: RequestFailed | CannotScrape | None = None
        self._running: asyncio.Task[FinishedRun] | None = None
        self._fleet: Fleet | None = None
        self._unwritten = False

    async def run(self, plan: RunPlan, title: str) -> FinishedRun:
        """Run ``plan`` with a live view; the first Ctrl-C ends it early, with its result.

        Raises RequestFailed also if nothing has been sent by then.
        """

        def sending(fleet: Fleet) -> None:
            self._fleet = fleet

        try:
            with LiveView(self.console, title, plan.workload.extent) as view:
                self._running = asyncio.create_task(conduct(plan, view.heard, sending))
                # They stay after the run: a signal between two runs ends the next one, and costs
                # none of the finished ones.
                for each in _SIGNALS:
                    asyncio.get_running_loop().add_signal_handler(each, self._stop)
                return await self._running
        except asyncio.CancelledError:
            if not self.stopped:
                raise
            raise RequestFailed(_INTERRUPTED, "interrupted before anything was sent") from None
        finally:
            self._running = self._fleet = None

    def _stop(self) -> None:
        """End the run under way early; a second signal ends the process."""
        self.stopped = True
        if self._fleet is not None:
            self._fleet.stop()
        elif self._running is not None:
            self._running.cancel()
        for each in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(each)

    @contextmanager
    def adding_to(self, points: Sequence[Point]) -> Iterator[None]:
        """End the block at a run that can't be made, unless it is the first: the ``points`` so far
        are still to be reported."""
        try:
            yield
        except (RequestFailed, CannotScrape) as failure:
            if not points:
                raise
            if not self.stopped:
                self.failure = failure

    def status(self, found: ExitStatus) -> ExitStatus:
        """Return the status of a command whose runs came to ``found``. Raises ``failure``."""
        if self.failure is not None:
            raise self.failure
        if self._unwritten:
            return ExitStatus.FAILED
        return ExitStatus.INTERRUPTED if self.stopped else found

    def setting(self, plan: RunPlan) -> RunSetting:
        """Return the settings that the report lists for a run of ``plan``.

        ``plan`` is the one of ``FinishedRun``, which names the model.
        """
        return RunSetting(
            command=shlex.join(["specmesh", "load", *map(masked, sys.argv[1:])]),
            server=plan.door.description,
            model=plan.door.model,
            chat=plan.door.chat,
            seed=plan.workload.seed,
            processes=plan.processes,
            workload=described(plan.workload),
            versions=versions(),
            machine=machine(),
        )

    def write(self, report: RunReport | SweepReport | SearchReport) -> None:
        """Write the report to the files of ``--json`` and ``--html``."""
        found = asdict(report)
        if self._json_file is not None:
            text = json.dumps(found, allow_nan=False)
            with self.writing():
                if self._json_file == STANDARD_OUTPUT:
                    typer.echo(text)
                else:
                    self._json_file.write_text(text + "\n")
        if self._html_file is not None:
            with self.writing():
                write_page(self._html_file, page([("", found)]))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Tell the user if the block can't write its file, which costs no other file and nothing
        of what is shown."""
        try:
            yield
        except OSError as error:
            typer.echo(f"specmesh: {error}", err=True)
            self._unwritten = True


def in_words(failure: Exception | None) -> str:
    """Return a failure as people and reports are told it; empty for none."""
    if isinstance(failure, RequestFailed):
        return f"{failure} [{failure.reason}]"
    return "" if failure is None else str(failure)


def carry_out(
    work: Callable[[], Coroutine[Any, Any, int]], server: ServerAddress | None = None
) -> None:
    """Run the coroutine of a command, which calls ``server``, and exit with its status.

    An expected failure is reported as one line on standard error, and an exit status.
    """
    try:
        status = asyncio.run(work())
    except RequestFailed as failure:
        status, explained = _explained(failure, server)
        typer.echo(f"specmesh: {printable(explained)}", err=True)
    except (CannotScrape, OSError) as error:
        typer.echo(f"specmesh: {error}", err=True)
        status = ExitStatus.FAILED
    except KeyboardInterrupt:
        status = ExitStatus.INTERRUPTED
    raise typer.Exit(status)


def _explained(failure: RequestFailed, server: ServerAddress | None) -> tuple[int, str]:
    """Return the exit status for ``failure`` and a line about it: as of all commands, where a mesh
    was called."""
    if isinstance(failure.__cause__, SpecmeshError) and isinstance(server, MeshDoor):
        return explain(failure.__cause__, server.targets, server.connection.get("tls"))
    return _STATUSES.get(failure.reason, ExitStatus.FAILED), in_words(failure)


def described(workload: Workload) -> dict[str, Any]:
    """Return the workload without the contents of files."""
    return {
        "arrivals": _summary(workload.arrivals),
        "conversations": _summary(workload.conversations),
        "extent": asdict(workload.extent),
        "variations": [asdict(each) for each in workload.variations],
        "output_tokens": workload.output_tokens and _summary(workload.output_tokens),
        "ignore_end": workload.ignore_end,
        "think_s": workload.think_s,
        "cancelled_share": workload.cancelled_share,
        "cancelled_after": workload.cancelled_after and _summary(workload.cancelled_after),
        "timeout_s": workload.timeout_s,
        "words_per_token": round(workload.words_per_token, 4),
    }


def _summary(value: Any) -> dict[str, Any]:
    """Return the kind and the fields of a dataclass, with the length in place of each sequence."""
    found: dict[str, Any] = {"kind": value.kind}
    for name, each in asdict(value).items():
        found[name] = len(each) if isinstance(each, list | tuple) else each
    return found
