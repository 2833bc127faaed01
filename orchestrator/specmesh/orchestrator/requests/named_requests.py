"""Idempotent starts: the session that the id of a request stands for.

Session, resume token and seed are functions of what the client sends, so that any orchestrator
finds the session of a request that is sent again, and one that the store has lost begins anew with
the same seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.admission.request_limits import MAX_REQUEST_ID_CHARS, SEED_BITS
from specmesh.orchestrator.strategies import LOSSLESS
from specmesh.serving.store.stored_session import Claim
from specmesh.v1 import generation_pb2


@dataclass(frozen=True, slots=True)
class NamedRequest:
    """What a request with an id stands for: a session, and the seed if it names none."""

    claim: Claim
    seed: int


def named(request: generation_pb2.GenerateRequest, owner: str) -> NamedRequest | None:
    """What ``request`` of the identity ``owner`` stands for; None if it has no id.

    Another request under the same id has another resume token, so that the session isn't its own.
    Raises ``InvalidField``.
    """
    request_id = request.request_id
    if len(request_id) > MAX_REQUEST_ID_CHARS:
        raise InvalidField("request_id", f"has more than {MAX_REQUEST_ID_CHARS} characters")
    if not request_id:
        return None
    name = (owner.encode(), request_id.encode())
    seed = int.from_bytes(_derived(b"seed", *name), "little") >> (128 - SEED_BITS)
    claim = Claim(
        session_id=_derived(b"session", *name).hex(),
        resume_token=_derived(b"resume token", *name, _meaning(request, seed)),
        owner=owner,
    )
    return NamedRequest(claim, seed)


def _meaning(request: generation_pb2.GenerateRequest, seed: int) -> bytes:
    """What all requests for one answer have in common: also those that name what
    GenerationStarted has told, the seed and the strategy, which doesn't change the text."""
    common = generation_pb2.GenerateRequest()
    common.CopyFrom(request)
    common.ClearField("received")
    common.ClearField("epoch")
    common.ClearField("model_fingerprint")
    common.ClearField("request_id")
    if not common.sampling.HasField("seed"):
        common.sampling.seed = seed
    if common.speculation.strategy in LOSSLESS:
        common.speculation.ClearField("strategy")
    if not common.speculation.ByteSize():
        common.ClearField("speculation")
    return common.SerializeToString(deterministic=True)


def _derived(purpose: bytes, *parts: bytes) -> bytes:
    """128 bits that nobody can tell who doesn't know all ``parts``."""
    hashed = blake2b(digest_size=16, person=purpose)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()
