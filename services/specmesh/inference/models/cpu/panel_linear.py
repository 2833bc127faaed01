"""Linear layers in float32 by compiled code, which computes while it reads weights from memory.

With 2 to 32 rows, as in a verification and in a crowd, libraries do one after the other, and take
1.1 to 1.6 times as long. Nor does a row's result depend here on how many others it shares the
forward with.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from specmesh.decoding.compiled import compilation, intrinsics
from specmesh.inference.models.cpu import attention_vectors as vectors
from specmesh.inference.models.cpu import panel_kernel as kernel
from specmesh.inference.models.cpu import panel_tiles as tiles
from specmesh.inference.models.cpu.inputs import check_input
from specmesh.inference.models.cpu.team_code import TeamCode, compiled_for_team


class Tile(NamedTuple):
    """The most rows of a tile, and its vectors of 16 columns: what fits in the registers."""

    rows: int
    vectors: int

    @property
    def columns(self) -> int:
        """The columns of a panel."""
        return self.vectors * vectors.LANES


TILES: Final = {"AVX512": Tile(12, 2), "AVX2": Tile(6, 1)}
"""By PyTorch's names of the instructions that processors have: those with 32 registers of 16
numbers, and with 16 of 8. Without either, the library is faster."""
_UNITS_A_THREAD: Final = 4
"""The units that a thread computes if all are equally fast. What is asked for at the end of a unit
may be another thread's."""
_Table = ctypes.c_int64 * kernel.NUM_FIELDS


def best_tile() -> Tile | None:
    """Return the tile for this processor; None if the library is faster."""
    return TILES.get(torch.backends.cpu.get_cpu_capability())


class PanelLinear(nn.Module):
    """A replacement for ``nn.Linear`` in float32, without gradients."""

    def __init__(self, plain: nn.Linear, tile: Tile) -> None:
        super().__init__()
        # Not parameters: modules look these up slowly, and torch checks them for gradients.
        self._bias = None if plain.bias is None else plain.bias.detach().clone()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self._panels = _panels(plain.weight.detach(), tile.columns)
        self._padded = len(self._panels) * tile.columns
        self._team = _code(tile).team

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Map ``[..., in_features]`` to ``[..., out_features]``. Raises ``ValueError`` for inputs
        of another width, type or device."""
        check_input(input, self.in_features)
        num_rows, num_panels = input.shape[:-1].numel(), len(self._panels)
        if input.shape != (1, num_rows, self.in_features):
            rows = input.reshape(1, num_rows, self.in_features)
            return self.forward(rows).view(*input.shape[:-1], self.out_features)
        if input.stride(2) != 1:
            input = input.contiguous()  # noqa: A001
        output = torch.empty((1, num_rows, self._padded), dtype=torch.float32)
        if num_rows:
            threads = self._team.num_threads()
            table = _Table(
                *(0, num_panels, self._panels.data_ptr(), self.in_features, 4 * self._padded),
                1 if threads == 1 else min(_UNITS_A_THREAD * threads, num_panels),
                *(input.data_ptr(), 4 * input.stride(1), output.data_ptr(), num_rows),
            )
            self._team.find(table)
        if self._padded != self.out_features:
            output = output[..., : self.out_features].contiguous()
        return output if self._bias is None else output.add_(self._bias)


@cache
def _code(tile: Tile) -> TeamCode:
    files = [
        Path(str(module.__file__)) for module in (compilation, intrinsics, vectors, tiles, kernel)
    ]
    return compiled_for_team(kernel.multiply_for(*tile), files)


def _panels(weight: Tensor, num_columns: int) -> Tensor:
    """Return ``weight`` ``[out_features, in_features]`` as ``[panels, in_features, columns]``, the
    last one padded by zeros."""
    num_outputs, num_features = weight.shape
    num_panels = -(-num_outputs // num_columns)
    panels = weight.new_zeros((num_panels, num_features, num_columns))
    for panel, rows in zip(panels, torch.split(weight, num_columns), strict=True):
        panel[:, : len(rows)] = rows.T
    return panels
