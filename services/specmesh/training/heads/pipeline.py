"""The stages from a target to its heads; each continues where it was stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from specmesh.inference.models.heads.eagle3.identity import HeadsTarget
from specmesh.inference.models.heads.folder import HeadsConfig
from specmesh.inference.models.heads.seen import Seen
from specmesh.inference.models.heads.target_ends import TargetEnds
from specmesh.inference.models.loading import LoadedModel, read_model
from specmesh.inference.models.transformers_model import TransformersModel
from specmesh.serving.templates.model_names import short_name
from specmesh.training.drafter import Lesson
from specmesh.training.heads.eagle3 import Eagle3Trainee, eagle3_config
from specmesh.training.heads.generations import GenerationPlan, write_shard
from specmesh.training.heads.held_out import DepthAcceptance, measure
from specmesh.training.heads.loss import heads_loss
from specmesh.training.heads.stateless import StatelessTrainee
from specmesh.training.heads.texts import Texts, read_texts
from specmesh.training.heads.trainee import Trainee
from specmesh.training.optimise import Schedule, optimise, sample_batch
from specmesh.training.progress import Stage, watch
from specmesh.training.shards import Shards
from specmesh.training.tokenizer import Tokens

SERVED_DTYPES = ("float32", "float16", "bfloat16")
"""The data types in which a target may be served, each with its own digest. Training uses the last
one."""


@dataclass(frozen=True, slots=True)
class HeadsLesson(Lesson):
    """A part of the steps, in which at most ``unrolled`` tokens of a draft are read, if it is not
    None."""

    unrolled: int | None = None


LESSONS = (
    HeadsLesson("kl", 0.6, 0.0, 2e-2, 3e-3),
    HeadsLesson("tv", 0.4, 0.9, 1e-2, 1e-3),
)
EAGLE3_LESSONS = (
    # One layer for all depths, so that more text is worth more than deeper drafts.
    HeadsLesson("kl", 0.6, 0.0, 4e-2, 3e-3, unrolled=3),
    HeadsLesson("tv", 0.4, 0.9, 2e-2, 1e-3),
)


@dataclass(frozen=True, slots=True)
class HeadsPlan:
    """The heads to train, their target, the corpus, the length of training, and the folders.

    ``target`` is a folder or a Hugging Face id. ``inner_size`` is the width of the block of heads
    that have one; 0 means twice the target's hidden size. Heads guess the ``num_guessed`` tokens
    that the target writes most; 0 means all tokens.
    """

    target: str
    kind: Literal["eagle3", "medusa", "recurrent"]
    sources: Path
    pattern: str
    work: Path
    output: Path
    max_depth: int
    inner_size: int
    num_guessed: int
    steps: int
    batch_sequences: int
    sequence_tokens: int
    generations: GenerationPlan
    seed: int

    def within(self, context_tokens: int) -> HeadsPlan:
        """Return the plan with windows and texts that fit a target's context."""
        return replace(
            self,
            # A sequence is followed by the token that its last one is to foretell.
            sequence_tokens=min(self.sequence_tokens, context_tokens - 1),
            generations=self.generations.within(context_tokens),
        )


def run(plan: HeadsPlan, console: Console) -> list[DepthAcceptance]:
    """Train heads and write them; return their acceptance on held-out text.

    Raises ``ModelNotLoadable`` and ``CorpusUnfit``.
    """
    target, digests = _read_target(plan.target)
    plan = plan.within(target.text_config.max_position_embeddings)
    # Named after the weights, so that a target that is trained further gets new texts.
    work = plan.work / f"{Path(short_name(plan.target)).name}-{digests['float32'][:12]}-{plan.seed}"
    texts, written = _texts(plan, target, work, console)
    guessed = _most_frequent(written, plan.num_guessed, target.text_config.vocab_size)
    torch.manual_seed(plan.seed)
    trainee = _trainee(plan, target.model, digests, guessed)
    checkpoints = work / f"{trainee.name}-{_digest(plan, guessed)}"
    both = _mixture(texts.training, written)
    lessons = EAGLE3_LESSONS if plan.kind == "eagle3" else LESSONS
    for number, lesson in enumerate(lessons, start=1):
        schedule = _schedule(plan, lesson, number)
        if number == 1:
            trainee.start(sample_batch(both, schedule, 0))
        depth = min(plan.max_depth, lesson.unrolled or plan.max_depth)
        loss = _loss(trainee, depth, lesson.tv_share)
        steps = optimise(trainee.network, loss, both, schedule, checkpoints / f"{lesson.name}.pt")
        name = f"{plan.kind}: {lesson.name}"
        watch(console, Stage(name, schedule.steps, schedule.step_tokens), steps)
    trainee.save(plan.output)
    return measure(trainee, texts.held_out, plan.max_depth, plan.sequence_tokens)


def _trainee(
    plan: HeadsPlan, target: Any, digests: dict[str, str], guessed: Tensor | None
) -> Trainee:
    """Return untrained heads of the plan's kind."""
    if plan.kind == "eagle3":
        vocab_size = target.config.get_text_config().vocab_size
        num_guessed = vocab_size if guessed is None else len(guessed)
        config = eagle3_config(
            target, num_guessed=num_guessed, inner_size=plan.inner_size, max_depth=plan.max_depth
        )
        identity = HeadsTarget(short_name(plan.target), (type(target).__name__,), digests)
        return Eagle3Trainee(config, target, identity, guessed)
    ends = TargetEnds(target)
    inner_size = plan.inner_size or 2 * ends.hidden_size
    stateless = HeadsConfig(
        kind=plan.kind,
        target_digests=digests,
        hidden_size=ends.hidden_size,
        embedding_size=ends.embedding_size,
        vocab_size=ends.vocab_size,
        inner_size=inner_size if plan.kind == "recurrent" else 0,
        max_depth=plan.max_depth,
    )
    return StatelessTrainee(stateless, target, guessed)


def _read_target(name: str) -> tuple[LoadedModel, dict[str, str]]:
    """Read the target; return it with its digests by the data types in which it may be served."""
    digests = {}
    for dtype in SERVED_DTYPES:
        target = read_model(name, dtype, "cpu", None)
        digests[dtype] = target.describe(dtype, None, None).weights_digest
    target.check_supported()
    target.model.train(False).requires_grad_(False)
    return target, digests


def _texts(
    plan: HeadsPlan, target: LoadedModel, work: Path, console: Console
) -> tuple[Texts, Tokens]:
    """Return the corpus, and the target's continuations of prompts from its training files."""
    texts = read_texts(plan.sources, plan.pattern, target.describe("", None, None), work)
    generations = plan.generations
    shards = Shards(work / "generations", generations.shards)
    if not shards.complete:
        dtype = SERVED_DTYPES[-1]
        engine = TransformersModel.load(plan.target, dtype=dtype, device="cpu")
        stage = Stage("target's texts", generations.shards, generations.shard_tokens)
        make = partial(write_shard, engine, texts.training, generations)
        watch(console, stage, shards.write(make))
    return texts, shards.read().reshape(-1)


def _schedule(plan: HeadsPlan, lesson: Lesson, number: int) -> Schedule:
    steps = max(1, round(plan.steps * lesson.share_of_steps))
    return Schedule(
        steps,
        warmup_steps=min(50, steps // 10),
        batch_sequences=plan.batch_sequences,
        sequence_tokens=plan.sequence_tokens,
        learning_rate=lesson.learning_rate,
        muon_learning_rate=lesson.muon_learning_rate,
        seed=plan.seed + number,  # windows differ from those of the lesson before
    )


def _loss(trainee: Trainee, depth: int, tv_share: float) -> Callable[[Tensor], Tensor]:
    """Return the loss of a batch. The target runs outside compiled code since it has no
    gradients."""
    look: Callable[[Tensor], Seen] = torch.compiler.disable(  # type: ignore[no-untyped-call]
        trainee.look
    )
    return lambda batch: heads_loss(trainee, look(batch), depth, tv_share)


def _most_frequent(written: Tokens, count: int, vocab_size: int) -> Tensor | None:
    """Return the ``count`` tokens that the target writes most, in the order of their ids; None for
    all."""
    if not 0 < count < vocab_size:
        return None
    counts = np.bincount(written, minlength=vocab_size)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]))


def _digest(plan: HeadsPlan, guessed: Tensor | None) -> str:
    """Return what tells checkpoints apart: the tokens that are guessed, in whose order the output
    layer has its rows, and what is trained on, in which batches and in how many steps, on which the
    learning rates depend."""
    shape = (plan.max_depth, plan.generations.shards, plan.batch_sequences, plan.sequence_tokens)
    ids = None if guessed is None else guessed.tolist()
    return hashlib.sha256(repr((shape, plan.steps, ids)).encode()).hexdigest()[:12]


def _mixture(training: Tokens, written: Tokens) -> Tokens:
    """Return the training text and about as many tokens by the target, repeated if necessary."""
    repeated = np.tile(written, max(1, round(len(training) / len(written))))
    return np.concatenate([training, repeated])
