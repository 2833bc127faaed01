"""The report of ``specmesh bench vllm``, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from specmesh.bench.peer.plan import PeerPlan
from specmesh.bench.peer.rounds import VLLM, PeerCell
from specmesh.cli.tables import WholeTable
from specmesh.tools.kit.tables import make_table


def as_json(plan: PeerPlan, cells: Sequence[PeerCell]) -> dict[str, Any]:
    """Return one JSON object, with medians over the rounds."""
    return {
        "setting": asdict(plan),
        "cells": [
            {
                "temperature": cell.temperature,
                "streams": cell.streams,
                "vllm_tokens_per_s": round(median(cell.vllm), 1),
                "strategies": {
                    name: {
                        "tokens_per_s": round(median(speeds), 1),
                        "ratio": round(cell.ratio(name), 3),
                    }
                    for name, speeds in cell.strategies.items()
                },
                "different_texts": cell.num_different,
                "vllm_cached_tokens": cell.num_cached_tokens,
            }
            for cell in cells
        ],
    }


def tables(plan: PeerPlan, cells: Sequence[PeerCell]) -> Iterator[WholeTable]:
    """Return a table for each temperature."""
    for temperature in plan.temperatures:
        title = f"Tokens per second at temperature {temperature:g}, and the mesh over vLLM"
        table = make_table(title, "streams", VLLM, *plan.strategies)
        for cell in cells:
            if cell.temperature == temperature:
                table.add_row(
                    str(cell.streams),
                    f"{median(cell.vllm):.0f}",
                    *(
                        f"{median(speeds):.0f}, {cell.ratio(name):.2f} x"
                        for name, speeds in cell.strategies.items()
                    ),
                )
        told = [cell for cell in cells if cell.temperature == temperature]
        if any(cell.num_different for cell in told):
            differ = sum(cell.num_different or 0 for cell in told)
            table.caption = f"{differ} of {sum(cell.streams for cell in told)} texts differ"
        yield table
