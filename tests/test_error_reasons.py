"""Every reason that a client may be told is declared in errors.proto, with its status."""

import ast
from pathlib import Path

import grpc
import pytest

from specmesh.serving import errors
from specmesh.v1 import errors_pb2

REPOSITORY = Path(__file__).parents[1]
SOURCES = [
    file
    for root in ("services", "orchestrator")
    for file in sorted((REPOSITORY / root / "specmesh").rglob("*.py"))
]
CODES = {
    name: kind.code
    for name, kind in vars(errors).items()
    if isinstance(kind, type)
    and issubclass(kind, errors.ServiceError)
    and kind is not errors.ServiceError
}
AMONG_PROCESSES = {
    *("PREFIX_UNKNOWN", "QUEUE_FULL", "KV_CACHE_FULL", "OUT_OF_MEMORY", "ENGINE_BROKEN"),
    *("COMPILER_BUSY", "BAD_ASSESSMENT", "ANSWER_TOO_LARGE", "CANCELLED"),
}
"""Reasons that replicas give an orchestrator, which deals with them."""


def raised():
    """The reason and the status of each error that the code builds with a literal reason."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                reason = node.args[0]
                if node.func.id in CODES and isinstance(reason, ast.Constant):
                    yield reason.value, CODES[node.func.id]


def told_values():
    """The reason, and the keys of its metadata (None: it has none), of each error whose message has
    values in it, or that has metadata."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                reason, *rest = node.args
                if node.func.id in CODES and isinstance(reason, ast.Constant):
                    if len(rest) > 1 and isinstance(rest[1], ast.Dict):
                        yield reason.value, {key.value for key in rest[1].keys}
                    elif len(rest) == 1 and isinstance(rest[0], ast.JoinedStr):
                        yield reason.value, None


def declared():
    """The status of each declared reason."""
    for value in errors_pb2.ErrorReason.DESCRIPTOR.values:
        if value.number:
            traits = value.GetOptions().Extensions[errors_pb2.error]
            yield value.name.removeprefix("ERROR_REASON_"), traits


def test_every_reason_that_is_raised_is_declared_with_its_status():
    codes = {name: traits.grpc_code for name, traits in declared()}
    found = {(reason, code.value[0]) for reason, code in raised()}
    told = {each for each in found if each[0] not in AMONG_PROCESSES}
    assert sorted(told - codes.items()) == []
    assert len(found) > 20


def test_what_a_message_tells_is_in_the_metadata_under_declared_keys():
    # Their messages repeat what another program has said, or tell how long a limit is.
    texts_alone = {"VERIFIER_LOST", "CHAT_REFUSED", "UNAUTHENTICATED", "READER_STALLED"}
    of_bytes_held = {"OVERLOADED"}  # those of `admission` have numbers
    keys = {name: set(traits.metadata) for name, traits in declared()}
    found = [each for each in told_values() if each[0] not in AMONG_PROCESSES]
    assert {reason for reason, given in found if given is None} - texts_alone == of_bytes_held
    for reason, given in found:
        assert (given or set()) <= keys[reason], reason
    assert sum(given is not None for _, given in found) > 10


def test_every_declared_reason_is_raised():
    # By ``to_status``, by ``internal_status``, by a subclass.
    built_elsewhere = {"INVALID_FIELD", "INTERNAL", "REQUEST_BREAKS_REPLICAS"}
    names = {name for name, _ in declared()}
    assert sorted(names - {reason for reason, _ in raised()} - built_elsewhere) == []


@pytest.mark.parametrize(("name", "traits"), list(declared()))
def test_what_is_unavailable_or_too_much_may_be_tried_again_and_nothing_else(name, traits):
    retry = {
        grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]: errors_pb2.RETRY_LATER,
        grpc.StatusCode.UNAVAILABLE.value[0]: errors_pb2.RETRY_ELSEWHERE,
        grpc.StatusCode.INTERNAL.value[0]: errors_pb2.RETRY_ELSEWHERE,
    }
    assert traits.retry == retry.get(traits.grpc_code, errors_pb2.RETRY_NEVER), name
