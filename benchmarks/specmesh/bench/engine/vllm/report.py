"""The report of the vLLM benchmark, as text in 80 columns and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from specmesh.bench.engine.plan import PROMPT_TOKENS, EnginePlan
from specmesh.bench.engine.vllm.measure import Verifications, VerificationTimes
from specmesh.bench.engine.vllm.sessions import NUM_DRAFT_TOKENS, ROUNDS
from specmesh.bench.engine.vllm.waiting import PrefixWaits
from specmesh.tools.kit.tables import make_table


def as_json(plan: EnginePlan, found: Verifications, waits: PrefixWaits) -> dict[str, Any]:
    """Return one JSON object, with times in ms by number of concurrent sessions and of draft
    tokens."""
    return {
        "setting": {
            "backend": "vllm",
            **{name: value for name, value in asdict(plan).items() if name in _SETTING},
            "prompt_tokens": PROMPT_TOKENS,
            "rounds": ROUNDS,
        },
        "verifications": {
            str(sessions): {str(drafted): _fields(each) for drafted, each in row.items()}
            for sessions, row in found.items()
        },
        "waits": asdict(waits),
    }


_SETTING = {"model", "dtype", "device", "threads", "streams", "seed"}


def _fields(each: VerificationTimes) -> dict[str, float]:
    return {
        **asdict(each),
        "of_own_step": each.of_own_step,
        "of_ours": each.vllm_ms / each.ours_ms,
        "service_ms": each.called_ms - each.vllm_ms,
    }


def show(plan: EnginePlan, found: Verifications, waits: PrefixWaits, console: Console) -> None:
    """Print the same as tables."""
    console.print(
        f"{Path(plan.model).name}, {plan.dtype} on {plan.device}, threads: {plan.threads}; "
        f"prompts of {PROMPT_TOKENS[0]} to {PROMPT_TOKENS[1]} tokens",
        highlight=False,
    )
    for sessions, row in found.items():
        title = f"A verification for each of {sessions} concurrent sessions, in ms"
        table = make_table(title, "draft tokens", *map(str, NUM_DRAFT_TOKENS))
        for name, field in (
            ("vLLM's own decoding step", "own_step_ms"),
            ("vLLM", "vllm_ms"),
            ("vLLM over gRPC", "called_ms"),
            ("our engine", "ours_ms"),
        ):
            table.add_row(name, *(f"{getattr(each, field):.1f}" for each in row.values()))
        ratios = [f"{each.of_own_step:.2f}x" for each in row.values()]
        table.add_row("vLLM, of its own step", *ratios)
        console.print(table)
    table = make_table(
        f"A verification while a prefix of {waits.num_prefix_tokens} tokens is read, over gRPC",
        "ms",
        "median",
        "maximum",
    )
    for name, *times in (
        ("queued", waits.queued_ms, waits.longest_queued_ms),
        ("answered", waits.answered_ms, waits.longest_answered_ms),
    ):
        table.add_row(name, *(f"{each:.1f}" for each in times))
    console.print(table)
    console.print(
        f"Alone it takes {waits.alone_ms:.1f} ms, and a step of the prefix {waits.step_ms:.1f}.",
        highlight=False,
    )
