"""The options of vLLM that ``--engine-options`` takes, and what each changes."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

import pytest
from tests.forks import surroundings
from tests.vllm import PYTHON, START_SECONDS, needs_vllm

from specmesh import models
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm import model
from specmesh.inference.models.vllm.loading.engine_options import digest_with

pytestmark = needs_vllm

CACHE_BYTES = 8 << 20
AS_IT_IS = "set by specmesh, which needs it as it is"
REFUSED = {
    "--gpu-memory-utilization 0.5": "--engine-options: --gpu-memory-utilization is set by "
    "--cache-bytes",
    "--runner pooling": f"--engine-options: --runner is {AS_IT_IS}",
    "--spec-method ngram": f"--engine-options: --spec-method is {AS_IT_IS}",
    "--spec-model x": f"--engine-options: --spec-model is {AS_IT_IS}",
    "--spec-tokens 3": f"--engine-options: --spec-tokens is {AS_IT_IS}",
    "--kv-offloading-size 1": f"--engine-options: --kv-offloading-size is {AS_IT_IS}",
    "--kv-offloading-backend native": f"--engine-options: --kv-offloading-backend is {AS_IT_IS}",
    "--config /none.yaml": "--engine-options: [Errno 2] No such file or directory: '/none.yaml'",
    "--convert embed": f"--engine-options: --convert is {AS_IT_IS}",
}
"""Options that are refused, with the reasons."""
TARGET = str(models.path(models.TARGET))
WRONG_VALUES = {
    "--max-num-seqs 0": "max_num_seqs: Input should be greater than or equal to 1",
    "--max-num-batched-tokens 16": "max_num_batched_tokens (16) must be greater than or equal to "
    "max_num_seqs (64).",
    "--attention-backend FOO": "Unknown attention backend: 'FOO'.",
}
"""Values that only vLLM's configuration refuses, with its words."""
OTHER_CONTEXTS = {
    f"""--hf-overrides '{{"max_position_embeddings": {length}}}'""": "--engine-options: "
    f"--hf-overrides makes the context {length} tokens long, not 1024; change "
    "max_position_embeddings in the model's config.json instead"
    for length in (512, 2048)
}
"""Overrides of the context's length, with the reasons."""
ROOM = "is too small for a context of 1024 tokens: it takes"
TOO_FEW_BLOCKS = f"--engine-options: --num-gpu-blocks-override 33 {ROOM} 34 blocks, or"
CHANGES = {
    "--enable-chunked-prefill": [],
    "--kv-cache-dtype auto": [],
    "--kv-cache-dtype fp8": ["kv_cache_dtype"],
    "--stream-interval 3": [],
    "--max-num-scheduled-tokens 64 --max-num-active-seqs 4 --watermark 0.1": [],
    "--max-num-queued-reqs 9 --max-num-queued-tokens 99 --shutdown-timeout 1": [],
    "--prefix-caching-hash-algo xxhash": [],
    "--load-format safetensors": [],
    "--load-format dummy": ["load_format"],
    "--config-format auto": ["config_format"],
    "--max-num-seqs 8 --quantization fp8": ["quantization"],
}
"""Options, with the names of those that make another target."""
PROGRAM = """
import json, sys
from dataclasses import replace
from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.loading import engine_options
from specmesh.inference.models.vllm.loading.engine_options import changes_by
from specmesh.inference.models.vllm.loading.steps import start
from specmesh.inference.models.vllm.options import CoreOptions, check_engine_options
asked = json.loads(sys.argv[1])
told = {}
for given in asked["before"]:
    try:
        check_engine_options(given, cache_bytes=asked["cache_bytes"], num_threads=1)
        told[given] = "taken"
    except ModelNotLoadable as error:
        told[given] = str(error)
for given in asked["taken"]:
    told[given] = list(changes_by(given))
names = engine_options.HARMLESS | engine_options.OURS.keys() | engine_options.SAME.keys()
actions = engine_options._parser()._actions
told["unknown names"] = sorted(names - {action.dest for action in actions})
for given in asked["with the model"]:
    try:
        start(
            CoreOptions(
                asked["model"], "float32", "cpu", 1024, asked["cache_bytes"], 64, 512, 256, 1, 1,
                given,
            )
        )
    except ModelNotLoadable as error:
        told[given] = str(error)
for cache_bytes, given in asked["rooms"]:
    options = CoreOptions(
        asked["model"], "float32", "cpu", 1024, cache_bytes, 64, 512, 256, 1, 1, given
    )
    try:
        start(options)
    except ModelNotLoadable as error:
        told[f"{cache_bytes} {given}"] = str(error)
        needed = int(str(error).split()[-2])
for cache_bytes in (needed - 1, needed):
    try:
        start(replace(options, cache_bytes=cache_bytes, engine_options=""))
        told[str(cache_bytes - needed)] = "started"
    except ModelNotLoadable as error:
        told[str(cache_bytes - needed)] = str(error)
print(json.dumps(told))
"""


@cache
def told() -> dict[str, Any]:
    """What one process says to all of them, since to import vLLM takes long."""
    asked = {
        "model": TARGET,
        "cache_bytes": CACHE_BYTES,
        "before": list(REFUSED),
        "taken": list(CHANGES),
        "with the model": [*WRONG_VALUES, *OTHER_CONTEXTS],
        "rooms": [(1000, ""), (CACHE_BYTES, "--num-gpu-blocks-override 33")],
    }
    done = subprocess.run(
        [str(PYTHON), "-c", PROGRAM, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=True,
        env=surroundings(),
    )
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("given", REFUSED)
def test_options_that_would_do_nothing_or_fail_later_are_refused_before_the_model_is_read(given):
    assert told()[given] == REFUSED[given]


@pytest.mark.parametrize("given", WRONG_VALUES)
def test_wrong_values_are_blamed_on_the_options_and_not_on_the_model(given):
    name = f"--engine-options: vLLM cannot load {TARGET!r} with them: "
    assert told()[given].startswith(name + WRONG_VALUES[given])


@pytest.mark.parametrize("given", OTHER_CONTEXTS)
def test_overrides_may_not_make_the_context_another_than_callers_are_told(given):
    assert told()[given] == OTHER_CONTEXTS[given]


@pytest.mark.parametrize("given", CHANGES)
def test_options_make_another_target_only_if_they_change_what_is_computed(given):
    assert told()[given] == CHANGES[given]


def test_every_option_that_we_know_by_name_is_one_of_vllms():
    assert told()["unknown names"] == []


def test_the_digest_of_a_target_depends_on_what_its_options_say_and_not_on_their_order():
    given = {"quantization": "fp8", "hf_overrides": {"rope_theta": 5.0, "deep": {"a": 1, "b": 2}}}
    turned = {"hf_overrides": {"deep": {"b": 2, "a": 1}, "rope_theta": 5.0}, "quantization": "fp8"}
    digest = digest_with("weights", given)
    assert digest == digest_with("weights", turned) != digest_with("others", given)
    assert digest != digest_with("weights", given | {"quantization": "fp4"})
    assert digest_with("weights", {}) == "weights"


def test_where_the_context_finds_no_room_the_least_bytes_are_told_and_suffice():
    """A context of 1,024 tokens takes 34 blocks of 32: one for the token that vLLM reserves room
    for, and one that it keeps for itself."""
    least = told()["1000 "].split()[-2]
    assert told()["1000 "] == told()["-1"] == f"--cache-bytes {ROOM} {least} bytes"
    assert told()["0"] == "started"
    few = told()[f"{CACHE_BYTES} --num-gpu-blocks-override 33"]
    assert few == f"{TOO_FEW_BLOCKS} {least} bytes"


def test_the_model_is_not_read_for_options_that_are_refused(monkeypatch):
    refusal = ModelNotLoadable("--engine-options: no")

    def refuse(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(model, "check_versions", lambda: None)
    monkeypatch.setattr(model, "check_engine_options", refuse)
    with pytest.raises(ModelNotLoadable) as raised:
        model.VllmModel.load(
            "/no/such/model",
            dtype="float32",
            device="cpu",
            num_threads=1,
            cache_bytes=None,
            tensor_parallel=1,
            engine_options="--wrong",
            chat_template=None,
        )
    assert raised.value is refusal
