"""Between a session and an answer: what is stored of a request, and what its client says it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from specmesh.decoding.errors import InvalidField
from specmesh.decoding.thresholds import FilterOptions
from specmesh.orchestrator.plan import RequestPlan
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.options import OPTIONS
from specmesh.serving.errors import Aborted, NotFound, Unavailable
from specmesh.serving.session import (
    Generated,
    SessionNotFound,
    StaleEpoch,
    StoreUnavailable,
)
from specmesh.serving.wire import check_tokens, write_filter_options, write_sampling
from specmesh.v1 import generation_pb2, sampling_pb2


def settled(plan: RequestPlan, model: str) -> generation_pb2.GenerateRequest:
    """The request with every default filled in and without its prompt, which the session keeps
    as tokens: it means the same anywhere, and is no larger than a plan can be."""
    goal = plan.goal
    request = generation_pb2.GenerateRequest(
        model=model,
        sampling=write_sampling(plan.sampling),
        stopping=sampling_pb2.StoppingCriteria(
            max_tokens=goal.max_tokens,
            stop_token_ids=sorted(goal.stop_token_ids),
            stop_strings=plan.stop_strings,
            ignore_end_of_text=not goal.end_of_text_ids,
        ),
        speculation=generation_pb2.SpeculationOptions(
            strategy=plan.strategy, **{name: getattr(goal, name) for name in OPTIONS}
        ),
    )
    if plan.filter_options != FilterOptions():
        request.speculation.filter.CopyFrom(write_filter_options(plan.filter_options))
    return request


def read_received(message: generation_pb2.Received, goal: Goal, vocab_size: int) -> Generated:
    """What a client says it has of an answer; raises ``InvalidField`` for what no answer to this
    request can be."""
    token_ids, unchecked = tuple(message.token_ids), tuple(message.unchecked)
    if len(token_ids) > goal.max_tokens:
        raise InvalidField(
            "received.token_ids",
            f"holds {len(token_ids)} tokens, more than the {goal.max_tokens} that the answer may "
            "have",
        )
    check_tokens("received.token_ids", token_ids, vocab_size)
    ends = goal.end_of_text_ids | goal.stop_token_ids
    if not ends.isdisjoint(token_ids[:-1]):
        raise InvalidField("received.token_ids", "goes on after a token that ends the answer")
    if any(later <= earlier for earlier, later in pairwise(unchecked)) or (
        unchecked and unchecked[-1] >= len(token_ids)
    ):
        raise InvalidField("received.unchecked", "must be ascending positions in token_ids")
    return Generated(token_ids, frozenset(unchecked))


@contextmanager
def told() -> Iterator[None]:
    """What a client is told where its session can't be taken over."""
    try:
        yield
    except SessionNotFound as error:
        raise NotFound("SESSION_NOT_FOUND", str(error)) from error
    except StaleEpoch as error:
        current = {"current_epoch": str(error.current_epoch)}
        raise Aborted("STALE_EPOCH", str(error), current) from error
    except StoreUnavailable as error:
        raise Unavailable("STORE_UNAVAILABLE", str(error)) from error
