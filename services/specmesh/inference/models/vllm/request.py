"""vLLM's request, changed for calls that want logits.

Importing this module imports vLLM, so other modules import it only after vLLM.
"""

from __future__ import annotations

from typing import Final

from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request, RequestStatus

from specmesh.decoding.prefix import BLOCK_TOKENS, PrefixChain
from specmesh.inference.models.vllm.precedence import Precedence
from specmesh.inference.models.vllm.rows import RowsCall
from specmesh.inference.models.vllm.tails import Beginning

_PARAMS: Final = SamplingParams(temperature=0, max_tokens=1, detokenize=False)
"""The parameters of every request: what vLLM samples is not read."""


class ScoringRequest(Request):  # type: ignore[misc] # vLLM is in another environment
    """A request for the logits after ``chain[first_row]`` and after every later token. It serves
    one call, and then further calls of the same session.

    Its KV is cached under the digests of ``chain``, as in specmesh's own engine, so callers with
    different salts share none.
    """

    def __init__(self, name: str, chain: PrefixChain, first_row: int, block_tokens: int) -> None:
        self._blocks_per_hash = block_tokens // BLOCK_TOKENS
        self._begin(chain, first_row)
        self.precedence = Precedence()
        self.source: Beginning | None = None
        """The block in whose middle the request continues, if any."""
        super().__init__(name, list(chain), _PARAMS, None, block_hasher=_missing_hashes)
        self.call = RowsCall(first_row, len(chain), [])
        """The call's data for the workers."""

    def go_on(self, chain: PrefixChain, first_row: int, num_shared: int) -> None:
        """Serve another call, whose ``chain`` begins with the request's first ``num_shared``
        tokens; their KV is there."""
        self._begin(chain, first_row)
        new = chain[num_shared:]
        self.call = RowsCall(first_row, num_shared, new)
        self._all_token_ids[num_shared:] = new
        self.prompt_token_ids[num_shared:] = new
        self.num_prompt_tokens = len(chain)
        self.num_computed_tokens = num_shared
        self.block_hashes.clear()
        self.update_block_hashes()
        self.status = RequestStatus.RUNNING

    def _begin(self, chain: PrefixChain, first_row: int) -> None:
        self.chain = chain
        self.first_row = first_row
        self.is_answered = False
        """True once all rows of the call have been computed."""
        self.is_spoilt = False
        """True once some of its logits were not finite; its KV may not be, either."""

    @property
    def num_sure(self) -> int:
        """The number of tokens that are not part of a draft."""
        return self.first_row + 1

    @property
    def hashes(self) -> list[bytes]:
        """The hashes of the request's full blocks."""
        return list(self.chain.digests[self._blocks_per_hash - 1 :: self._blocks_per_hash])

    @property
    def computed(self) -> PrefixChain:
        """The tokens whose KV has been computed or was cached."""
        if self.num_computed_tokens >= len(self.chain):
            return self.chain
        chain = PrefixChain(self.chain)
        chain.truncate(self.num_computed_tokens)
        return chain


def _missing_hashes(request: ScoringRequest) -> list[bytes]:
    return request.hashes[len(request.block_hashes) :]
