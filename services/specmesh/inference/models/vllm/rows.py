"""The logits that a vLLM step returns, selected in vLLM's workers.

vLLM samples one token after each request's last one and returns no logits. Here every call says
from which of its tokens on it wants logits. The workers compute those rows of the scheduled tokens
instead of the last row, and return them instead of a sample. A request serves one call after the
other, with new tokens at its end each time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from threading import Thread, current_thread, main_thread
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CALLS = "specmesh_calls"
"""The name of a field added to a step's ``SchedulerOutput``: the calls that begin, by request."""


class RowsCall(NamedTuple):
    """The facts about a call that workers need besides what vLLM sends them."""

    first_row: int
    """The index of the first token whose logits are wanted; those of all tokens after it are, too.
    """
    start: int
    """The index from which the request's tokens differ from those of the call before."""
    tokens: list[int]
    """The tokens from ``start`` on; empty for a new request, which brings its own."""

    @property
    def num_tokens(self) -> int:
        """The number of the request's tokens, including those before ``start``."""
        return self.start + len(self.tokens)


Span = tuple[int, int]

_LOOK_SECONDS = 2.0
"""The interval at which a process of vLLM's looks whether its parent lives."""
_GRACE_SECONDS = 2.0
"""The time in which it may end by itself after its parent."""


def spans_of(
    starts: Sequence[int], num_scheduled: Sequence[int], first_rows: Sequence[int]
) -> list[Span]:
    """Return for each request the rows of a step's batch that it wants, as a half-open range.

    A step computes ``num_scheduled`` tokens of each request, one request after the other, from the
    one with index ``starts`` on.
    """
    spans, offset = [], 0
    for start, number, first in zip(starts, num_scheduled, first_rows, strict=True):
        spans.append((offset + min(max(first - start, 0), number), offset + number))
        offset += number
    return spans


class ScoringWorker:
    """The methods that vLLM adds to its worker class (``worker_extension_cls``) on every
    platform."""

    model_runner: Any

    def give_rows(self) -> None:
        """Make all further steps return rows of logits; called once, after the model has been
        loaded.

        vLLM's own processes ignore Ctrl-C and the loss of a terminal, which reach all processes of
        it: the serving process handles them and drains first. And they end with it, however it
        ends.
        """
        parent = multiprocessing.parent_process()
        if parent is not None and current_thread() is main_thread():
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            Thread(target=_end_with, args=(parent.pid,), daemon=True).start()
        _allow_amx()
        _prepare_stage(self.model_runner)
        _RowTap(self.model_runner)


def _end_with(parent: int) -> None:
    """Kill this process soon after ``parent`` has ended.

    vLLM's own check runs only between two steps. A worker that waits inside a step for the result
    of a dead one would otherwise stay, with its memory.
    """
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _allow_amx() -> None:
    """Ask the kernel for the tile registers of Intel AMX, which Linux grants on request only.

    vLLM's attention in bfloat16 uses them without asking; unless oneDNN has asked before, the first
    forward pass ends the process with an illegal instruction.
    """
    import torch

    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()


def _prepare_stage(runner: Any) -> None:
    """Make the buffers that pipeline stages send from, as vLLM's dry run does; on CPUs vLLM skips
    it."""
    from vllm.distributed.parallel_state import get_pp_group

    if not get_pp_group().is_first_rank and runner.intermediate_tensors is None:
        runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
            batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
        )


class _RowTap:
    """A wrapper around four methods of vLLM's model runner (V1)."""

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
        """Run the runner's own method after passing on the calls that begin."""
        for name in scheduler_output.finished_req_ids:
            self._first_rows.pop(name, None)
        for name, call in getattr(scheduler_output, CALLS).items():
            self._first_rows[name] = call.first_row
            if call.tokens:
                self._tell(name, call)
        return self._update_states(scheduler_output)

    def _tell(self, name: str, call: RowsCall) -> None:
        """Give a request the tokens of its next call, in the workers' batch as well."""
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
        """Run the runner's own method, but select the rows that get logits."""
        import torch

        indices, _, _ = self._prepare_inputs(scheduler_output, num_scheduled)
        batch = self._runner.input_batch
        self._spans = spans_of(
            batch.num_computed_tokens_cpu[: batch.num_reqs].tolist(),
            num_scheduled.tolist(),
            [self._first_rows[name] for name in batch.req_ids],
        )
        rows = [row for span in self._spans for row in range(*span)]
        # Kernels of the last layer don't accept an empty batch; this row is discarded.
        return torch.tensor(rows or [0], dtype=indices.dtype, device=indices.device), None, 1

    def _take(self, logits: Any, _: None) -> Any:
        """Keep the logits. The "sampled" token is never read, but it ends a request that is
        complete."""
        import torch
        from vllm.v1.outputs import SamplerOutput

        self._logits = logits
        nothing = torch.zeros((len(self._spans), 1), dtype=torch.int32, device=logits.device)
        return SamplerOutput(sampled_token_ids=nothing, logprobs_tensors=None)

    def _give(self, grammar_output: Any) -> Any:
        """Return the step's output, with each request's rows in a field that can carry tensors."""
        output = self._sample_tokens(grammar_output)
        if self._logits is not None:
            logits, self._logits = self._logits.float().cpu(), None
            sizes = [end - begin for begin, end in self._spans]
            output.pooler_output = list(logits[: sum(sizes)].split(sizes))
        return output
