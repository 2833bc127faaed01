"""The likelihood of a text."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass

from specmesh.client.answers.values import TokenLogprobs, logprobs_from
from specmesh.v1 import scoring_pb2


@dataclass(frozen=True, slots=True)
class TextScore:
    """The likelihood of a text under the target.

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


async def score_from(pieces: AsyncIterable[scoring_pb2.ScoreResponse]) -> TextScore:
    """Join the messages of a response; each is converted as it comes, for the sake of the event
    loop."""
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    model_fingerprint = ""
    async for piece in pieces:
        token_ids += piece.token_ids
        logprobs += map(logprobs_from, piece.logprobs)
        model_fingerprint = piece.model_fingerprint
    return TextScore(tuple(token_ids), tuple(logprobs), model_fingerprint)
