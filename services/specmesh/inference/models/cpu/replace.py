"""Replaces modules of a loaded model by others that compute the same faster."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def replace(model: nn.Module, replacement: Callable[[nn.Module], nn.Module | None]) -> None:
    """Put ``replacement(child)``, unless None, in the place of each ``child`` in ``model``.

    Hooks of either do not run.
    """
    for name, child in model.named_children():
        replaced_by = replacement(child)
        if replaced_by is None:
            replace(child, replacement)
        else:
            setattr(model, name, replaced_by)
            # Python looks here first. Finding and calling a module takes as long as multiplying
            # by a small matrix.
            model.__dict__[name] = replaced_by.forward
