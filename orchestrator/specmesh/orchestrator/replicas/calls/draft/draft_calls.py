"""The calls of one request to drafters."""

from __future__ import annotations

import asyncio

from specmesh.orchestrator.replicas.calls.command_context import CommandContext
from specmesh.orchestrator.replicas.calls.draft.draft_call import Done, DraftCall
from specmesh.orchestrator.replicas.calls.draft.incoming_draft import Deliver
from specmesh.orchestrator.replicas.calls.request_context import RequestContext
from specmesh.orchestrator.replicas.retries.attempts import Quarantined
from specmesh.orchestrator.strategies.commands import Draft


class DraftCalls:
    """Requests drafts."""

    def __init__(self, request: RequestContext) -> None:
        self._request = request
        self._quarantined: Quarantined | None = None
        """Set once a draft has broken several drafters, because the next one would too."""

    def begin(
        self, command: Draft, context: CommandContext, deliver: Deliver, done: Done
    ) -> DraftCall:
        """Begin a draft. Its levels go to ``deliver`` as they arrive; unless it is cancelled,
        ``done`` is told its end, with ``AioRpcError`` or ``ServiceError`` if it has failed. Neither
        is told anything before this returns.

        An attempt that fails after its first tokens is not repeated: those tokens still count.
        """

        def ended(error: Exception | None) -> None:
            if isinstance(error, Quarantined):
                self._quarantined = error
            done(error)

        drafting = DraftCall(self._request, command, context, deliver, ended)
        if self._quarantined is None:
            drafting.begin()
        else:
            asyncio.get_running_loop().call_soon(drafting.refuse, self._quarantined)
        return drafting
