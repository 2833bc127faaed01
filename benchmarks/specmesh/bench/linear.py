"""``specmesh bench linear``: linear layers in float32 by the rows of a forward, beside libraries.

Layers of one shape that together take ``--megabytes`` are computed one after the other, so that
their weights come from memory as in a forward. By turns, they are computed from panels by our own
code, by MKL from plain weights, and by oneDNN from weights in its own layout; and the memory is
read without computing anything, which is the floor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import linear

from specmesh.cli.tables import WholeTable
from specmesh.inference.models.cpu.linear import TYPICAL_TOKENS
from specmesh.inference.models.cpu.panel_linear import PanelLinear, best_tile
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Json
from specmesh.tools.kit.tables import table_of

SHAPES = ("320x1728", "2048x2048")
ROWS = (1, 2, 3, 5, 8, 16, 32, 128, 512)


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Medians in ms of all layers of one shape, with ``rows`` inputs. ``read`` is the sum of their
    weights, ``ratio`` the median over the turns of our time over that of the faster library."""

    features: int
    outputs: int
    rows: int
    panels: float
    mkl: float
    onednn: float
    read: float
    ratio: float


def measure(shape: str, row_counts: Sequence[int], size: int, tries: int) -> Iterator[LayerTimes]:
    """Yield the times of layers of ``shape`` that take ``size`` bytes together. Raises
    ``BadParameter`` for a shape that is none, or where this processor has no code of ours."""
    num_features, num_outputs = _parsed(shape)
    tile = best_tile()
    if tile is None:
        raise typer.BadParameter("this processor has neither AVX2 nor AVX-512")
    count = max(1, size // (4 * num_features * num_outputs))
    plain = [nn.Linear(num_features, num_outputs, bias=False) for _ in range(count)]
    weights = [layer.weight.detach() for layer in plain]
    # Of its own: what two ways read in a turn would be in a cache for the second one.
    others = [each.clone() for each in weights]
    laid_out = [torch.ops.mkldnn._reorder_linear_weight(each, TYPICAL_TOKENS) for each in weights]
    panels = [PanelLinear(layer, tile) for layer in plain]
    for rows in row_counts:
        inputs = torch.randn(1, rows, num_features)
        ways: list[Callable[[], object]] = [
            partial(_each, lambda layer, inputs: layer(inputs), panels, inputs),
            partial(_each, lambda weight, inputs: linear(inputs, weight), weights, inputs),
            partial(_each, _by_onednn, laid_out, inputs),
            partial(_each, lambda weight, _: weight.sum(), others, inputs),
        ]
        turns = [[_ms(way) for way in ways] for _ in range(tries + 1)][1:]
        ours, mkl, onednn, read = (median(each) for each in zip(*turns, strict=True))
        ratio = median(turn[0] / min(turn[1:3]) for turn in turns)
        yield LayerTimes(num_features, num_outputs, rows, ours, mkl, onednn, read, ratio)


def _each(way: Callable[[Any, Tensor], object], layers: Sequence[Any], inputs: Tensor) -> None:
    for layer in layers:
        way(layer, inputs)


def _by_onednn(weight: Tensor, inputs: Tensor) -> Tensor:
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, None, "none", [], "")
    return outputs


def _ms(way: Callable[[], object]) -> float:
    began = time.perf_counter()
    way()
    return 1000 * (time.perf_counter() - began)


def _parsed(shape: str) -> tuple[int, int]:
    features, _, outputs = shape.partition("x")
    if not (features.isdigit() and outputs.isdigit() and int(features) and int(outputs)):
        raise typer.BadParameter(f"--shape {shape} is not FEATURESxOUTPUTS, as in 2048x2048")
    return int(features), int(outputs)


app = App()


@app.command()
def main(
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="Shape of the layers, FEATURESxOUTPUTS. May be repeated.",
            show_default=", ".join(SHAPES),
        ),
    ] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Number of rows of a forward. May be repeated.",
            show_default=", ".join(map(str, ROWS)),
        ),
    ] = None,
    megabytes: Annotated[int, typer.Option(min=1, help="Size of all layers of a shape.")] = 48,
    threads: Annotated[int, typer.Option(min=1, help="Number of threads.")] = 1,
    tries: Annotated[int, typer.Option(min=1, help="Turns; medians count.")] = 20,
    json_: Json = False,
) -> None:
    """Time linear layers in float32 by the rows of a forward: our own code beside MKL and oneDNN,
    and beside reading the weights."""
    torch.set_num_threads(threads)
    with torch.inference_mode():
        times = [
            each
            for name in shape or SHAPES
            for each in measure(name, rows or ROWS, megabytes << 20, tries)
        ]
    if json_:
        typer.echo(json.dumps({"threads": threads, "rows": [asdict(each) for each in times]}))
        return
    Console().print(table(times))


def table(times: Sequence[LayerTimes]) -> WholeTable:
    """Return the times as a table."""
    columns: list[tuple[str, Callable[[LayerTimes], str]]] = [
        ("shape", lambda row: f"{row.features} x {row.outputs}"),
        ("rows", lambda row: str(row.rows)),
        ("panels", lambda row: f"{row.panels:.2f}"),
        ("MKL", lambda row: f"{row.mkl:.2f}"),
        ("oneDNN", lambda row: f"{row.onednn:.2f}"),
        ("read", lambda row: f"{row.read:.2f}"),
        ("ratio", lambda row: f"{row.ratio:.2f}"),
    ]
    return table_of("Linear layers, ms", times, columns)


if __name__ == "__main__":
    app(prog_name="specmesh bench linear")
