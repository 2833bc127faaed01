"""vLLM as a client: its load generator, and its table of parameters, which ours has to have."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from specmesh import models
from specmesh.gateway.requests.parameters.other_servers import OTHER_SERVERS
from specmesh.gateway.requests.parameters.responses import RESPONSES
from specmesh.gateway.requests.parameters.tables import CHAT, COMPLETIONS
from specmesh.gateway.requests.tokenization import DETOKENIZE, TOKENIZE_CHAT, TOKENIZE_TEXT

PROGRAMS = Path(__file__).parent / "programs"
NUM_REQUESTS = 16
PROMPT_TOKENS = 32
OUTPUT_TOKENS = 16
NOT_OF_VLLM = {
    *("best_of", "metadata", "structural_tag", "guided_decoding_backend"),
    *("guided_choice", "guided_grammar", "guided_json", "guided_regex"),
    "guided_whitespace_pattern",
}
"""What we take as others' though vLLM has it no longer, or never had."""
TABLES = {
    "/v1/completions": set(COMPLETIONS),
    "/v1/chat/completions": set(CHAT),
    "/v1/responses": set(RESPONSES),
    "/tokenize": {*TOKENIZE_TEXT, *TOKENIZE_CHAT},
    "/detokenize": set(DETOKENIZE),
}
OTHERS_IN = {"/v1/completions", "/v1/chat/completions"}
"""The calls that the table of other servers' parameters is about."""
LIMITS = {
    "/v1/completions": {"max_tokens": 4},
    "/v1/chat/completions": {"max_tokens": 4},
    "/v1/responses": {"max_output_tokens": 4},
}
DRAWN = {"request_id"}
"""Parameters whose default is drawn, and which ask for something."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What ``vllm bench serve`` is told."""

    backend: str
    path: str
    options: tuple[str, ...] = ()


NEUTRAL = ("--top-k=-1", "--min-p=0", "--top-p=1", "--repetition-penalty=1")
BENCHES = (
    Bench("openai", "/v1/completions"),
    Bench("openai-chat", "/v1/chat/completions", NEUTRAL),
)


def run(python: Path, url: str, folder: Path) -> None:
    """Check its parameters and run every bench."""
    check_parameters(python, url)
    for bench in BENCHES:
        run_bench(python, url, folder, bench)


def check_parameters(python: Path, url: str) -> None:
    """Assert that our tables have all of them, and that a body with every default is answered."""
    listed = _output(python, PROGRAMS / "list_vllm_parameters.py", models.TARGET)
    bodies: list[tuple[str, dict[str, Any]]] = json.loads(listed.splitlines()[-1])
    for path, body in bodies:
        assert set(body) - TABLES[path] == set(), f"not in our table of {path}"
        sent = {name: value for name, value in body.items() if name not in DRAWN}
        answer = httpx2.post(f"{url}{path}", json={**sent, **LIMITS.get(path, {})}, timeout=60)
        assert answer.status_code == 200, answer.text
    known = {name for path, body in bodies if path in OTHERS_IN for name in body}
    assert set(OTHER_SERVERS) - known == NOT_OF_VLLM, "not in vLLM's tables"
    print(f"vLLM's parameters: {len(known)}, all known")  # noqa: T201


def run_bench(python: Path, url: str, folder: Path, bench: Bench) -> None:
    """Run ``bench``, and assert that each request was answered with as much as was asked for."""
    report = folder / "bench.json"
    subprocess.run(
        [
            *(python, PROGRAMS / "run_vllm_bench.py"),
            *("--backend", bench.backend, "--base-url", url, "--endpoint", bench.path),
            *("--model", models.TARGET, "--tokenizer", models.path(models.TARGET)),
            *("--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS)),
            *("--random-output-len", str(OUTPUT_TOKENS), "--ignore-eos"),
            *("--num-prompts", str(NUM_REQUESTS), "--max-concurrency", "4", *bench.options),
            *("--save-result", "--save-detailed", "--result-dir", folder),
            *("--result-filename", report.name),
        ],
        env=_offline(),
        check=True,
    )
    told = json.loads(report.read_text())
    assert (told["completed"], told["failed"]) == (NUM_REQUESTS, 0), told["errors"]
    assert told["output_lens"] == [OUTPUT_TOKENS] * NUM_REQUESTS, told["output_lens"]
    assert all(first_s > 0 for first_s in told["ttfts"]), told["ttfts"]
    assert all(told["generated_texts"]), told["generated_texts"]
    kept = ("completed", "failed", "total_input_tokens", "total_output_tokens", "mean_ttft_ms")
    print(f"vllm bench serve, {bench}:", json.dumps({name: told[name] for name in kept}))  # noqa: T201


def _output(*command: str | Path) -> str:
    return subprocess.run(
        command, env=_offline(), check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _offline() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
