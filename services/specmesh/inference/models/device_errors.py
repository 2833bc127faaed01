"""Translation of torch's errors to those that a forward pass raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from specmesh.inference.model import DeviceLost


@contextmanager
def telling_apart() -> Iterator[None]:
    """Raise ``MemoryError`` if there is no memory left, ``DeviceLost`` if no forward pass will
    succeed any more, and other errors as they are."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(str(error)) from None
    except torch.AcceleratorError as error:  # its context is in an undefined state
        raise DeviceLost(str(error)) from error
    except RuntimeError as error:
        if "DefaultCPUAllocator" in str(error):
            raise MemoryError(str(error)) from None
        raise
