"""vLLM's scheduler, for requests whose logits are wanted.

It is imported by its name, by vLLM, and nowhere else: importing it imports vLLM.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from specmesh.inference.models.vllm.rows import FIRST_ROW


class ScoringScheduler(Scheduler):  # type: ignore[misc] # vLLM is in another environment
    """Takes from the prefix cache no token whose logits are wanted.

    What a verification has computed of its draft stays cached under the hashes of its blocks, which
    is right whether it was accepted or not; but a call that has the same draft again needs logits,
    which no cache has.
    """

    def _get_local_prefix_cache_hit(self, request: Any) -> Any:
        return super()._get_local_prefix_cache_hit(_BeforeRows(request))


class _BeforeRows:
    """A request as it would be without the tokens after the first whose logits are wanted."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self.num_tokens = request.sampling_params.extra_args[FIRST_ROW] + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)
