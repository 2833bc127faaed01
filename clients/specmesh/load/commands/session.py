"""What all commands do around their runs: signals, live view, the report at the end."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from specmesh.cli.exit_status import ExitStatus
from specmesh.load.generators.fleet import Fleet
from specmesh.load.html.contents import page
from specmesh.load.html.document import write_page
from specmesh.load.results.machine import machine, versions
from specmesh.load.results.report import RunReport, RunSetting, SearchReport, SweepReport
from specmesh.load.runs.conduct import NO_STRATEGIES, FinishedRun, RunPlan, conduct
from specmesh.load.runs.live import LiveView
from specmesh.load.runs.servers import CannotScrape
from specmesh.load.transports.transport import RequestFailed
from specmesh.load.workload.plan import Workload

STANDARD_OUTPUT = Path("-")
_STATUSES = {
    "UNAVAILABLE": ExitStatus.UNAVAILABLE,
    "CONNECTION": ExitStatus.UNAVAILABLE,
    NO_STRATEGIES: ExitStatus.USAGE,
}


class RunSession:
    """A command's runs, one after the other. ``stopped`` says that the user wants no more."""

    def __init__(self, json_file: Path | None, html_file: Path | None) -> None:
        check_writable(json_file, "--json")
        check_writable(html_file, "--html")
        self._json_file = json_file
        self._html_file = html_file
        self.console = Console(stderr=json_file == STANDARD_OUTPUT, highlight=False)
        self.stopped = False
        self._fleet: Fleet | None = None

    async def run(self, plan: RunPlan, title: str) -> FinishedRun:
        """Run ``plan`` with a live view; the first Ctrl-C ends it early, with its result."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)

        def stop() -> None:
            self.stopped = True
            if self._fleet is not None:
                self._fleet.stop()
            for each in signals:
                loop.remove_signal_handler(each)

        def made(fleet: Fleet) -> None:
            self._fleet = fleet

        for each in signals:
            loop.add_signal_handler(each, stop)
        try:
            with LiveView(self.console, title, plan.workload.extent) as view:
                return await conduct(plan, view.heard, made)
        finally:
            self._fleet = None
            for each in signals:
                loop.remove_signal_handler(each)

    def setting(self, plan: RunPlan) -> RunSetting:
        """What the report says of a run of ``plan``, as ``FinishedRun`` has it."""
        return RunSetting(
            command=shlex.join(["specmesh", "load", *sys.argv[1:]]),
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
        """Write the report where ``--json`` and ``--html`` say. Raises OSError."""
        found = asdict(report)
        if self._json_file is not None:
            text = json.dumps(found, allow_nan=False)
            if self._json_file == STANDARD_OUTPUT:
                typer.echo(text)
            else:
                self._json_file.write_text(text + "\n")
        if self._html_file is not None:
            write_page(self._html_file, page([("", found)]))


def check_writable(file: Path | None, option: str) -> None:
    """Raise BadParameter now if ``file`` has no folder to be in, and not after a long run."""
    if file is not None and not file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}", param_hint=option)


def carry_out(work: Callable[[], Coroutine[Any, Any, int]]) -> None:
    """Run a command's coroutine; what it can't do is one line, and an exit status."""
    try:
        status = asyncio.run(work())
    except RequestFailed as failure:
        typer.echo(f"specmesh: {failure} [{failure.reason}]", err=True)
        status = _STATUSES.get(failure.reason, ExitStatus.FAILED)
    except (CannotScrape, OSError) as error:
        typer.echo(f"specmesh: {error}", err=True)
        status = ExitStatus.FAILED
    except KeyboardInterrupt:
        status = ExitStatus.INTERRUPTED
    raise typer.Exit(status)


def described(workload: Workload) -> dict[str, Any]:
    """The workload without what files hold."""
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
    """The kind and the fields of a dataclass; long ones by their length."""
    found: dict[str, Any] = {"kind": value.kind}
    for name, each in asdict(value).items():
        found[name] = len(each) if isinstance(each, list | tuple) else each
    return found
