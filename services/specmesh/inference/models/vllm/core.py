"""vLLM's engine core in this process, driven step by step: no threads, queues or clients of its
own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.inference.model import DeviceLost, Logits, ModelNotLoadable
from specmesh.inference.models.vllm.kv_use import KvUse
from specmesh.inference.models.vllm.options import CoreOptions, engine_config
from specmesh.inference.models.vllm.rows import CALLS, ScoringWorker

SCHEDULER = "specmesh.inference.models.vllm.scheduler.ScoringScheduler"
WORKER = f"{ScoringWorker.__module__}.{ScoringWorker.__qualname__}"


@dataclass(frozen=True, slots=True)
class Part:
    """What a step did for one request: from token ``start`` on it computed ``num_computed``.

    ``rows`` ``[n, vocab]`` are the logits of those of them that were wanted, and ``is_last``
    whether no more will come.
    """

    start: int
    num_computed: int
    rows: Logits
    is_last: bool


class Core:
    """Requests go in, steps give their logits. For one thread alone."""

    def __init__(self, options: CoreOptions) -> None:
        """Load the model; raises ``ModelNotLoadable``, or whatever vLLM raises."""
        set_num_threads = torch.set_num_threads
        config = engine_config(options, scheduler_cls=SCHEDULER, worker_extension_cls=WORKER)
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor.abstract import Executor

        try:
            self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        except ValueError as error:
            if "KV cache" not in str(error):
                raise
            raise ModelNotLoadable(
                f"--cache-bytes has no room for a context of {options.context_tokens} tokens: "
                f"{error}"
            ) from error
        self._core.collective_rpc(ScoringWorker.give_rows.__name__)
        torch.set_num_threads = set_num_threads  # on CPUs it puts a warning there
        self._scheduler: Any = self._core.scheduler
        self._names = map(str, count())
        self._requests: dict[str, Any] = {}
        """Those whose call is under way."""
        self._under_way: deque[tuple[Any, list[Any]]] = deque()
        """Steps, with their results: one, or as many as there are stages of a pipeline."""

        self.block_tokens = int(self._scheduler.block_size)
        """How many tokens of KV are found again together."""
        if self.block_tokens % BLOCK_TOKENS:
            raise ModelNotLoadable(
                f"vLLM keeps the KV of this model in blocks of {self.block_tokens} tokens, no "
                f"multiple of {BLOCK_TOKENS}"
            )
        pool = self._scheduler.kv_cache_manager.block_pool
        self.kv = KvUse(
            pool, self.block_tokens, self._scheduler.tails, self._scheduler.blocks_of_idle
        )

    def add(self, chain: PrefixChain, first_row: int) -> str:
        """Ask for the logits after ``chain[first_row]`` and after all tokens behind it. Returns the
        name by which parts have it, up to the last."""
        from specmesh.inference.models.vllm.scheduler import ScoringRequest

        request = self._scheduler.go_on(chain, first_row)
        if request is None:
            request = ScoringRequest(next(self._names), chain, first_row, self.block_tokens)
            self._core.add_request(request)
        self._requests[request.request_id] = request
        return str(request.request_id)

    def drop(self, name: str) -> None:
        """Take out a call that is no longer wanted."""
        if self._requests.pop(name, None) is not None:
            self._core.abort_requests([name])

    def step(self) -> dict[str, Part]:
        """One forward pass for as many requests as it has room for; by name, what it did.

        Raises ``DeviceLost`` if it fails: the core is then between two states, and of no more use.
        """
        try:
            while True:
                scheduled, output = self._next_step()
                if scheduled.num_scheduled_tokens:
                    break
                if not self._under_way:
                    raise DeviceLost("vLLM has requests, and computes for none of them")
        except DeviceLost:
            raise
        except Exception as error:
            raise DeviceLost(f"vLLM failed: {error!r}") from error
        return {
            name: self._part(name, start, scheduled.num_scheduled_tokens[name], output)
            for name, start in _starts(scheduled)
            if name in self._requests  # else it was dropped meanwhile
        }

    def _next_step(self) -> tuple[Any, Any]:
        """What was scheduled for the oldest step under way, and what came of it.

        Stages of a pipeline work at different steps at the same time.
        """
        executor = self._core.model_executor
        while len(self._under_way) < self._core.batch_queue_size:
            scheduled = self._scheduler.schedule()
            results = [executor.execute_model(scheduled, non_block=True)]
            if scheduled.num_scheduled_tokens:
                results.append(executor.sample_tokens(None, non_block=True))
            self._under_way.append((scheduled, results))
            if not scheduled.num_scheduled_tokens:
                break
        scheduled, results = self._under_way.popleft()
        calls = getattr(scheduled, CALLS)
        for name, start in _starts(scheduled):
            if name in calls:
                self.kv.count(calls[name].num_tokens, start)
        *_, output = [each.result() for each in results]
        self._scheduler.update_from_output(scheduled, output)
        return scheduled, output

    def on_failure(self, tell: Callable[[str], None]) -> None:
        """Have ``tell`` called if one of vLLM's processes dies; its own log says which."""
        self._core.model_executor.register_failure_callback(
            lambda: tell("a process of vLLM's has died")
        )

    def close(self) -> None:
        """End vLLM's processes."""
        self._core.shutdown()

    def _part(self, name: str, start: int, num_computed: int, output: Any) -> Part:
        rows: Logits = output.pooler_output[output.req_id_to_index[name]].numpy()
        is_last = self._requests[name].is_answered
        if is_last:
            del self._requests[name]
        return Part(start, num_computed, rows.astype(np.float32, copy=False), is_last)


def _starts(scheduled: Any) -> list[tuple[str, int]]:
    """Which tokens a step begins with, by request: those before were computed or cached."""
    again = scheduled.scheduled_cached_reqs
    return [
        *((each.req_id, each.num_computed_tokens) for each in scheduled.scheduled_new_reqs),
        *zip(again.req_ids, again.num_computed_tokens, strict=True),
    ]
