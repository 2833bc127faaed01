"""The generated tokens of one answer on their way from the driver to the client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from specmesh.orchestrator.mailbox import Mailbox
from specmesh.orchestrator.strategies.base import Commit, StopReason
from specmesh.orchestrator.text import TextStream


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """One committed token, its index among the generated ones, the text it completes, and whether
    the target checked it."""

    index: int
    token_id: int
    text: str
    checked: bool


class Emission:
    """Every committed token once and in order, with its text, up to the end of a stop string."""

    def __init__(self, text: TextStream) -> None:
        self.num_tokens = 0
        self.num_unchecked = 0
        self._text = text
        self._outbox: Mailbox[EmittedToken] = Mailbox()

    def commit(self, commit: Commit) -> StopReason | None:
        """Emit the tokens, up to the one that completes a stop string; that ends the answer."""
        for token in commit.token_ids:
            text = self._text.push(token)
            self._outbox.put(EmittedToken(self.num_tokens, token, text, commit.checked))
            self.num_unchecked += not commit.checked
            self.num_tokens += 1
            if self._text.stopped:
                return StopReason.STOP
        return None

    async def wait(self, seconds: float) -> None:
        """Return when there are tokens to take, after ``wake``, or after ``seconds``."""
        await self._outbox.wait(asyncio.get_running_loop().time() + seconds)

    def wake(self) -> None:
        """End ``wait``, with or without tokens."""
        self._outbox.wake()

    def take(self) -> list[EmittedToken]:
        """The tokens emitted since the last call."""
        return [self._outbox.take() for _ in range(len(self._outbox))]

    def end(self, reason: StopReason) -> tuple[str, StopReason]:
        """The text held back until now, and why the answer ends: that text may hold a stop string,
        too."""
        text = self._text.flush()
        return text, StopReason.STOP if self._text.stopped else reason
