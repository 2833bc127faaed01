"""One resumable training loop, shared by the target and the drafter.

Everything a step does is a function of (seed, step), so a resumed run sees the same batches as an
uninterrupted one.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from specmesh.inference.reasons import reason_of
from specmesh.training.progress import StepsDone
from specmesh.training.tokenizer import Tokens

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The length and learning rates of training.

    ``learning_rate`` is AdamW's peak (embeddings, output layers and norms); hidden matrices use
    Muon at ``muon_learning_rate``. Warm-up is linear, decay a cosine to a twentieth.
    """

    steps: int
    batch_sequences: int = 8
    sequence_tokens: int = 1024
    learning_rate: float = 3e-3
    muon_learning_rate: float = 2e-2
    warmup_steps: int = 50
    checkpoint_every: int = 50
    seed: int = 0

    @property
    def step_tokens(self) -> int:
        """Tokens that one step trains on."""
        return self.batch_sequences * self.sequence_tokens

    def rate(self, step: int) -> float:
        """Return the learning-rate multiplier in (0, 1] at ``step``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))


def sample_batch(tokens: Tokens, schedule: Schedule, step: int) -> Tensor:
    """Return token windows ``[batch, sequence + 1]``, int64, chosen only by (seed, step).

    Windows tile the corpus in a shuffled order, epoch by epoch, so every token is seen once before
    any is seen twice.
    """
    length = schedule.sequence_tokens
    windows = (len(tokens) - 1) // length
    first = step * schedule.batch_sequences
    picks = []
    for index in range(first, first + schedule.batch_sequences):
        epoch, position = divmod(index, windows)
        rng = np.random.default_rng([schedule.seed, epoch])
        shift = int(rng.integers(length)) if epoch else 0
        start = int(rng.permutation(windows)[position]) * length + shift
        start = min(start, len(tokens) - length - 1)
        picks.append(tokens[start : start + length + 1].astype(np.int64))
    return torch.from_numpy(np.stack(picks))


def optimise(
    model: nn.Module,
    loss: Loss,
    tokens: Tokens,
    schedule: Schedule,
    checkpoint: Path,
) -> Iterator[StepsDone]:
    """Train ``model`` in place, one step for each item of the iterator.

    Continues from ``checkpoint`` if it exists, and keeps it current. Raises OSError if it cannot be
    written.
    """
    optimizers = _optimizers(model, schedule)
    step = _restore(checkpoint, model, optimizers)
    # Inductor compiles C++; without a compiler the same steps run slower.
    run = torch.compile(loss) if shutil.which("g++") else loss
    while step < schedule.steps:
        for optimizer, peak in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * schedule.rate(step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = run(sample_batch(tokens, schedule, step))
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % schedule.checkpoint_every == 0 or step == schedule.steps:
            _save(checkpoint, step, model, optimizers)
        yield StepsDone(step, value.item())


Optimizers = list[tuple[torch.optim.Optimizer, float]]


def _optimizers(model: nn.Module, schedule: Schedule) -> Optimizers:
    ends = ("embed", "lm_head")
    hidden = [
        p for n, p in model.named_parameters() if p.ndim > 1 and not any(end in n for end in ends)
    ]
    ids = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in ids]
    muon = torch.optim.Muon(hidden, weight_decay=0.01)
    adam = torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    return [(muon, schedule.muon_learning_rate), (adam, schedule.learning_rate)]


def _save(path: Path, step: int, model: nn.Module, optimizers: Optimizers) -> None:
    state: dict[str, Any] = {
        "step": step,
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer, _ in optimizers],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    try:
        torch.save(state, part)
        os.replace(part, path)  # atomic: either the old or the new file remains
    except (OSError, RuntimeError) as error:  # torch raises the latter where a disk is full
        part.unlink(missing_ok=True)
        raise OSError(f"cannot write {path}: {reason_of(error)}") from error


def _restore(path: Path, model: nn.Module, optimizers: Optimizers) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for (optimizer, _), saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return int(state["step"])
