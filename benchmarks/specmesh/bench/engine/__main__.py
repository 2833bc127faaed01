"""``specmesh bench engine`` or ``python -m specmesh.bench.engine``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from specmesh import models
from specmesh.bench.engine.device import measure as on_device
from specmesh.bench.engine.device import report as device_report
from specmesh.bench.engine.device.beside import measure_beside
from specmesh.bench.engine.device.measure import DevicePlan
from specmesh.bench.engine.device.shapes import ModelShape
from specmesh.bench.engine.plan import EnginePlan
from specmesh.bench.engine.report import as_json, show
from specmesh.bench.engine.run import measure
from specmesh.cli.local.process import StartError
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.model import batch_on
from specmesh.inference.models.vllm.versions import check_versions
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.options import Device, Dtype, Json, Model, ModelDtype, Threads


class TimedBackend(StrEnum):
    """The backends whose forwards are timed."""

    TRANSFORMERS = "transformers"
    VLLM = "vllm"


TOKENS = 64
ROUNDS = 1

app = App()


@app.command()
def main(
    backend: Annotated[
        TimedBackend,
        typer.Option(
            help="Compare specmesh's engine with transformers' generate, or vLLM as a verifier "
            "with its own decoding steps and specmesh's engine (in vLLM's environment)."
        ),
    ] = TimedBackend.TRANSFORMERS,
    model: Model = None,
    dtype: ModelDtype = Dtype.FLOAT32,
    device: Device = "cpu",
    threads: Threads = 2,
    streams: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Number of concurrent streams, and size of generate's batches. May be repeated; "
            "1 is always included.",
            show_default="1, 8 and 32",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=2, help="Length of each answer, in tokens.", show_default=str(TOKENS)),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of timed rounds; the fastest counts, for ratios the median.",
            show_default=str(ROUNDS),
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the prompts' lengths and texts.")] = 0,
    random: Annotated[
        ModelShape | None,
        typer.Option(
            help="Measure the engine with random weights of this shape instead of a model's, "
            "against the speed of the device's memory."
        ),
    ] = None,
    beside: Annotated[
        list[ModelShape] | None,
        typer.Option(
            help="With --random, only measure its passes while processes with models of these "
            "shapes run passes on the same device. May be repeated."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Time the inference engine against transformers' generate on the same prompts, greedily.

    Answers continue past an end of text. In float32, exits with 1 if any of ours differ.
    """
    if beside and random is None:
        raise typer.BadParameter("needs --random", param_hint="--beside")
    if random is not None and (model is not None or backend is TimedBackend.VLLM):
        raise typer.BadParameter("excludes --model and --backend vllm", param_hint="--random")
    if random is not None and beside:
        with _exit_status():
            _beside([random, *beside], dtype.value, device, seed, json_=json_)
        return
    if random is not None:
        device_plan = DevicePlan(
            shape=random,
            dtype=dtype.value,
            device=device,
            streams=tuple(sorted({1, *(streams or (8, 32))})),
            num_tokens=tokens or TOKENS,
            rounds=rounds or ROUNDS,
            seed=seed,
        )
        with _exit_status():
            _on_device(device_plan, json_=json_)
        return
    if backend is TimedBackend.VLLM:
        _check_streams(streams or (), device)
        for option, value in (("--tokens", tokens), ("--rounds", rounds)):
            if value is not None:
                raise typer.BadParameter("has no effect with --backend vllm", param_hint=option)
    plan = EnginePlan(
        model=str(models.path(models.TARGET)) if model is None else model,
        dtype=dtype.value,
        device=device,
        threads=threads,
        streams=tuple(sorted({1, *(streams or (8, 32))})),
        num_tokens=tokens or TOKENS,
        rounds=rounds or ROUNDS,
        seed=seed,
    )
    with _exit_status():
        if backend is TimedBackend.VLLM:
            _vllm(plan, json_=json_)
        else:
            _ours(plan, json_=json_)


def _check_streams(streams: Sequence[int], device: str) -> None:
    """Raise BadParameter for more streams than share a step of vLLM's: the time of a step would be
    that of a part of them."""
    most = batch_on(device.partition(":")[0])
    if max(streams, default=1) > most:
        raise typer.BadParameter(
            f"a step of vLLM has at most {most} calls on this device", param_hint="--streams"
        )


def _ours(plan: EnginePlan, *, json_: bool) -> None:
    measured = measure(plan, Console(stderr=True))
    if json_:
        typer.echo(json.dumps(as_json(plan, measured)))
    else:
        show(plan, measured, Console())
    if plan.dtype == Dtype.FLOAT32 and not measured.identical:
        raise typer.Exit(1)


def _on_device(plan: DevicePlan, *, json_: bool) -> None:
    found = on_device.measure(plan)
    if json_:
        typer.echo(json.dumps(device_report.as_json(plan, found)))
    else:
        device_report.show(plan, found, Console())


def _beside(
    shapes: Sequence[ModelShape], dtype: str, device: str, seed: int, *, json_: bool
) -> None:
    found = measure_beside(shapes, dtype, device, seed)
    if json_:
        typer.echo(json.dumps(device_report.beside_json(found)))
    else:
        device_report.show_beside(found, Console())


def _vllm(plan: EnginePlan, *, json_: bool) -> None:
    check_versions()
    from specmesh.bench.engine.vllm import measure, report

    found, waits = asyncio.run(measure.measure(plan, Console(stderr=True)))
    if json_:
        typer.echo(json.dumps(report.as_json(plan, found, waits)))
    else:
        report.show(plan, found, waits, Console())


@contextmanager
def _exit_status() -> Iterator[None]:
    """Exit with the status of an error."""
    try:
        yield
    except (ModelNotLoadable, StartError) as error:
        typer.echo(f"specmesh: {error}", err=True)
        raise typer.Exit(2) from error
    except BrokenProcessPool as error:
        typer.echo("specmesh: one of the processes was killed; is there enough memory?", err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error


if __name__ == "__main__":
    app(prog_name="specmesh bench engine")
