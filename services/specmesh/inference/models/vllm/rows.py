"""Which logits a step of vLLM gives back, decided and carried out in its workers.

vLLM samples one token after each request's last one and tells no logits. Here every call says from
which of its tokens on it wants them; the workers compute these rows, as many as were scheduled, in
place of the last one, and send them back in place of a sample. A request is used for one call after
the other: it then has other tokens at its end.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from threading import current_thread, main_thread
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CALLS = "specmesh_calls"
"""A field that a step's ``SchedulerOutput`` has here: the calls that begin, by their requests."""


class RowsCall(NamedTuple):
    """What workers have to know of a call besides what vLLM tells them."""

    first_row: int
    """The index of the first token whose logits are wanted; those of all tokens after it are, too.
    """
    start: int
    """From there on the request's tokens are others than in the call before."""
    tokens: list[int]
    """These; none for a new request, which brings its own."""

    @property
    def num_tokens(self) -> int:
        """How many there are with those before ``start``."""
        return self.start + len(self.tokens)


Span = tuple[int, int]


def spans_of(
    starts: Sequence[int], num_scheduled: Sequence[int], first_rows: Sequence[int]
) -> list[Span]:
    """By request, which rows of a step's batch are wanted: from, and up to but without.

    A step computes ``num_scheduled`` tokens of each request, one request after the other, from the
    one with index ``starts`` on.
    """
    spans, offset = [], 0
    for start, number, first in zip(starts, num_scheduled, first_rows, strict=True):
        spans.append((offset + min(max(first - start, 0), number), offset + number))
        offset += number
    return spans


class ScoringWorker:
    """What vLLM adds to its worker class (``worker_extension_cls``), whatever the platform."""

    model_runner: Any

    def give_rows(self) -> None:
        """From here on steps give rows of logits; called once, after the model has been loaded.

        A process of vLLM's leaves Ctrl-C, which reaches all processes of a terminal, to the one
        that serves: that drains first.
        """
        if multiprocessing.parent_process() and current_thread() is main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _prepare_stage(self.model_runner)
        _RowTap(self.model_runner)


def _prepare_stage(runner: Any) -> None:
    """On CPUs vLLM leaves out the dry run that makes buffers for what a pipeline's stages send."""
    from vllm.distributed.parallel_state import get_pp_group

    if not get_pp_group().is_first_rank and runner.intermediate_tensors is None:
        runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
        )


class _RowTap:
    """Stands in front of four methods of vLLM's model runner (V1)."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._first_rows: dict[str, int] = {}
        self._update_states = runner._update_states
        self._prepare_inputs = runner._prepare_inputs
        self._sample_tokens = runner.sample_tokens
        self._spans: list[Span] = []
        self._logits: Any = None
        runner._update_states = self._update
        runner._prepare_inputs = self._prepare
        runner._sample = self._take
        runner.sample_tokens = self._give

    def _update(self, scheduler_output: Any) -> Any:
        """As the runner's own, after the calls that begin have been told."""
        for name in scheduler_output.finished_req_ids:
            self._first_rows.pop(name, None)
        for name, call in getattr(scheduler_output, CALLS).items():
            self._first_rows[name] = call.first_row
            if call.tokens:
                self._tell(name, call)
        return self._update_states(scheduler_output)

    def _tell(self, name: str, call: RowsCall) -> None:
        """Give a request the tokens of its next call, also where it is laid out in the batch."""
        end = call.num_tokens
        state = self._runner.requests[name]
        state.prompt_token_ids[call.start :] = call.tokens
        state.num_prompt_tokens = end
        state.output_token_ids.clear()
        batch = self._runner.input_batch
        index = batch.req_id_to_index.get(name)
        if index is not None:
            batch.token_ids_cpu[index, call.start : end] = call.tokens
            batch.is_token_ids[index, call.start : end] = True
            batch.num_prompt_tokens[index] = batch.num_tokens_no_spec[index] = end

    def _prepare(
        self, scheduler_output: Any, num_scheduled: npt.NDArray[np.int32]
    ) -> tuple[Any, None, int]:
        """As the runner's own, but for which rows get logits."""
        import torch

        indices, _, _ = self._prepare_inputs(scheduler_output, num_scheduled)
        batch = self._runner.input_batch
        self._spans = spans_of(
            batch.num_computed_tokens_cpu[: batch.num_reqs].tolist(),
            num_scheduled.tolist(),
            [self._first_rows[name] for name in batch.req_ids],
        )
        rows = [row for span in self._spans for row in range(*span)]
        # Kernels of the last layer don't take an empty batch; nobody gets this row.
        return torch.tensor(rows or [0], dtype=indices.dtype, device=indices.device), None, 1

    def _take(self, logits: Any, _: None) -> Any:
        """Keep the logits; what is "sampled" is never read, but ends a request that is complete."""
        import torch
        from vllm.v1.outputs import SamplerOutput

        self._logits = logits
        nothing = torch.zeros((len(self._spans), 1), dtype=torch.int32, device=logits.device)
        return SamplerOutput(sampled_token_ids=nothing, logprobs_tensors=None)

    def _give(self, grammar_output: Any) -> Any:
        """The step's output, with each request's rows in a field that is there for tensors."""
        output = self._sample_tokens(grammar_output)
        if self._logits is not None:
            logits, self._logits = self._logits.float().cpu(), None
            sizes = [end - begin for begin, end in self._spans]
            output.pooler_output = list(logits[: sum(sizes)].split(sizes))
        return output
