"""The report of ``specmesh bench engine --random``, as text in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from specmesh.bench.engine.device.beside import Neighbour
from specmesh.bench.engine.device.measure import DevicePlan, OnDevice
from specmesh.bench.engine.plan import PROMPT_TOKENS, WIDTH_PREFIX_TOKENS
from specmesh.tools.kit.tables import make_table, table_of


def as_json(plan: DevicePlan, found: OnDevice) -> dict[str, Any]:
    """Return one JSON object; times are in ms."""
    one = found.token_ms[1]
    return {
        "setting": asdict(plan),
        **asdict(found),
        "floor_ms": found.floor_ms,
        "share_of_floor": found.floor_ms / one,
        "over_generate": found.generate_ms / one,
        "speedup_over_one_stream": {str(n): n * one / ms for n, ms in found.token_ms.items()},
        "width_ms": {str(width): ms for width, ms in found.width_ms.items()},
        "device_ms": {str(n): ms for n, ms in found.device_ms.items()},
        "token_ms": {str(n): ms for n, ms in found.token_ms.items()},
    }


def show(plan: DevicePlan, found: OnDevice, console: Console) -> None:
    """Print the same as tables."""
    one = found.token_ms[1]
    console.print(
        f"{plan.shape} with random weights, {plan.dtype} on {found.device_name}; "
        f"prompts of {PROMPT_TOKENS[1]} tokens, answers of {plan.num_tokens}\n"
        f"Memory copies {found.copy_bytes_per_s / 1e9:.0f} GB/s; reading "
        f"{found.weight_bytes / 1e9:.2f} GB of weights takes at least {found.floor_ms:.2f} ms\n"
        f"Compiled, captured and checked in {found.load_s:.0f} s\n"
        f"One stream: {one:.2f} ms per token, {found.floor_ms / one:.2f} of the floor's speed; "
        f"generate {found.generate_ms:.2f} ms ([bold]{found.generate_ms / one:.2f}x[/bold])",
        highlight=False,
    )
    if found.device_ms:
        passes = make_table(
            "Captured passes on the device alone", "tokens", *map(str, found.device_ms)
        )
        passes.add_row("ms", *(f"{ms:.2f}" for ms in found.device_ms.values()))
        console.print(passes)
    streams = make_table("Concurrent streams", "streams", *map(str, found.token_ms))
    streams.add_row("ms per token", *(f"{ms:.2f}" for ms in found.token_ms.values()))
    streams.add_row("tokens/s", *(f"{n / ms * 1e3:.0f}" for n, ms in found.token_ms.items()))
    streams.add_row("of one", *(f"{n * one / ms:.1f}x" for n, ms in found.token_ms.items()))
    console.print(streams)
    narrow = next(iter(found.width_ms.values()))
    title = f"A verification by width, below {WIDTH_PREFIX_TOKENS} tokens"
    widths = make_table(title, "tokens", *map(str, found.width_ms))
    widths.add_row("ms", *(f"{ms:.2f}" for ms in found.width_ms.values()))
    widths.add_row("of one", *(f"{ms / narrow:.2f}x" for ms in found.width_ms.values()))
    console.print(widths)


def beside_json(found: Sequence[Neighbour]) -> dict[str, Any]:
    """Return one JSON object for models in processes beside one another; times are in ms."""
    return {"beside": [asdict(each) for each in found]}


def show_beside(found: Sequence[Neighbour], console: Console) -> None:
    """Print the same as a table."""
    columns: list[tuple[str, Callable[[Neighbour], str]]] = [
        ("model", lambda each: each.shape),
        ("alone", lambda each: f"{each.alone_ms:.2f} ms"),
        ("together", lambda each: f"{each.together_ms:.2f} ms"),
        ("slower", lambda each: f"{each.together_ms / each.alone_ms:.2f}x"),
    ]
    console.print(table_of("A pass of 8 tokens, processes on one device", found, columns))
