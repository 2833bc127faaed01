"""Simulation of the changes that would have shortened an answer, for ``trace show``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from specmesh.cli.tables import make_table
from specmesh.traces.trace import Trace

if TYPE_CHECKING:
    from specmesh.simulation.replay.what_if import WhatIf

_MIN_GAIN = 0.01
_NUM_SHOWN = 8

LIMIT_S = 10.0
"""Default time limit of the simulations; answers of a few hundred tokens take less."""


@dataclass(frozen=True, slots=True)
class Shorter:
    """The results of simulating the answer with one thing changed, or the reason why that is not
    possible. If ``interrupted`` by Ctrl-C, ``found`` has the results until then."""

    found: WhatIf | str
    interrupted: bool = False


def shorter(trace: Trace, limit_s: float = LIMIT_S) -> Shorter:
    """Simulate until all changes are done, ``limit_s`` seconds have passed, or Ctrl-C."""
    # The simulation runs the orchestrator's strategies, whose packages may not be installed here.
    try:
        from specmesh.simulation.replay.recorded import NotReplayable, recorded
        from specmesh.simulation.replay.what_if import Trials
    except ModuleNotFoundError as error:
        return Shorter(f"needs {error.name}: pip install 'specmesh[simulation]'")
    until_s = time.monotonic() + limit_s
    trials: Trials | None = None
    try:
        trials = Trials(recorded(trace))
        while trials.step() and time.monotonic() < until_s:
            pass
    except NotReplayable as error:
        return Shorter(f"not known: {error}")
    except KeyboardInterrupt:
        if trials is None or not trials.num_done:
            return Shorter("not known: interrupted", interrupted=True)
        return Shorter(trials.result(), interrupted=True)
    return Shorter(trials.result())


def shorter_lines(found: WhatIf | str) -> Iterator[RenderableType]:
    """Yield a table of the changes that save time, the simulation's error, and the changes for
    which there was no time."""
    title = "what would have shortened it"
    if isinstance(found, str):
        yield Text(f"{title}: {found}", "dim")
        return
    measured, simulated = (f"{s * 1e3:.1f} ms" for s in (found.measured_s, found.simulated_s))
    yield Text(f"{title}: a simulation of this request with one thing changed")
    error = f"{found.error:+.1%}"
    yield Text(
        f"unchanged it takes {simulated} in the simulation and took {measured}: {error}", "dim"
    )
    table = make_table("", "with", "ms", "")
    for each in found.predictions[:_NUM_SHOWN]:
        if each.gain > _MIN_GAIN:
            table.add_row(each.change.name, f"{each.duration_s * 1e3:.1f}", f"-{each.gain:.0%}")
    yield table if table.row_count else Text("none of the changes that were tried", "dim")
    if found.left_out:
        names = ", ".join(each.name for each in found.left_out)
        yield Text(f"no time was left to simulate: {names} (see --what-if-seconds)", "dim")
    elif found.num_runs < found.num_planned_runs:
        runs = f"{found.num_runs} times instead of {found.num_planned_runs}"
        yield Text(f"each was simulated {runs}, for want of time (see --what-if-seconds)", "dim")


def shorter_json(found: WhatIf | str) -> dict[str, Any]:
    """Return the same as JSON, with durations in ms and gains as shares of the measured time."""
    if isinstance(found, str):
        return {"unknown": found}
    return {
        "measured_ms": found.measured_s * 1e3,
        "simulated_ms": found.simulated_s * 1e3,
        "simulation_error": found.error,
        "predictions": [
            {"with": each.change.name, "ms": each.duration_s * 1e3, "gain": each.gain}
            for each in found.predictions
        ],
        "num_runs": found.num_runs,
        "num_planned_runs": found.num_planned_runs,
        "left_out": [each.name for each in found.left_out],
    }
