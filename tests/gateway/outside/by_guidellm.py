"""guidellm as a load generator: completions and chats, by number and by time. Nothing of it asks
the network: tokenizer and prompts are made here."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specmesh import models

NUM_REQUESTS = 16
NUM_STREAMS = 4
PROMPT_TOKENS = 32
COUNT = f"kind=max_requests,count={NUM_REQUESTS}"
CONCURRENT = f"kind=concurrent,streams={NUM_STREAMS}"

Report = dict[str, Any]
"""A benchmark as guidellm reports it."""


@dataclass(frozen=True, slots=True)
class Load:
    """What guidellm asks for, how often, and until when; each answer has ``output_tokens``."""

    path: str
    profile: str = CONCURRENT
    limit: str = COUNT
    output_tokens: int = 16
    stream: bool = True

    @property
    def is_timed(self) -> bool:
        """Whether time ends it, which cuts off the answers that run then."""
        return "max_duration" in self.limit


LOADS = (
    Load("/v1/completions"),
    Load("/v1/completions", stream=False),
    Load("/v1/chat/completions", profile="kind=poisson,rate=8"),
    Load("/v1/completions", limit="kind=max_duration,seconds=20", output_tokens=32),
)


def run(program: Path, url: str, folder: Path) -> None:
    """Run every load, and check what guidellm says of it."""
    for load in LOADS:
        run_load(program, url, folder, load)


def run_load(program: Path, url: str, folder: Path, load: Load) -> None:
    """Run ``load``, and check what guidellm says of it."""
    path = folder / "report.json"
    backend = f"kind=openai_http,target={url},model={models.TARGET},request_format={load.path}"
    data = f"prompt_tokens={PROMPT_TOKENS},output_tokens={load.output_tokens}"
    subprocess.run(
        [
            *(program, "run", "--disable-console"),
            *("--backend", f"{backend},stream={str(load.stream).lower()}"),
            *("--tokenizer", f"kind=hf_auto,model={models.path(models.TARGET)}"),
            *("--data", f"kind=synthetic_text,{data}"),
            *("--profile", load.profile),
            *("--constraint", load.limit),
            *("--output", f"kind=json,path={path}"),
        ],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=True,
    )
    report = json.loads(path.read_text())
    (benchmark,) = report["benchmarks"]
    check(load, benchmark)
    totals = benchmark["metrics"]["request_totals"]
    version = report["metadata"]["guidellm_version"]
    print(f"guidellm {version}, {load}:", json.dumps(totals), flush=True)  # noqa: T201


def check(load: Load, benchmark: Report) -> None:
    """Assert that every request was answered with what it asked for, or cut off by the time."""
    totals = benchmark["metrics"]["request_totals"]
    assert totals["errored"] == 0, benchmark["requests"]["errored"][0]
    if load.is_timed:
        assert totals["successful"] > 0, totals
        assert totals["incomplete"] <= NUM_STREAMS, totals
    else:
        assert (totals["successful"], totals["incomplete"]) == (NUM_REQUESTS, 0), totals
    for request in benchmark["requests"]["successful"]:
        check_answer(load, request)


def check_answer(load: Load, request: Report) -> None:
    """Assert that one answer has the tokens asked for, and came as a stream if it was to."""
    # In usage alone; without it guidellm would take its own count for the mesh's.
    assert request["cached_tokens"] is not None, request
    assert request["output_tokens"] == load.output_tokens, request
    # guidellm's tokenizer and the mesh's count a prompt alike; a chat's has its template as well.
    is_chat = "chat" in load.path
    assert (request["prompt_tokens"] > PROMPT_TOKENS) == is_chat, request
    assert is_chat or request["prompt_tokens"] == PROMPT_TOKENS, request
    first_ms = request["time_to_first_token_ms"]
    if load.stream:
        assert 0 < first_ms < 1e3 * request["request_latency"], request
        assert 1 < request["info"]["timings"]["token_iterations"] <= load.output_tokens, request
    else:
        assert first_ms is None, request
