"""vLLM's engine core in this process, driven step by step, without vLLM's threads, queues or
clients."""

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
from specmesh.inference.models.vllm.loading.kv_need import too_small
from specmesh.inference.models.vllm.options import CoreOptions, engine_config
from specmesh.inference.models.vllm.rows import CALLS, ScoringWorker

SCHEDULER = "specmesh.inference.models.vllm.scheduler.ScoringScheduler"
WORKER = f"{ScoringWorker.__module__}.{ScoringWorker.__qualname__}"


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a step that one request got: ``num_computed`` tokens from token ``start`` on.

    ``rows`` ``[n, vocab]`` are the logits of those tokens that were requested. ``is_last`` is True
    if this is the request's last part.
    """

    start: int
    num_computed: int
    rows: Logits
    is_last: bool


class Core:
    """vLLM's engine core: requests go in, and steps return their logits. Only one thread may use
    it."""

    def __init__(self, options: CoreOptions) -> None:
        """Load the model. Raises ``ModelNotLoadable`` or any vLLM error."""
        set_num_threads = torch.set_num_threads
        config = engine_config(options, scheduler_cls=SCHEDULER, worker_extension_cls=WORKER)
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor.abstract import Executor

        try:
            self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        except ValueError as error:
            num_blocks = config.cache_config.num_gpu_blocks_override
            if refusal := too_small(error, options, num_blocks):
                raise refusal from error
            raise
        self._core.collective_rpc(ScoringWorker.give_rows.__name__)
        torch.set_num_threads = set_num_threads  # on CPUs vLLM replaces it to warn
        self._scheduler: Any = self._core.scheduler
        self._names = map(str, count())
        self._requests: dict[str, Any] = {}
        """Requests of running calls."""
        self._under_way: deque[tuple[Any, list[Any]]] = deque()
        """Steps with their results: one, or one for each pipeline stage."""

        self.max_calls = int(config.scheduler_config.max_num_seqs)
        """The most requests of a step."""
        self.block_tokens = int(self._scheduler.block_size)
        """The number of tokens in a block of vLLM's prefix cache."""
        if self.block_tokens % BLOCK_TOKENS:
            raise ModelNotLoadable(
                f"vLLM keeps the KV of this model in blocks of {self.block_tokens} tokens, not a "
                f"multiple of {BLOCK_TOKENS}"
            )
        pool = self._scheduler.kv_cache_manager.block_pool
        self.kv = KvUse(
            pool, self.block_tokens, self._scheduler.tails, self._scheduler.blocks_of_idle
        )

    def add(self, chain: PrefixChain, first_row: int) -> str:
        """Request the logits after ``chain[first_row]`` and after every later token. Returns the
        name under which ``step`` returns the request's parts, up to the last one."""
        from specmesh.inference.models.vllm.request import ScoringRequest

        request = self._scheduler.go_on(chain, first_row)
        if request is None:
            request = ScoringRequest(next(self._names), chain, first_row, self.block_tokens)
            self._core.add_request(request)
        self._requests[request.request_id] = request
        return str(request.request_id)

    def drop(self, name: str) -> None:
        """Abort a call that is no longer wanted."""
        if self._requests.pop(name, None) is not None:
            self._core.abort_requests([name])

    def step(self) -> dict[str, Part]:
        """Run one forward pass for as many requests as it has room for; return their parts by name.

        Raises ``DeviceLost`` if it fails: the core's state is then inconsistent, so it cannot be
        used again.
        """
        try:
            while True:
                scheduled, output = self._next_step()
                if scheduled.num_scheduled_tokens:
                    break
                if not self._under_way:
                    raise DeviceLost("vLLM has requests but schedules none of them")
        except DeviceLost:
            raise
        except Exception as error:
            raise DeviceLost(f"vLLM failed: {error!r}") from error
        return {
            name: self._part(name, start, scheduled.num_scheduled_tokens[name], output)
            for name, start in _starts(scheduled)
            if name in self._requests  # otherwise it was dropped meanwhile
        }

    def _next_step(self) -> tuple[Any, Any]:
        """Return the schedule of the oldest running step, and its output.

        Pipeline stages work on different steps at the same time.
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
        """Call ``tell`` if one of vLLM's processes dies; vLLM's own log says which."""
        self._core.model_executor.register_failure_callback(
            lambda: tell("one of vLLM's processes has died")
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
    """Return each request with the first token that a step computes of it; earlier tokens were
    computed or cached."""
    again = scheduled.scheduled_cached_reqs
    return [
        *((each.req_id, each.num_computed_tokens) for each in scheduled.scheduled_new_reqs),
        *zip(again.req_ids, again.num_computed_tokens, strict=True),
    ]
