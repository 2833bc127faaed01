"""A layer's forwards at many widths; prints how many bytes they leave allocated.

Run in a process of its own, for the caches that count are the process's.
"""

import ctypes
import sys

import torch
from torch import nn

from specmesh.inference.models.cpu.linear import PackedLinear, pack_linears

NUM_WIDTHS = 200


class MallInfo2(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = MallInfo2


def allocated_bytes() -> int:
    told = mallinfo2()
    return int(told.uordblks + told.hblkhd)


layers = nn.Sequential(nn.Linear(1024, 384, bias=False, dtype=torch.bfloat16))
pack_linears(layers)
assert isinstance(layers[0], PackedLinear)
with torch.inference_mode():
    layers(torch.zeros(1, 1, 1024, dtype=torch.bfloat16))
    before = allocated_bytes()
    for width in range(NUM_WIDTHS):
        layers(torch.zeros(1, 1 + width, 1024, dtype=torch.bfloat16))
sys.stdout.write(f"{allocated_bytes() - before}\n")
