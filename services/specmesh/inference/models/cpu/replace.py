"""Other modules in the place of a loaded model's own, which compute the same faster."""

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
            # Where Python looks first. To find and to call a module takes as long as to
            # multiply by a small matrix.
            model.__dict__[name] = replaced_by.forward
