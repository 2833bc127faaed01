"""The criteria for the end of an answer, checked and settled."""

from __future__ import annotations

from dataclasses import dataclass

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.request_limits import (
    MAX_STOP_STRING_CHARS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKENS,
)
from specmesh.orchestrator.replicas.target import Target
from specmesh.serving.codec.wire import check_tokens, used
from specmesh.v1 import generation_pb2, sampling_pb2


@dataclass(frozen=True, slots=True)
class Stopping:
    """The criteria for the end of an answer, named as in ``StoppingCriteria``."""

    max_tokens: int
    """The most tokens of the answer: at least 1, and at most what fits the context."""
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    ignore_end_of_text: bool = False
    include_stop_string: bool = False


def read_stopping(
    request: generation_pb2.GenerateRequest, target: Target, num_prompt: int
) -> Stopping:
    """Return the criteria of ``request``, whose prompt has ``num_prompt`` tokens. Raises
    ``InvalidField``."""
    stopping = request.stopping
    max_tokens = _max_tokens(request, target, num_prompt)
    if len(stopping.stop_token_ids) > MAX_STOP_TOKENS:
        raise InvalidField("stopping.stop_token_ids", f"has more than {MAX_STOP_TOKENS} entries")
    check_tokens("stopping.stop_token_ids", stopping.stop_token_ids, target.info.vocab_size)
    if len(stopping.stop_strings) > MAX_STOP_STRINGS:
        raise InvalidField("stopping.stop_strings", f"has more than {MAX_STOP_STRINGS} entries")
    for index, stop in enumerate(stopping.stop_strings):
        if not 0 < len(stop) <= MAX_STOP_STRING_CHARS:
            raise InvalidField(
                f"stopping.stop_strings[{index}]",
                f"must have 1 to {MAX_STOP_STRING_CHARS} characters",
            )
    given = {field.name: value for field, value in stopping.ListFields()}
    lists = {
        "stop_token_ids": tuple(sorted(set(stopping.stop_token_ids))),
        "stop_strings": tuple(stopping.stop_strings),
    }
    return Stopping(**given | lists | {"max_tokens": max_tokens})


def write_stopping(stopping: Stopping) -> sampling_pb2.StoppingCriteria:
    """Return the message for ``stopping``."""
    return sampling_pb2.StoppingCriteria(**used(stopping))


def _max_tokens(request: generation_pb2.GenerateRequest, target: Target, num_prompt: int) -> int:
    """Return the requested number of tokens, at most what fits the context and the KV cache."""
    room = target.info.context_tokens - num_prompt
    if request.stopping.HasField("max_tokens"):
        if not request.stopping.max_tokens:
            raise InvalidField("stopping.max_tokens", "must be at least 1")
        return min(request.stopping.max_tokens, room)
    if told := request.received.max_tokens:
        return min(told, room)
    # A new answer must fit every replica, to be finished on any of them. A resumed answer whose
    # first orchestrator did not report max_tokens must fit at least one current replica.
    has_begun = request.HasField("received")
    capacity = target.most_kv_capacity_tokens if has_begun else target.kv_capacity_tokens
    return min(room, max(1, capacity - num_prompt)) if capacity else room
