"""One model on several devices: the processes that torchrun starts, and their synchronisation.

transformers divides the weights by the model's own ``tp_plan``; each rank keeps the KV of its
heads. A forward pass runs on all ranks concurrently, joined by all-reduce sums between its layers.
Rank 0 is the server; before each forward pass it sends the batch to the other ranks, which compute
their parts of it.

If one rank fails, all ranks end. A rank whose forward pass fails cannot tell the others, which wait
for its part of a sum; so it ends its process, as a crash would, and torchrun ends the rest.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from specmesh.inference.engine.batch import Batch
from specmesh.inference.model import ModelNotLoadable
from specmesh.serving.process import logging as json_logging
from specmesh.serving.settings import ServerSettings

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

log = logging.getLogger(__name__)

T = TypeVar("T")

BETWEEN_BATCHES = timedelta(days=3650)
"""The time that a rank waits for the next batch: a server may be idle forever."""


class Ranks:
    """The processes that compute one model together; this one is number ``rank`` of ``count``.

    Used by one thread at a time.
    """

    def __init__(self, rank: int, count: int) -> None:
        self.rank = rank
        self.count = count
        self._control: ProcessGroup | None = None

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the ranks that torchrun has set up; None without torchrun."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        return cls(int(os.environ["RANK"]), count) if count > 1 else None

    def division(self, name: str, config: Any, device: str) -> Any:
        """Return the ``distributed_config`` with which to load model ``name`` in parts.

        Raises ``ModelNotLoadable`` if it cannot be divided, or not on ``device``.
        """
        import torch
        from transformers.distributed.configuration_utils import DistributedConfig

        # The device that transformers uses, which cannot be chosen.
        accelerator = torch.accelerator.current_accelerator() or torch.device("cpu")
        if device != accelerator.type:
            raise ModelNotLoadable(
                f"{self.count} ranks compute on this machine's {accelerator.type}, not on {device}"
            )
        plan, heads = config.base_model_tp_plan, config.num_attention_heads
        if not plan:
            raise ModelNotLoadable(
                f"{name!r} cannot be divided among {self.count} ranks: transformers has no "
                f"tp_plan for {config.model_type!r}"
            )
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        if not kv_heads_by_rank(plan, kv_heads, self.count):
            raise ModelNotLoadable(
                f"{name!r} has {heads} attention heads that share {kv_heads} KV heads: they "
                f"cannot be divided among {self.count} ranks"
            )
        return DistributedConfig(tp_size=self.count)

    def join(self) -> None:
        """Wait for the other ranks, once the model is loaded.

        From now on ranks other than 0 ignore signals and end only at ``dismiss``: torchrun sends
        signals to all ranks, but rank 0 needs the others while it drains.
        """
        from torch import distributed

        self._control = distributed.new_group(backend="gloo", timeout=BETWEEN_BATCHES)
        if self.rank:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        log.info("rank ready", extra={"rank": self.rank, "num_ranks": self.count})

    def least(self, number: int) -> int:
        """Return the lowest ``number`` of all ranks."""
        import torch
        from torch import distributed

        least = torch.tensor(number)
        distributed.all_reduce(least, distributed.ReduceOp.MIN, self._control)
        return int(least)

    def lead(self, batch: Batch, carry_out: Callable[[Batch], T]) -> T:
        """Run ``carry_out(batch)`` on all ranks; return this rank's result. Only rank 0 calls
        this."""
        with _or_end():
            self._broadcast(batch)
            return carry_out(batch)

    def follow(self, carry_out: Callable[[Batch], object]) -> None:
        """Carry out rank 0's batches until it dismisses this rank. The other ranks call this."""
        with _or_end():
            while (batch := self._broadcast(None)) is not None:
                carry_out(batch)
        self._leave()

    def dismiss(self) -> None:
        """Let the other ranks end, if they have joined; no batch may follow. Only rank 0 calls
        this."""
        if self._control is None:
            return
        with _or_end():
            self._broadcast(None)
        self._leave()

    def _broadcast(self, batch: Batch | None) -> Batch | None:
        """Send rank 0's ``batch`` to all ranks, and return it; None means the end."""
        from torch import distributed

        box = [batch]
        distributed.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def _leave(self) -> None:
        from torch import distributed

        # Drop the last reference to the group: otherwise its threads outlive the interpreter and
        # abort.
        self._control = None
        distributed.destroy_process_group()


def kv_heads_by_rank(plan: dict[str, str], kv_heads: int, count: int) -> int | None:
    """Return the number of KV heads of each of ``count`` ranks; None if they cannot be divided."""
    from transformers.distributed.tensor_parallel import get_kv_heads_per_rank

    held = get_kv_heads_per_rank(plan, kv_heads, count)
    assert not isinstance(held, list)  # it returns a list only for a list
    return held


def follow(settings: ServerSettings, role: str, live: Callable[[], None]) -> int:
    """Run ``live`` as the whole process of a rank that doesn't serve; return the exit status."""
    json_logging.configure(settings.log_level, role, settings.name)
    status = 1
    try:
        live()
        status = 0
    except ModelNotLoadable as error:
        log.error("cannot start", extra={"reason": str(error)})
    except Exception:
        log.exception("failed")
    finally:
        log.info("stopped", extra={"exit_status": status})
    return status


@contextmanager
def _or_end() -> Iterator[None]:
    """End the process on an error, since the ranks would no longer be synchronised."""
    try:
        yield
    except BaseException:
        log.exception("a rank failed, so all ranks end")
        # Immediately: threads that wait for another rank would delay an ordinary exit.
        os._exit(1)
