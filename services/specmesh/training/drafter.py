"""The drafter's curriculum: text, then the target's distributions, then acceptance itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from transformers import LlamaForCausalLM

from specmesh.training.distill import distillation_loss
from specmesh.training.optimise import Schedule, optimise
from specmesh.training.pair import build, language_loss
from specmesh.training.progress import stage
from specmesh.training.samples import SamplePlan, sample
from specmesh.training.tokenizer import Tokens


@dataclass(frozen=True, slots=True)
class Lesson:
    """A part of the drafter's steps at one mixture of losses (see ``distill``)."""

    name: str
    share_of_steps: float
    tv_share: float
    muon_learning_rate: float
    learning_rate: float


# Half of the steps are plain language modelling, which costs a third of a distillation step.
LANGUAGE_SHARE = 0.5
LESSONS = (
    Lesson("kl", 0.3, 0.0, 1e-2, 2e-3),
    Lesson("tv", 0.2, 0.9, 5e-3, 1e-3),
)


def train_drafter(
    target: LlamaForCausalLM,
    training: Tokens,
    steps: int,
    samples: SamplePlan,
    work: Path,
    distilled: Path,
    console: Console,
) -> LlamaForCausalLM:
    """A drafter for ``target``, from ``training`` tokens and what the target makes of them.

    Checkpoints that know the target go to folder ``distilled``, the others to ``work``.
    """
    drafter = build("drafter", samples.seed)
    schedule = Schedule(round(steps * LANGUAGE_SHARE), seed=samples.seed)
    with stage(console, "drafter: text", schedule.steps, schedule.step_tokens) as report:
        loss = partial(language_loss, drafter)
        optimise(drafter, loss, training, schedule, work / "drafter.pt", report)
    with stage(console, "target's samples", samples.shards, samples.shard_tokens) as report:
        text = _mixture(training, sample(target, training, samples, distilled / "samples", report))
    for number, lesson in enumerate(LESSONS, start=1):
        schedule = Schedule(
            round(steps * lesson.share_of_steps),
            learning_rate=lesson.learning_rate,
            muon_learning_rate=lesson.muon_learning_rate,
            seed=samples.seed + number,  # other windows than in the lesson before
        )
        name = f"drafter: {lesson.name}"
        with stage(console, name, schedule.steps, schedule.step_tokens) as report:
            loss = partial(distillation_loss, drafter, target, lesson.tv_share)
            optimise(drafter, loss, text, schedule, distilled / f"{lesson.name}.pt", report)
    return drafter


def _mixture(training: Tokens, samples: Tokens) -> Tokens:
    """Training text and about as much of the target's, repeated if need be."""
    return np.concatenate([training, np.tile(samples, max(1, round(len(training) / len(samples))))])
