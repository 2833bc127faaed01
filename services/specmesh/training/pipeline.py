"""The stages from source files to a shipped pair; each is skipped if its output exists."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from specmesh.models import DRAFTER, TARGET, Prompt, corpus
from specmesh.models.corpus import Corpus, SourceFile
from specmesh.serving.templates.model_names import short_name
from specmesh.training.card import Provenance, card
from specmesh.training.drafter import Curriculum, train_drafter
from specmesh.training.evaluate import Evaluation, evaluate
from specmesh.training.export import export
from specmesh.training.heldout import NUM_PROMPTS, PROMPT_TOKENS, choose_prompts
from specmesh.training.optimise import Schedule, optimise
from specmesh.training.pair import build, language_loss
from specmesh.training.progress import Stage, watch
from specmesh.training.samples import SamplePlan
from specmesh.training.tokenizer import Tokens, encode, train_tokenizer


class WorkFolderError(ValueError):
    """The work folder holds a run over other source files."""


class CorpusTooSmallError(ValueError):
    """The corpus has too little to train on, or to hold out."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The corpus, the length of training, and the folders."""

    sources: Path
    work: Path
    output: Path
    target_steps: int
    drafter_steps: int
    samples: SamplePlan
    seed: int


@dataclass(frozen=True, slots=True)
class Data:
    """The corpus as text and as tokens, and prompts from its held-out files."""

    corpus: Corpus
    tokenizer: Tokenizer
    training: Tokens
    held_out: Tokens
    prompts: list[Prompt]


def run(plan: TrainingPlan, console: Console) -> Evaluation:
    """Run all stages; write both models, the prompts, the held-out manifest and the card.

    Raises CorpusTooSmallError, and WorkFolderError if the work folder was begun with other files.
    """
    data = prepare(plan, console)
    target = _train_target(plan, data.training, console)
    export(target, data.tokenizer, plan.output / TARGET)
    curriculum = Curriculum(
        steps=plan.drafter_steps,
        samples=plan.samples,
        work=plan.work,
        # Named after the weights, so that a target that is trained further gets new samples.
        distilled=plan.work / f"distilled-{_fingerprint(plan.output / TARGET)[:12]}",
    )
    teacher = _load(plan.output / TARGET, torch.bfloat16)
    drafter = train_drafter(teacher, data.training, curriculum, console)
    export(drafter, data.tokenizer, plan.output / DRAFTER)
    evaluation = _measure(plan.output, data, data.prompts[:NUM_PROMPTS], console)
    _write_json(plan.output / "heldout_prompts.json", [asdict(prompt) for prompt in data.prompts])
    _write_json(plan.output / "held_out_files.json", _digests(data.corpus.held_out))
    is_library = plan.sources.resolve() == corpus.standard_library().resolve()
    provenance = Provenance(
        corpus="" if is_library else short_name(str(plan.sources)),
        python=platform.python_version(),
        training_files=len(data.corpus.training),
        held_out_files=len(data.corpus.held_out),
        training_tokens=len(data.training),
        held_out_tokens=len(data.held_out),
        target_parameters=target.num_parameters(),
        drafter_parameters=drafter.num_parameters(),
        target_steps=plan.target_steps,
        drafter_steps=plan.drafter_steps,
    )
    (plan.output / "README.md").write_text(card(provenance, evaluation), encoding="utf-8")
    return evaluation


def prepare(plan: TrainingPlan, console: Console) -> Data:
    """Read, split and tokenise the sources. Raises as ``run`` does."""
    files = corpus.split(corpus.read_sources(plan.sources))
    for purpose, part in (("to train on", files.training), ("to hold out", files.held_out)):
        if not part:
            raise CorpusTooSmallError(f"{plan.sources} holds no Python files {purpose}")
    manifest = {"training": _digests(files.training), "held_out": _digests(files.held_out)}
    record = plan.work / "corpus.json"
    if not record.exists():
        console.print(f"tokenizing {len(files.training)} files, {len(files.held_out)} held out")
        plan.work.mkdir(parents=True, exist_ok=True)
        tokenizer = train_tokenizer(files.training)
        tokenizer.save(str(plan.work / "tokenizer.json"))
        np.save(plan.work / "training.npy", encode(tokenizer, files.training))
        np.save(plan.work / "held_out.npy", encode(tokenizer, files.held_out))
    elif json.loads(record.read_text(encoding="utf-8")) != manifest:
        raise WorkFolderError(
            f"{plan.work} was begun with files other than those in {plan.sources}"
        )
    tokenizer = Tokenizer.from_file(str(plan.work / "tokenizer.json"))
    data = Data(
        corpus=files,
        tokenizer=tokenizer,
        training=np.load(plan.work / "training.npy"),
        held_out=np.load(plan.work / "held_out.npy"),
        prompts=choose_prompts(files.held_out, tokenizer),
    )
    _check_size(plan, data)
    # Last: if it exists, so do the other files, and the corpus is large enough.
    _write_json(record, manifest)
    return data


def _check_size(plan: TrainingPlan, data: Data) -> None:
    """Raise CorpusTooSmallError unless ``data`` has a window of text and enough prompts."""
    least = 1 + max(Schedule(plan.target_steps).sequence_tokens, *plan.samples.prompt_tokens)
    if len(data.training) < least:
        raise CorpusTooSmallError(
            f"{plan.sources} holds {len(data.training)} tokens to train on, fewer than {least}"
        )
    if len(data.prompts) < NUM_PROMPTS:
        raise CorpusTooSmallError(
            f"the held-out files of {plan.sources} have {len(data.prompts)} prompts of "
            f"{PROMPT_TOKENS[0]} to {PROMPT_TOKENS[1]} tokens, fewer than {NUM_PROMPTS}"
        )


def _train_target(plan: TrainingPlan, training: Tokens, console: Console) -> LlamaForCausalLM:
    target = build("target", plan.seed)
    schedule = Schedule(plan.target_steps, seed=plan.seed)
    loss = partial(language_loss, target)
    # Named after what decides the weights, so that the card tells the truth of them.
    checkpoint = plan.work / f"target-{plan.seed}-{plan.target_steps}.pt"
    steps = optimise(target, loss, training, schedule, checkpoint)
    watch(console, Stage("target", schedule.steps, schedule.step_tokens), steps)
    return target


def _measure(output: Path, data: Data, prompts: Sequence[Prompt], console: Console) -> Evaluation:
    """Score the exported models as they will be served: rounded to bf16, computed in float32."""
    console.print("measuring on the held-out files")
    return evaluate(
        _load(output / TARGET, torch.float32),
        _load(output / DRAFTER, torch.float32),
        data.held_out,
        sum(len(file.text.encode()) for file in data.corpus.held_out),
        [data.tokenizer.encode(prompt.text).ids for prompt in prompts],
    )


def _load(folder: Path, dtype: torch.dtype) -> LlamaForCausalLM:
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(folder, dtype=dtype)
    model.train(False)
    return model


def _fingerprint(folder: Path) -> str:
    with (folder / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(files: Sequence[SourceFile]) -> dict[str, str]:
    return {file.path: file.sha256 for file in files}


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
