"""The models of a local mesh, as command-line arguments of its processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

DRAFTER_BACKENDS = ("ngram", "prompt-lookup", "random")
"""Drafters without a model, which use the target's tokenizer. Listed here because importing
``inference/backends``, which registers them, takes half a second."""


class EngineBackend(StrEnum):
    """The engine that runs a model loaded from disk or Hugging Face."""

    TRANSFORMERS = "transformers"
    VLLM = "vllm"


class Models(Protocol):
    """A target and the drafters for it."""

    def verifier(self) -> Sequence[str]:
        """Return the arguments of a verifier."""
        ...

    def drafters(self) -> Sequence[Sequence[str]]:
        """Return the arguments of each drafter, in order of preference."""
        ...


@dataclass(frozen=True, slots=True)
class RealModels:
    """Real models, loaded from disk or Hugging Face."""

    target: str
    """Folder or Hugging Face id of the target."""
    drafter_names: tuple[str, ...]
    """Folder or Hugging Face id of each drafter, or one of DRAFTER_BACKENDS."""
    threads: int = 1
    """Number of threads of each process."""
    chat_template: Path | None = None
    """Template that replaces the target's own, if any."""
    heads: Path | None = None
    """Folder of heads trained for the target."""
    backend: EngineBackend = EngineBackend.TRANSFORMERS
    """Engine of the target."""
    drafter_backend: EngineBackend = EngineBackend.TRANSFORMERS
    """Engine of the drafters that are models."""
    revision: str = ""
    """Revision of a target from Hugging Face; empty selects the main branch."""
    drafter_revisions: tuple[str, ...] = ()
    """Revision of each drafter that is a model, in their order; empty selects main branches."""

    def verifier(self) -> Sequence[str]:
        """Return the arguments of a verifier that loads the target."""
        files = (("--chat-template", self.chat_template), ("--heads", self.heads))
        given = (part for flag, file in files if file is not None for part in (flag, str(file)))
        model = ("--backend", self.backend, "--model", self.target)
        return (*model, *_of(self.revision), "--threads", str(self.threads), *given)

    def drafters(self) -> Sequence[Sequence[str]]:
        """Return the arguments of each named drafter, in that order."""
        revisions = iter(self.drafter_revisions)
        return [
            (*self._drafter(name, revisions), "--threads", str(self.threads))
            for name in self.drafter_names
        ]

    def _drafter(self, name: str, revisions: Iterator[str]) -> tuple[str, ...]:
        if name not in DRAFTER_BACKENDS:
            model = ("--backend", self.drafter_backend, "--model", name)
            return (*model, *_of(next(revisions, "")))
        corpus = ("--corpus", "stdlib") if name == "ngram" else ()
        return ("--backend", name, "--tokenizer", self.target, *_of(self.revision), *corpus)


def _of(revision: str) -> tuple[str, ...]:
    return ("--revision", revision) if revision else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingModels:
    """Simulated models that wait instead of computing; ``acceptance`` and ``seed`` determine where
    drafter and target agree. Up to ``batch`` calls share a forward pass.

    If ``heads_ms`` is set, the target has heads, which take this long per level and draft up to
    ``heads_depth`` levels.
    """

    target_ms: float
    drafter_ms: float
    acceptance: float
    seed: int = 0
    heads_ms: float | None = None
    heads_depth: int = 5
    heads_acceptance: float = 0.8
    batch: int = 1
    vocab_size: int = 256

    def verifier(self) -> Sequence[str]:
        """Return the arguments of a verifier whose forward passes take ``target_ms``."""
        heads = (
            *("--simulated-heads-depth", str(self.heads_depth)),
            *("--simulated-heads-ms", str(self.heads_ms)),
            *("--simulated-heads-acceptance", str(self.heads_acceptance)),
        )
        return (*self._simulated(self.target_ms), *(() if self.heads_ms is None else heads))

    def drafters(self) -> Sequence[Sequence[str]]:
        """Return the arguments of one drafter whose forward passes take ``drafter_ms``."""
        drafter = self._simulated(self.drafter_ms)
        return [(*drafter, "--simulated-acceptance", str(self.acceptance))]

    def _simulated(self, each_ms: float) -> tuple[str, ...]:
        return (
            *("--backend", "simulated"),
            *("--simulated-seed", str(self.seed)),
            *("--simulated-batch", str(self.batch)),
            *("--simulated-vocab-size", str(self.vocab_size)),
            *("--simulated-each-ms", str(each_ms)),
        )
