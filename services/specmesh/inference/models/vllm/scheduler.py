"""vLLM's scheduler, for requests whose logits are wanted.

It is imported by its name, by vLLM, and where vLLM has been imported: importing it imports vLLM.
"""

from __future__ import annotations

from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.request import Request

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.inference.models.vllm.rows import FIRST_ROW
from specmesh.inference.models.vllm.tails import Tails


class ScoringRequest(Request):  # type: ignore[misc] # vLLM is in another environment
    """A request for the logits after ``chain[first_row]`` and after all tokens behind it.

    Its KV goes by the digests of ``chain``, as in our own engine: callers with different salts
    share none.
    """

    def __init__(self, name: str, chain: PrefixChain, first_row: int, block_tokens: int) -> None:
        self.chain = chain
        self.first_row = first_row
        self.source: Any | None = None
        """The block in whose middle it goes on, if any."""
        params = SamplingParams(
            temperature=0, max_tokens=1, detokenize=False, extra_args={FIRST_ROW: first_row}
        )
        each = block_tokens // BLOCK_TOKENS
        digests = chain.digests[each - 1 :: each]
        super().__init__(
            name,
            list(chain),
            params,
            None,
            block_hasher=lambda request: digests[len(request.block_hashes) :],
        )

    @property
    def computed(self) -> PrefixChain:
        """The tokens whose KV has been computed, or was there."""
        if self.num_computed_tokens >= len(self.chain):
            return self.chain
        chain = PrefixChain(self.chain)
        chain.truncate(self.num_computed_tokens)
        return chain


class ScoringScheduler(Scheduler):  # type: ignore[misc] # vLLM is in another environment
    """Takes from the prefix cache no token whose logits are wanted, and all before them.

    What a verification has computed of its draft stays cached under the hashes of its blocks, which
    is right whether it was accepted or not; but a call that has the same draft again needs logits,
    which no cache has.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        managers = self.kv_cache_manager.coordinator.single_type_managers
        self.tails: Tails | None = None
        """None for models whose layers don't all keep the KV of all tokens."""
        if [type(manager) for manager in managers] == [FullAttentionManager]:
            self.tails = Tails(self.kv_cache_manager.block_pool, managers[0].block_size)

    def _get_local_prefix_cache_hit(self, request: ScoringRequest) -> Any:
        hit = super()._get_local_prefix_cache_hit(_BeforeRows(request))
        request.source = None
        if self.tails is None or not self._has_room_for_a_copy(request):
            return hit
        blocks, num_cached, *others = hit
        found = self.tails.find(request.chain, num_cached, request.first_row)
        if found is None:
            return hit
        request.source, num_shared = found
        blocks = self.kv_cache_manager.create_kv_cache_blocks(
            ([*blocks.blocks[0], request.source],)
        )
        return blocks, num_cached + num_shared, *others

    def _has_room_for_a_copy(self, request: ScoringRequest) -> bool:
        """Whether there is a block more than ``request`` needs, however little of it is shared:
        else it might wait for ever."""
        num_blocks: int = -(-request.num_tokens // self.block_size) + 1
        num_free: int = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return num_blocks <= num_free

    def _free_request(self, request: ScoringRequest, delay_free_blocks: bool = False) -> Any:
        if self.tails is not None and request.num_computed_tokens:
            (blocks,) = self.kv_cache_manager.get_blocks(request.request_id).blocks
            self.tails.keep(blocks, request.computed, request.source)
        return super()._free_request(request, delay_free_blocks)


class _BeforeRows:
    """A request as it would be without the tokens after the first whose logits are wanted."""

    def __init__(self, request: ScoringRequest) -> None:
        self._request = request
        self.num_tokens = request.first_row + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)
