"""Idempotent starts: a request id determines the session of its answer.

Session, resume token and seed are functions of the request. Any orchestrator therefore finds the
session of a request that is sent again, and a session that the store has lost starts over with the
same seed.
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
    """The id of a request from the identity ``owner``, and what follows from it."""

    owner: str
    request_id: str

    @property
    def seed(self) -> int:
        """The seed used if the request names none."""
        return int.from_bytes(_derived(b"seed", *self._name), "little") >> (128 - SEED_BITS)

    def claim(self, request: generation_pb2.GenerateRequest) -> Claim:
        """Return the session of ``request``, all of which is hashed: its size must be checked.

        A different request with the same id gets a different resume token and therefore cannot take
        the session.
        """
        return Claim(
            session_id=_derived(b"session", *self._name).hex(),
            resume_token=_derived(b"resume token", *self._name, _meaning(request, self.seed)),
            owner=self.owner,
        )

    @property
    def _name(self) -> tuple[bytes, bytes]:
        return self.owner.encode(), self.request_id.encode()


def named(request: generation_pb2.GenerateRequest, owner: str) -> NamedRequest | None:
    """Return what the id of ``request`` from the identity ``owner`` stands for; None without an id.
    Raises ``InvalidField`` if the id is too long."""
    request_id = request.request_id
    if len(request_id) > MAX_REQUEST_ID_CHARS:
        raise InvalidField("request_id", f"has more than {MAX_REQUEST_ID_CHARS} characters")
    return NamedRequest(owner, request_id) if request_id else None


def _meaning(request: generation_pb2.GenerateRequest, seed: int) -> bytes:
    """Return the canonical bytes that all requests for one answer share.

    A request that repeats the seed and the strategy from GenerationStarted has the same bytes: the
    strategy is left out if it is lossless and so cannot change the text."""
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
    """Hash ``parts`` to 128 bits that cannot be computed without knowing all of them."""
    hashed = blake2b(digest_size=16, person=purpose)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.digest()
