"""A verifier process whose engine dies of the token 1, and hangs at the token 2."""

from __future__ import annotations

import asyncio
import sys
import time

from specmesh.inference.models.simulated.empty import EmptyModel
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.server import serve
from specmesh.verifier.__main__ import VerifierService, VerifierSettings

DIES, HANGS = 1, 2


class BreakingModel(EmptyModel):
    def open(self, prefix, cancellation, room=0):
        sequence = super().open(prefix, cancellation, room)
        sequence.last = prefix[-1]
        return sequence

    def forward(self, asks):
        (ask,) = asks
        if ask.sequence.last == DIES:
            return []  # not an answer for each
        if ask.sequence.last == HANGS:
            time.sleep(1e6)
        return super().forward(asks)


class BreakingService(VerifierService):
    def load(self):
        return BreakingModel()


if __name__ == "__main__":
    settings = parse(VerifierSettings, sys.argv[1:], "breaking-verifier")
    sys.exit(asyncio.run(serve(settings, BreakingService(settings))))
