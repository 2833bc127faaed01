"""vLLM's scheduler, changed for requests whose logits are wanted.

Importing this module imports vLLM. So vLLM imports it by name, and other modules import it only
after vLLM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain as chained
from typing import Any, Final

import numpy as np
from vllm.platforms import current_platform
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import AttentionSpec
from vllm.v1.request import RequestStatus

from specmesh.decoding.prefix import PrefixChain
from specmesh.inference.models.vllm.idle import IdleRequests
from specmesh.inference.models.vllm.precedence import in_order
from specmesh.inference.models.vllm.request import ScoringRequest
from specmesh.inference.models.vllm.rows import CALLS
from specmesh.inference.models.vllm.tails import Tails

MAX_IDLE: Final = 256
"""The most requests that stay for their session's next call."""


class ScoringScheduler(Scheduler):  # type: ignore[misc] # vLLM is in another environment
    """A scheduler that reads the prefix cache only for tokens before those whose logits are wanted.

    The KV of a draft stays cached under the hashes of its blocks, which is correct whether the
    draft was accepted or not. But a call with the same draft needs logits again, and no cache has
    those.

    A request whose call has ended stays (``idle.py``), and the next call of its session continues
    in it, overwriting the rejected draft.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        managers = self.kv_cache_manager.coordinator.single_type_managers
        self.tails: Tails | None = None
        """None for models with layers that don't keep the KV of all tokens, and if vLLM's prefix
        cache is off."""
        self.idle: IdleRequests[ScoringRequest] = IdleRequests(managers[0].block_size)
        self._max_idle = 0
        self._unregistered: dict[str, ScoringRequest] = {}
        """Idle requests that ``tails`` doesn't know yet: most of them continue before any call
        searches ``tails``."""
        self._untold: dict[str, ScoringRequest] = {}
        """Requests whose call the workers don't know yet."""
        self._is_crowded = False
        """True if some request had to wait for a later step."""
        self._is_short = False
        """True if blocks were not enough for all requests."""
        if current_platform.is_cpu():
            self._hand_out_zeros(managers)
        keeps_all = [type(manager) for manager in managers] == [FullAttentionManager]
        if keeps_all and self.cache_config.enable_prefix_caching:
            self._manager = managers[0]
            self.tails = Tails(self.kv_cache_manager.block_pool, self._manager.block_size)
            self._mid_block = self._manager._partial_hit_reqs
            self._allocate = self._manager.allocate_new_blocks
            self._manager.allocate_new_blocks = self._allocate_new_blocks
            # In these cases workers or connectors hold more state of a request than its tokens.
            if not self.model_uses_mrope and self.connector is None:
                self._max_idle = MAX_IDLE

    def _hand_out_zeros(self, managers: Iterable[Any]) -> None:
        """Have workers clear each block that is handed out: attention on CPUs also reads the slots
        beyond a request's end, where a request that overflowed may have left NaN."""
        self.needs_kv_cache_zeroing = True
        for manager in managers:
            manager._record_new_block_ids |= isinstance(manager.kv_cache_spec, AttentionSpec)

    def go_on(self, chain: PrefixChain, first_row: int) -> ScoringRequest | None:
        """Return an idle request, continued by this call; None if none fits."""
        # A continued request runs before those that already wait.
        is_ahead = self._is_crowded
        if (is_ahead and not self._is_short) or len(self.running) >= self.max_num_running_reqs:
            return None
        found = self.idle.find(chain)
        if found is None:
            return None
        request, num_shared = found
        if is_ahead and not request.precedence.is_left:
            return None
        name, num_kept = request.request_id, min(num_shared, first_row)
        blocks = self._manager.req_to_blocks[name]
        num_kept_blocks = num_kept // self._manager.block_size
        if any(block.ref_cnt > 1 for block in blocks[num_kept_blocks:]):
            return None  # another request reads blocks that would be overwritten
        self._unregistered.pop(name, None)
        self.idle.remove(request)
        assert self.tails is not None
        request.source = self.tails.write_over(blocks, num_kept, num_shared)
        cached = self._manager.num_cached_block
        cached[name] = min(cached.get(name, 0), num_kept_blocks)
        request.go_on(chain, first_row, num_kept)
        request.precedence.num_ahead += is_ahead
        self._untold[name] = request
        self.running.append(request)
        return request

    def blocks_of_idle(self) -> Counter[int]:
        """Return the number of idle requests that hold each block. Any thread may call this."""
        held: Counter[int] = Counter()
        for request in self.idle.requests():
            blocks = self._manager.req_to_blocks.get(request.request_id, ())
            held.update(block.block_id for block in list(blocks))
        return held

    def add_request(self, request: ScoringRequest) -> None:
        """Add ``request`` as vLLM does; workers learn of the call with its first step."""
        self._untold[request.request_id] = request
        super().add_request(request)

    def schedule(self, *args: Any, **options: Any) -> Any:
        """Schedule as vLLM does, and add ``CALLS``."""
        self._make_room()
        output = super().schedule(*args, **options)
        self._is_crowded = bool(self.waiting or self.kv_holding_waiting)
        told = self._untold.keys() & output.num_scheduled_tokens.keys()
        setattr(output, CALLS, {name: self._untold.pop(name).call for name in told})
        return output

    def update_from_output(self, scheduler_output: Any, output: Any) -> Any:
        """Update as vLLM does, once it is known whose logits are not finite."""
        for name, index in output.req_id_to_index.items():
            # A hidden state that is not finite leaves no logit finite, so the first tells of all.
            first_logits = output.pooler_output[index].numpy()[:, 0]
            if name in self.requests and not np.isfinite(first_logits).all():
                self.requests[name].is_spoilt = True
        return super().update_from_output(scheduler_output, output)

    def _make_room(self) -> None:
        """Give up idle requests as long as other requests may need their blocks: those that keep
        theirs only for requests that run, or for one that waits if none runs."""
        waiting = list(chained(self.kv_holding_waiting, self.waiting))
        wanted = self._num_wanted(chained(self.running, waiting))
        if self._num_free < wanted:
            others, keeping = in_order(self.idle.requests(), self.current_step)
            self._give_up_for(wanted, others)
            self._give_up_for(self._num_wanted(self.running or waiting[:1]), keeping)
        self._is_short = self._num_free < wanted

    def _give_up_for(self, num_blocks: int, idle: Iterable[ScoringRequest]) -> None:
        for request in idle:
            if self._num_free >= num_blocks:
                return
            self._give_up(request)

    def _num_wanted(self, requests: Iterable[ScoringRequest]) -> int:
        """Return the number of free blocks with which all ``requests`` can be computed."""
        wanted: int = self.kv_cache_manager.watermark_blocks
        for request in requests:
            # One more: it may continue in the middle of a block, which is then copied.
            num_blocks = -(-request.num_tokens // self.block_size) + 1
            wanted += num_blocks - request.num_computed_tokens // self.block_size
        return wanted

    @property
    def _num_free(self) -> int:
        return int(self.kv_cache_manager.block_pool.get_num_free_blocks())

    def _give_up(self, request: ScoringRequest) -> None:
        self.idle.remove(request)
        self._end(request)

    def _end(self, request: ScoringRequest) -> None:
        request.status = RequestStatus.FINISHED_STOPPED
        self._free_request(request)

    def _update_request_with_output(
        self, request: ScoringRequest, new_token_ids: list[int], **_: Any
    ) -> tuple[list[int], bool]:
        """End the call with its last token: the token "sampled" after it is not used."""
        request.is_answered = True
        return new_token_ids, True

    def _handle_stopped_request(self, request: ScoringRequest) -> bool:
        """Return whether ``request`` has ended; it has not if it waits for another call."""
        may_stay = self._max_idle and not request.is_spoilt
        if not may_stay or request.status != RequestStatus.RUNNING:
            request.status = RequestStatus.FINISHED_STOPPED
            return True
        self._unregistered[request.request_id] = request
        request.precedence.idle_since = self.current_step
        for each in self.idle.add(request):
            self._end(each)
        if len(self.idle) > self._max_idle:
            self._give_up(self.idle.requests()[0])
        return False

    def _get_local_prefix_cache_hit(self, request: ScoringRequest) -> Any:
        hit = super()._get_local_prefix_cache_hit(_BeforeRows(request))
        request.source = None
        if self.tails is None or not self._has_room_for_a_copy(request):
            return hit
        while self._unregistered:
            self._register(self._unregistered.popitem()[1])
        blocks, num_cached, *others = hit
        source = self.tails.find(request.chain, num_cached, request.first_row)
        if source is None:
            return hit
        request.source = source
        blocks = self.kv_cache_manager.create_kv_cache_blocks(([*blocks.blocks[0], source.block],))
        return blocks, num_cached + source.num_shared, *others

    def _allocate_new_blocks(self, name: str, *args: Any, **options: Any) -> Any:
        """Allocate as the manager does, but without copying the block in which a request continues
        if that block can be taken over."""
        if name in self._mid_block:
            request, tails = self.requests[name], self.tails
            assert tails is not None
            if tails.take_over(request.source, request.chain):
                del self._mid_block[name]
        return self._allocate(name, *args, **options)

    def _has_room_for_a_copy(self, request: ScoringRequest) -> bool:
        """Return whether there is one block more than ``request`` needs even if it shares none;
        otherwise it might wait forever."""
        num_blocks: int = -(-request.num_tokens // self.block_size) + 1
        return num_blocks <= self._num_free

    def _free_request(self, request: ScoringRequest, delay_free_blocks: bool = False) -> Any:
        self._untold.pop(request.request_id, None)
        self._unregistered.pop(request.request_id, None)
        if request.is_spoilt:
            self._forget(request)
        elif request.num_computed_tokens:
            self._register(request)
        return super()._free_request(request, delay_free_blocks)

    def _register(self, request: ScoringRequest) -> None:
        """Let other calls continue in the middle of the blocks of ``request``."""
        if self.tails is not None:
            (blocks,) = self.kv_cache_manager.get_blocks(request.request_id).blocks
            self.tails.keep(blocks, request.computed, request.num_sure, request.source)
            request.source = None

    def _forget(self, request: ScoringRequest) -> None:
        """Let no call find the blocks of ``request`` from now on."""
        for blocks in self.kv_cache_manager.get_blocks(request.request_id).blocks:
            numbers = {block.block_id for block in blocks}
            if self.tails is not None:
                self.tails.forget(numbers)
            self.kv_cache_manager.block_pool.evict_blocks(numbers)


class _BeforeRows:
    """A view of a request that ends with the first token whose logits are wanted."""

    def __init__(self, request: ScoringRequest) -> None:
        self._request = request
        self.num_tokens = request.first_row + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)
