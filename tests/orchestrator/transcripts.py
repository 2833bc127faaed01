"""Events for the transcripts of strategies."""

from __future__ import annotations

from collections.abc import Mapping

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.drafting import TopK
from specmesh.decoding.sampling import Distribution
from specmesh.orchestrator.strategies.events import Drafted, Verified


def drafted(
    task: int,
    *tokens: int,
    parent: int = 0,
    last: bool = True,
    choices: Mapping[int, TopK] | None = None,
    distributions: Mapping[int, Distribution] | None = None,
) -> Drafted:
    """A chain of nodes that are numbered from ``parent`` + 1, below ``parent``."""
    parents = tuple(range(parent, parent + len(tokens)))
    return Drafted(task, tokens, parents, distributions or {}, last, choices or {})


def verified(task: int, *accepted: int, says: int, more: bool = False) -> Verified:
    return Verified(task, Verdict(accepted, says, recovered=False), more=more)
