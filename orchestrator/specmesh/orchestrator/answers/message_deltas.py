"""Messages for the pieces of a model's message."""

from __future__ import annotations

import string
from collections.abc import Iterable
from hashlib import blake2b

from specmesh.orchestrator.parsing.pieces import CallPiece, ContentPiece, Piece, merged
from specmesh.v1.events_pb2 import MessageDelta, ToolCallDelta

LETTERS = string.ascii_letters + string.digits
ID_CHARS = 9
"""Mistral's templates refuse ids of any other length."""


class MessageDeltas:
    """Writes the pieces of one answer. The ids of its calls are functions of the answer's ``seed``
    and its prompt, so that they are the same where it is resumed."""

    def __init__(self, seed: int, prompt_digest: bytes) -> None:
        self._key = seed.to_bytes(8, "little") + prompt_digest

    def written(self, pieces: Iterable[Piece]) -> list[MessageDelta]:
        """Return the messages for ``pieces``, joined as far as possible."""
        return [self._delta(piece) for piece in merged(pieces)]

    def _delta(self, piece: Piece) -> MessageDelta:
        if isinstance(piece, CallPiece):
            call = ToolCallDelta(
                index=piece.index,
                id=self._id(piece.index) if piece.name else "",
                name=piece.name,
                arguments=piece.arguments,
            )
            return MessageDelta(tool_call=call)
        if isinstance(piece, ContentPiece):
            return MessageDelta(content=piece.text)
        return MessageDelta(reasoning_content=piece.text)

    def _id(self, index: int) -> str:
        digest = blake2b(self._key, digest_size=8, salt=index.to_bytes(8, "little")).digest()
        number = int.from_bytes(digest, "little")
        return "".join(LETTERS[number // len(LETTERS) ** n % len(LETTERS)] for n in range(ID_CHARS))
