"""Logits that stay on the device until somebody reads them."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from specmesh.inference.models.cuda.static_batch import on_host
from specmesh.inference.models.device_errors import telling_apart


class DeviceLogits:
    """Rows of logits ``[rows, vocab]``, copied to the host row by row as they are read.

    They are valid until the next forward pass. To read them raises ``MemoryError`` and
    ``DeviceLost`` as that does.
    """

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows and that of tokens."""
        return tuple(self._rows.shape)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int | tuple[slice, int]) -> NDArray[np.float32]: ...
    @overload
    def __getitem__(self, index: slice) -> DeviceLogits: ...
    def __getitem__(
        self, index: int | slice | tuple[slice, int]
    ) -> NDArray[np.float32] | DeviceLogits:
        rows = self._rows[index]
        return DeviceLogits(rows) if isinstance(index, slice) else _read(rows)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows on the host."""
        return _read(self._rows).astype(dtype or np.float32, copy=bool(copy))


def _read(rows: Tensor) -> NDArray[np.float32]:
    with telling_apart():
        return on_host(rows.float())
