"""CUDA graphs of one forward pass, in pieces: the device begins with the first while the rest is
still being launched, which takes a microsecond for each kernel."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")

_WARM_UPS = 2


class Recording(Generic[T]):
    """The kernels that ``run`` has launched, to launch again, with the tensors that it returned."""

    def __init__(self, run: Callable[[Callable[[], None]], T], pool: Any) -> None:
        """Record ``run``, which calls its argument where a piece ends. Graphs of one ``pool`` share
        the memory of what they compute, so only one may be in use. Raises ``RuntimeError`` if
        ``run`` does what cannot be recorded, such as to wait for the device."""
        self._pool = pool
        self._pieces: list[torch.cuda.CUDAGraph] = []
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            with _waits_are_errors():  # while they can still be told from one another
                for _ in range(_WARM_UPS):
                    run(lambda: None)
            torch.cuda.synchronize()
            gc.collect()
            self._begin()
            try:
                self.result = run(self._cut)
            except BaseException:
                with suppress(RuntimeError):  # of a capture that has failed
                    self._pieces[-1].capture_end()
                raise
            self._pieces[-1].capture_end()
        torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> None:
        """Launch the kernels again; ``result`` has what they compute once they have ended."""
        for piece in self._pieces:
            piece.replay()

    def _begin(self) -> None:
        self._pieces.append(torch.cuda.CUDAGraph())
        self._pieces[-1].capture_begin(pool=self._pool)

    def _cut(self) -> None:
        self._pieces[-1].capture_end()
        self._begin()


@contextmanager
def _waits_are_errors() -> Iterator[None]:
    """Let operations that wait for the device, which cannot be recorded, raise ``RuntimeError``."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
