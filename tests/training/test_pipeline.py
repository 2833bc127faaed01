import io
import json
from dataclasses import replace
from itertools import islice

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from specmesh.models import DRAFTER, TARGET
from specmesh.models.corpus import read_sources, split, standard_library
from specmesh.training import drafter as drafter_module
from specmesh.training import pipeline
from specmesh.training.__main__ import app
from specmesh.training.heldout import NUM_PROMPTS, PROMPT_TOKENS
from specmesh.training.optimise import Schedule
from specmesh.training.pipeline import CorpusTooSmallError, TrainingPlan, WorkFolderError, run
from specmesh.training.samples import SamplePlan


@pytest.fixture
def sources(tmp_path):
    """A few of the standard library's files, some of them held out."""
    folder = tmp_path / "sources"
    corpus = split(read_sources(standard_library()))
    held_out = [file for file in corpus.held_out if 5_000 < len(file.text) < 8_000][:4]
    for file in [*held_out, *islice(corpus.training, 0, None, 150)]:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    return folder


@pytest.fixture
def plan(sources, tmp_path, monkeypatch):
    def short(steps, **rates):
        return Schedule(steps, batch_sequences=1, sequence_tokens=64, **rates)

    monkeypatch.setattr(pipeline, "Schedule", short)
    monkeypatch.setattr(drafter_module, "Schedule", short)
    return TrainingPlan(
        sources=sources,
        work=tmp_path / "work",
        output=tmp_path / "models",
        target_steps=2,
        drafter_steps=10,
        samples=SamplePlan(1, rows=2, row_tokens=80, prompt_tokens=(8, 16)),
        seed=0,
    )


def _weights(plan):
    return [(plan.output / name / "model.safetensors").read_bytes() for name in (TARGET, DRAFTER)]


def test_pair_is_trained_and_measured_and_a_second_run_trains_nothing(plan, monkeypatch):
    found = run(plan, Console(file=io.StringIO()))
    card = (plan.output / "README.md").read_text()
    assert f"{found.held_out.alpha:.3f}" in card
    assert f"{found.target.nats_per_token:.3f}" in card
    assert "The Python files of the folder `sources`: " in card
    assert "standard library" not in card
    assert "Python Software Foundation" not in card
    _check_exported_folder(plan.output / TARGET)
    _check_exported_folder(plan.output / DRAFTER)
    _check_prompts_are_held_out(plan)

    before = _weights(plan)
    log = io.StringIO()
    monkeypatch.setattr(pipeline, "evaluate", lambda *scored: found)
    run(plan, Console(file=log))
    assert "loss" not in log.getvalue()
    assert _weights(plan) == before


@pytest.mark.parametrize(
    "change",
    [
        {"drafter_steps": 15},
        {"target_steps": 1, "drafter_steps": 5},
        {"samples": SamplePlan(2, rows=2, row_tokens=80, prompt_tokens=(8, 16))},
        {"seed": 1, "samples": SamplePlan(1, rows=2, row_tokens=80, prompt_tokens=(8, 16), seed=1)},
    ],
    ids=["more steps", "fewer steps", "shards", "seed"],
)
def test_a_run_with_other_options_has_checkpoints_of_its_own(plan, tmp_path, monkeypatch, change):
    monkeypatch.setattr(pipeline, "_measure", lambda *scored: None)
    monkeypatch.setattr(pipeline, "card", lambda *told: "")
    silent = Console(file=io.StringIO())
    run(plan, silent)
    other = replace(plan, **change)
    run(other, silent)
    fresh = replace(other, work=tmp_path / "fresh", output=tmp_path / "expected")
    run(fresh, silent)
    assert _weights(other) == _weights(fresh)


def _check_exported_folder(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.dtype == torch.bfloat16
    assert not model.generation_config.do_sample
    assert tokenizer.model_max_length == model.config.max_position_embeddings == 1024
    assert tokenizer.eos_token_id == model.config.eos_token_id == 0
    text = "def f(x):\n\n    return  'naïve ☃'  # ' , ! don't\n\t\x00"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    answer = model.generate(torch.tensor([ids]), max_new_tokens=4)
    assert answer.shape[1] <= len(ids) + 4


def _check_prompts_are_held_out(plan):
    corpus = split(read_sources(plan.sources))
    held_out = {file.path: file for file in corpus.held_out}
    manifest = json.loads((plan.output / "held_out_files.json").read_text())
    assert manifest == {file.path: file.sha256 for file in corpus.held_out}
    prompts = json.loads((plan.output / "heldout_prompts.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(plan.output / TARGET)
    assert NUM_PROMPTS <= len({prompt["text"] for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        file = held_out[prompt["path"]]
        assert prompt["sha256"] == file.sha256
        assert prompt["text"] + "\n" in file.text
        assert PROMPT_TOKENS[0] <= len(tokenizer.encode(prompt["text"])) <= PROMPT_TOKENS[1]


def test_work_folder_of_other_sources_is_refused(plan, sources):
    console = Console(file=io.StringIO())
    pipeline.prepare(plan, console)
    (sources / "another.py").write_text("x = 1\n")
    with pytest.raises(WorkFolderError, match="files other than"):
        pipeline.prepare(plan, console)


@pytest.mark.parametrize(("files", "purpose"), [([], "train on"), (["a.py"], "hold out")])
def test_corpus_without_files_is_refused_before_anything_is_written(plan, tmp_path, files, purpose):
    folder = tmp_path / "few"
    folder.mkdir()
    for name in files:
        (folder / name).write_text("x = 1\n")
    with pytest.raises(CorpusTooSmallError, match=f"no Python files to {purpose}"):
        run(replace(plan, sources=folder), Console(file=io.StringIO()))
    assert not plan.work.exists()


def test_corpus_with_too_few_tokens_is_refused_and_may_grow(plan, monkeypatch):
    silent = Console(file=io.StringIO())
    with monkeypatch.context() as longer:
        longer.setattr(pipeline, "Schedule", lambda steps: Schedule(steps, sequence_tokens=10**9))
        with pytest.raises(CorpusTooSmallError, match=r"\d+ tokens to train on, fewer than 10+1$"):
            run(plan, silent)
    (plan.sources / "another.py").write_text("x = 1\n")
    pipeline.prepare(plan, silent)


def test_corpus_with_too_few_prompts_is_refused(plan):
    for number, file in enumerate(split(read_sources(plan.sources)).held_out):
        lines = (f"x{number} = {line}" for line in range(9))
        (plan.sources / file.path).write_text("\n".join(lines))
    with pytest.raises(CorpusTooSmallError, match="have 0 prompts of 64 to 160 tokens, fewer than"):
        run(plan, Console(file=io.StringIO()))


@pytest.mark.parametrize(
    "error", [CorpusTooSmallError("too few"), WorkFolderError("another"), OSError("disk full")]
)
def test_what_ends_a_run_is_told_in_a_sentence(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(pipeline, "run", fail)
    ended = CliRunner().invoke(app, ["--corpus", str(tmp_path)])
    assert (ended.exit_code, ended.output) == (2, f"error: {error}\n")
