"""The likelihood of a text."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.client.answers.values import TokenLogprobs, logprobs_from
from specmesh.v1 import scoring_pb2


@dataclass(frozen=True, slots=True)
class TextScore:
    """How likely the target finds a text.

    ``token_ids`` are its tokens, and ``logprobs`` those of each token but the first, which follows
    nothing. ``model_fingerprint`` identifies the model, its weights and their dtype.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    model_fingerprint: str

    @property
    def logprob(self) -> float:
        """The log-probability of the whole text, given its first token."""
        return sum(each.chosen.logprob for each in self.logprobs)


def score_from(message: scoring_pb2.ScoreResponse) -> TextScore:
    """Convert a response."""
    return TextScore(
        token_ids=tuple(message.token_ids),
        logprobs=tuple(map(logprobs_from, message.logprobs)),
        model_fingerprint=message.model_fingerprint,
    )
