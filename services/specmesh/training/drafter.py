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
from specmesh.training.progress import Stage, watch
from specmesh.training.samples import SamplePlan, read_samples, write_shard
from specmesh.training.shards import Shards
from specmesh.training.tokenizer import Tokens


@dataclass(frozen=True, slots=True)
class Curriculum:
    """The length of the drafter's training, and the folders of its checkpoints and samples.

    Files that depend on the target go to folder ``distilled``, the others to ``work``. They are
    named after the options on which they depend.
    """

    steps: int
    samples: SamplePlan
    work: Path
    distilled: Path


@dataclass(frozen=True, slots=True)
class Lesson:
    """A part of the drafter's steps at one mixture of losses (see ``distill``)."""

    name: str
    share_of_steps: float
    tv_share: float
    muon_learning_rate: float
    learning_rate: float


# Most steps are plain language modelling, which takes a third of the time of distillation.
LANGUAGE_SHARE = 2 / 3
LESSONS = (
    Lesson("kl", 0.2, 0.0, 1e-2, 2e-3),
    Lesson("tv", 2 / 15, 0.9, 5e-3, 1e-3),
)


def train_drafter(
    target: LlamaForCausalLM, training: Tokens, curriculum: Curriculum, console: Console
) -> LlamaForCausalLM:
    """Train a drafter for ``target`` on ``training`` and on the target's continuations of it."""
    plan, seed = curriculum.samples, curriculum.samples.seed
    drafter = build("drafter", seed)
    schedule = Schedule(round(curriculum.steps * LANGUAGE_SHARE), seed=seed)
    loss = partial(language_loss, drafter)
    run = f"{seed}-{curriculum.steps}"
    steps = optimise(drafter, loss, training, schedule, curriculum.work / f"drafter-{run}.pt")
    watch(console, Stage("drafter: text", schedule.steps, schedule.step_tokens), steps)

    shards = Shards(curriculum.distilled / f"samples-{seed}", plan.shards)
    steps = shards.write(partial(write_shard, target, training, plan))
    watch(console, Stage("target's samples", plan.shards, plan.shard_tokens), steps)
    text = _mixture(training, read_samples(shards))

    for number, lesson in enumerate(LESSONS, start=1):
        schedule = Schedule(
            round(curriculum.steps * lesson.share_of_steps),
            learning_rate=lesson.learning_rate,
            muon_learning_rate=lesson.muon_learning_rate,
            seed=seed + number,  # windows differ from those of the lesson before
        )
        loss = partial(distillation_loss, drafter, target, lesson.tv_share)
        checkpoint = curriculum.distilled / f"{lesson.name}-{run}-{plan.shards}.pt"
        steps = optimise(drafter, loss, text, schedule, checkpoint)
        name = f"drafter: {lesson.name}"
        watch(console, Stage(name, schedule.steps, schedule.step_tokens), steps)
    return drafter


def _mixture(training: Tokens, samples: Tokens) -> Tokens:
    """Return the training text and about as many tokens by the target, repeated if necessary."""
    return np.concatenate([training, np.tile(samples, max(1, round(len(training) / len(samples))))])
