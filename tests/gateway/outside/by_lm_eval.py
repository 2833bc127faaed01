"""lm-evaluation-harness: tasks that generate are answered as the mesh answers anybody, and those
that want likelihoods get the model's own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specmesh import models

PROMPTS = [f"def f{number}(x):" for number in range(6)]
UNTIL = "\n\n"
CHOICES = ["return x", "pass"]
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
    "doc_to_choice": CHOICES,
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
    result = evaluate(program, folder, "choosing", "local-completions", f"{url}{COMPLETIONS}")
    assert result.returncode == 0, result.stderr
    told = [[float(each[0][0]) for each in sample["resps"]] for sample in samples(folder)]
    print("lm-eval, likelihoods:", json.dumps(told), flush=True)  # noqa: T201
    target = AutoModelForCausalLM.from_pretrained(models.path(models.TARGET), dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(models.path(models.TARGET))
    for prompt, found in zip(PROMPTS, told, strict=True):
        for choice, logprob in zip(CHOICES, found, strict=True):
            assert abs(logprob - likelihood(target, tokenizer, prompt, f" {choice}")) < 1e-2


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


def samples(folder: Path) -> list[dict[str, Any]]:
    """Return the answers of the newest run, in the order of the prompts."""
    file = max((folder / "samples").rglob("samples_*.jsonl"), key=lambda each: each.stat().st_mtime)
    found: list[dict[str, Any]] = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted(found, key=lambda each: each["doc_id"])


def said(folder: Path) -> list[str]:
    """The texts that the newest run got, in the order of the prompts."""
    return [each["resps"][0][0] for each in samples(folder)]


def likelihood(target: Any, tokenizer: Any, prompt: str, choice: str) -> float:
    """The log-probability of ``choice`` after ``prompt``, by the model alone."""
    whole = tokenizer(prompt + choice, return_tensors="pt").input_ids
    num_prompt = len(tokenizer(prompt).input_ids)
    with torch.inference_mode():
        rows = target(whole).logits[0, :-1].log_softmax(dim=-1)
    tokens = whole[0, 1:]
    chosen = rows[range(len(tokens)), tokens]
    return float(chosen[num_prompt - 1 :].sum())


def expected(url: str, path: str, prompt: str) -> str:
    """What the gateway answers to the same."""
    asked = {"model": models.TARGET, "temperature": 0, "max_tokens": MAX_TOKENS, "stop": [UNTIL]}
    if path == CHATS:
        asked["messages"] = [{"role": "user", "content": prompt}]
        answer = httpx2.post(f"{url}{path}", json=asked, timeout=60).json()
        return str(answer["choices"][0]["message"]["content"])
    answer = httpx2.post(f"{url}{path}", json={**asked, "prompt": prompt}, timeout=60).json()
    return str(answer["choices"][0]["text"])
