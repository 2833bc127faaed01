"""lm-evaluation-harness: tasks that generate are answered as the mesh answers anybody, and those
that want the log-probabilities of a prompt are refused by name."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx2

from specmesh import models

PROMPTS = [f"def f{number}(x):" for number in range(6)]
UNTIL = "\n\n"
MAX_TOKENS = 16
COMPLETIONS = "/v1/completions"
CHATS = "/v1/chat/completions"
LIMITS = ("num_concurrent=2", "max_retries=1")
DATA = {
    "dataset_path": "json",
    "test_split": "test",
    "doc_to_text": "{{prompt}}",
    "metadata": {"version": 1},
}
GENERATING = {
    "output_type": "generate_until",
    "doc_to_target": "{{prompt}}",
    "generation_kwargs": {
        **{"until": [UNTIL], "max_gen_toks": MAX_TOKENS},
        **{"do_sample": False, "temperature": 0},
    },
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
CHOOSING = {
    "output_type": "multiple_choice",
    "doc_to_choice": ["a", "b"],
    "doc_to_target": 0,
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}


def run(program: Path, url: str, folder: Path) -> None:
    """Run a task of each kind, by each of the two calls that can answer it."""
    documents = folder / "documents.jsonl"
    documents.write_text("\n".join(json.dumps({"prompt": prompt}) for prompt in PROMPTS))
    for name, task in (("generating", GENERATING), ("choosing", CHOOSING)):
        data = {**DATA, "dataset_kwargs": {"data_files": {"test": str(documents)}}}
        # YAML has all of JSON.
        (folder / f"{name}.yaml").write_text(json.dumps({"task": name, **data, **task}))
    for kind, path, options in (
        ("local-completions", COMPLETIONS, []),  # prompts go as token ids
        ("local-completions", COMPLETIONS, ["tokenized_requests=False"]),
        ("local-chat-completions", CHATS, []),
    ):
        result = evaluate(program, folder, "generating", kind, f"{url}{path}", *options)
        assert result.returncode == 0, result.stderr
        assert said(folder) == [expected(url, path, prompt) for prompt in PROMPTS]
        print(f"lm-eval, {kind}:", json.dumps(said(folder)), flush=True)  # noqa: T201
    refused = evaluate(program, folder, "choosing", "local-completions", f"{url}{COMPLETIONS}")
    assert refused.returncode != 0
    assert "'echo' is not supported here" in refused.stdout + refused.stderr, refused.stderr


def evaluate(
    program: Path, folder: Path, task: str, kind: str, url: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run ``task`` with the model at ``url``, to which further ``arguments`` belong."""
    about = {"base_url": url, "model": models.TARGET, "tokenizer": models.path(models.TARGET)}
    given = [f"{name}={value}" for name, value in about.items()]
    as_chat = ["--apply_chat_template"] if "chat" in kind else []
    return subprocess.run(
        [
            *(program, "run", "--include_path", folder, "--tasks", task),
            *("--model", kind, "--model_args", ",".join([*given, *LIMITS, *arguments]), *as_chat),
            *("--output_path", folder / "samples", "--log_samples"),
        ],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
        check=False,
        capture_output=True,
        text=True,
    )


def said(folder: Path) -> list[str]:
    """The texts that the newest run got, in the order of the prompts."""
    file = max((folder / "samples").rglob("samples_*.jsonl"), key=lambda each: each.stat().st_mtime)
    samples: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    return [each["resps"][0][0] for each in sorted(samples, key=lambda each: each["doc_id"])]


def expected(url: str, path: str, prompt: str) -> str:
    """What the gateway answers to the same."""
    asked = {"model": models.TARGET, "temperature": 0, "max_tokens": MAX_TOKENS, "stop": [UNTIL]}
    if path == CHATS:
        asked["messages"] = [{"role": "user", "content": prompt}]
        answer = httpx2.post(f"{url}{path}", json=asked, timeout=60).json()
        return str(answer["choices"][0]["message"]["content"])
    answer = httpx2.post(f"{url}{path}", json={**asked, "prompt": prompt}, timeout=60).json()
    return str(answer["choices"][0]["text"])
