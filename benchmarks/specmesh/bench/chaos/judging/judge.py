"""The comparison of what a reader saw with what the target says and what the store holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from specmesh.bench.chaos.answers import ChaosAnswer
from specmesh.bench.chaos.judging.truth import Truth
from specmesh.client import FinishReason

_ALIKE = 4
"""Number of consecutive equal tokens that rules out coincidence."""


class AnswerVerdict(StrEnum):
    """The verdict on an answer's tokens."""

    RIGHT = "right"
    LOST = "lost"
    """Tokens are missing."""
    DOUBLED = "doubled"
    """Tokens came twice."""
    CHANGED = "changed"
    """Tokens are wrong."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The tokens of a session in the store after its answer.

    ``token_ids`` are the generated ones; None if the store couldn't be read or has no such session.
    ``durable`` says that the store has lost nothing since the answer began.
    """

    token_ids: tuple[int, ...] | None
    durable: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on an answer, with its reason. ``exact`` means finished and equal to what the
    target alone says, ``agreed`` finished and equal to what the store holds. Both are False if
    unknown."""

    fate: AnswerVerdict
    why: str = ""
    exact: bool = False
    agreed: bool = False


def judge(answer: ChaosAnswer, truth: Truth, stored: Stored) -> Judgement:
    """Judge an answer, finished or not."""
    fate, why = _against_itself(answer)
    expected = truth.tokens(answer.request, len(answer.token_ids))
    if fate is AnswerVerdict.RIGHT:
        fate, why = _against_target(answer, truth, expected)
    agreed = False
    if fate is AnswerVerdict.RIGHT:
        fate, why, agreed = _against_store(answer, stored)
    right = fate is AnswerVerdict.RIGHT
    exact = right and answer.finished and expected is not None
    return Judgement(fate, "" if right else why, exact, agreed)


def compare(said: Sequence[int], true: Sequence[int]) -> AnswerVerdict:
    """Compare ``said`` with the beginning of ``true``. After the first difference, later tokens of
    ``true`` mean that some were lost, earlier ones that some came twice."""
    position = next((n for n, (a, b) in enumerate(zip(said, true, strict=False)) if a != b), None)
    if position is None:
        return AnswerVerdict.RIGHT if len(said) <= len(true) else AnswerVerdict.CHANGED
    rest = tuple(said[position : position + _ALIKE])
    if len(rest) == _ALIKE:
        for start in range(len(true) - _ALIKE + 1):
            if tuple(true[start : start + _ALIKE]) == rest:
                return AnswerVerdict.LOST if start > position else AnswerVerdict.DOUBLED
    return AnswerVerdict.CHANGED


def _against_itself(answer: ChaosAnswer) -> tuple[AnswerVerdict, str]:
    """Check that chunks leave no gap and that the answer ends where it must."""
    request, num_tokens = answer.request, len(answer.token_ids)
    if answer.gap:
        return (
            AnswerVerdict.LOST if answer.gap > 0 else AnswerVerdict.DOUBLED
        ), f"a gap of {answer.gap} tokens"
    if num_tokens > request.max_tokens:
        return AnswerVerdict.DOUBLED, f"{num_tokens} tokens, {request.max_tokens} were requested"
    if answer.finish_reason is FinishReason.LENGTH and num_tokens < request.max_tokens:
        return AnswerVerdict.LOST, f"{num_tokens} tokens, {request.max_tokens} were requested"
    *before, last = answer.token_ids or [-1]
    if answer.finish_reason is FinishReason.STOP and last not in request.stop_token_ids:
        return AnswerVerdict.LOST, "it ends without the stop token"
    if any(token in request.stop_token_ids for token in before):
        return AnswerVerdict.CHANGED, "it goes on after the stop token"
    return AnswerVerdict.RIGHT, ""


def _against_target(
    answer: ChaosAnswer, truth: Truth, expected: Sequence[int] | None
) -> tuple[AnswerVerdict, str]:
    request, said = answer.request, answer.token_ids
    if expected is None:
        position = truth.wrong_position(request, said, answer.unchecked)
        wrong = position is not None
        return (
            AnswerVerdict.CHANGED if wrong else AnswerVerdict.RIGHT
        ), f"token {position} is not the target's"
    if tuple(said) == tuple(expected):
        return AnswerVerdict.RIGHT, ""
    longer = truth.tokens(request, 2 * request.max_tokens) or expected
    return compare(said, longer), _first_difference("the target alone says", said, longer)


def _against_store(answer: ChaosAnswer, stored: Stored) -> tuple[AnswerVerdict, str, bool]:
    """Check that the store holds the same tokens, and all of them if the answer is resumable."""
    held = stored.token_ids
    promised = answer.finished and answer.resumable and stored.durable
    if held is None:
        lost = promised
        return (
            (AnswerVerdict.LOST if lost else AnswerVerdict.RIGHT),
            "the session is not in the store",
            False,
        )
    if promised and len(held) < len(answer.token_ids):
        return (
            AnswerVerdict.LOST,
            f"the store has {len(held)} of {len(answer.token_ids)} tokens",
            False,
        )
    if answer.finished and len(held) > len(answer.token_ids):
        return (
            AnswerVerdict.LOST,
            f"the store has {len(held)} tokens, {len(answer.token_ids)} came",
            False,
        )
    common = min(len(held), len(answer.token_ids))
    fate = compare(answer.token_ids[:common], held)
    why = _first_difference("the store has", answer.token_ids[:common], held)
    return (
        fate,
        why,
        fate is AnswerVerdict.RIGHT and answer.finished and common == len(answer.token_ids),
    )


def _first_difference(who: str, said: Sequence[int], true: Sequence[int]) -> str:
    for position, (one, other) in enumerate(zip(said, true, strict=False)):
        if one != other:
            return f"token {position} of {len(said)}: {who} {other}, the reader got {one}"
    return f"{who} less"
