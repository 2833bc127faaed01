"""What would have shortened an answer, as ``trace show`` tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from specmesh.cli.trace.tables import make_table
from specmesh.traces.trace import Trace

if TYPE_CHECKING:
    from specmesh.simulation.replay.what_if import WhatIf

_MIN_GAIN = 0.01
_NUM_SHOWN = 8


def shorter(trace: Trace) -> WhatIf | str:
    """The answer simulated with one thing changed; or why it can't be."""
    # The simulation runs the orchestrator's strategies, which a reader of traces may not have.
    try:
        from specmesh.simulation.replay.recorded import NotReplayable, recorded
        from specmesh.simulation.replay.what_if import what_if
    except ModuleNotFoundError as error:
        return f"needs {error.name}: pip install 'specmesh[simulation]'"
    try:
        return what_if(recorded(trace))
    except NotReplayable as error:
        return f"not known: {error}"


def shorter_lines(found: WhatIf | str) -> Iterator[RenderableType]:
    """A table of what saves time, and how far the simulation may be believed."""
    title = "what would have shortened it"
    if isinstance(found, str):
        yield Text(f"{title}: {found}", "dim")
        return
    measured, simulated = (f"{s * 1e3:.1f} ms" for s in (found.measured_s, found.simulated_s))
    yield Text(f"{title}: this request simulated again, with one thing changed")
    error = f"{found.error:+.1%}"
    yield Text(f"unchanged it takes {simulated} there, {measured} were measured: {error}", "dim")
    table = make_table("", "with", "ms", "")
    for each in found.predictions[:_NUM_SHOWN]:
        if each.gain > _MIN_GAIN:
            table.add_row(each.change.name, f"{each.duration_s * 1e3:.1f}", f"-{each.gain:.0%}")
    yield table if table.row_count else Text("nothing that was tried", "dim")


def shorter_json(found: WhatIf | str) -> dict[str, Any]:
    """The same for programs; durations in ms, gains as shares of the measured time."""
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
    }
