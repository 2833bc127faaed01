"""One model on several devices: the processes that torchrun starts, and how they keep in step.

transformers divides the weights by the model's own ``tp_plan``; each rank keeps the KV of its
heads. A forward pass runs on all ranks at once, tied together by sums between its layers. Rank 0 is
the server; just before each forward pass it sends the batch to the others, which compute their
parts of it.

If one rank fails, all end. A rank whose forward pass fails cannot tell the others, which wait for
its part of a sum; so it ends its process, as a crash would, and torchrun ends the rest.
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
"""How long a rank waits for the next batch: a server may be idle for ever."""


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
        """The ranks that torchrun has set up; None for a process that computes alone."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        return cls(int(os.environ["RANK"]), count) if count > 1 else None

    def division(self, name: str, config: Any, device: str) -> Any:
        """The ``distributed_config`` with which to load model ``name`` in parts.

        Raises ``ModelNotLoadable`` if it cannot be divided, or not on ``device``.
        """
        import torch
        from transformers.distributed.configuration_utils import DistributedConfig

        # The device that transformers takes, which cannot be chosen.
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

        From here on a rank other than 0 ends when told by ``dismiss``: torchrun sends signals to
        all ranks, but rank 0 needs the others while it drains.
        """
        from torch import distributed

        self._control = distributed.new_group(backend="gloo", timeout=BETWEEN_BATCHES)
        if self.rank:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
        log.info("rank ready", extra={"rank": self.rank, "num_ranks": self.count})

    def least(self, number: int) -> int:
        """The least ``number`` of all ranks."""
        import torch
        from torch import distributed

        least = torch.tensor(number)
        distributed.all_reduce(least, distributed.ReduceOp.MIN, self._control)
        return int(least)

    def lead(self, batch: Batch, carry_out: Callable[[Batch], T]) -> T:
        """On rank 0: run ``carry_out(batch)`` on all ranks; returns this rank's result."""
        with _or_end():
            self._broadcast(batch)
            return carry_out(batch)

    def follow(self, carry_out: Callable[[Batch], object]) -> None:
        """On the other ranks: carry out rank 0's batches until it dismisses them."""
        with _or_end():
            while (batch := self._broadcast(None)) is not None:
                carry_out(batch)
        self._leave()

    def dismiss(self) -> None:
        """On rank 0: let the others end, if they have joined; no batch may follow."""
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

        # Drops the last reference to the group, whose threads else outlive the interpreter and
        # abort.
        self._control = None
        distributed.destroy_process_group()


def kv_heads_by_rank(plan: dict[str, str], kv_heads: int, count: int) -> int | None:
    """How many KV heads each of ``count`` ranks holds; None if they cannot be divided."""
    from transformers.distributed.tensor_parallel import get_kv_heads_per_rank

    held = get_kv_heads_per_rank(plan, kv_heads, count)
    assert not isinstance(held, list)  # a list is what one gets for a list
    return held


def follow(settings: ServerSettings, role: str, live: Callable[[], None]) -> int:
    """Run ``live`` as the whole process of a rank that doesn't serve; returns its exit status."""
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
    """End the process on an error, which would leave the ranks out of step."""
    try:
        yield
    except BaseException:
        log.exception("a rank failed, and with it all")
        # At once: threads that wait for another rank would delay an ordinary exit.
        os._exit(1)
