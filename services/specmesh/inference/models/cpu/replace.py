"""Replacement of modules of a loaded model by faster ones that compute the same."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def replace(model: nn.Module, replacement: Callable[[nn.Module], nn.Module | None]) -> None:
    """Replace each ``child`` in ``model`` by ``replacement(child)``, unless that is None.

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
