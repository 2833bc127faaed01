"""The options that ``specmesh generate`` and ``specmesh chat`` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from specmesh.cli.answers.request import (
    FieldOptions,
    ModelName,
    StrategyName,
    StrategyOptions,
    Timeout,
    check_options,
    strategy_options,
)
from specmesh.client import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The settings of a request, besides its text."""

    model: ModelName = ""
    fields: FieldOptions
    strategy: StrategyName = ""
    option: StrategyOptions = None
    timeout: Timeout = None

    @property
    def of_strategy(self) -> dict[str, Any]:
        """The values of ``--option`` by name. Raises BadParameter."""
        return strategy_options(self.option or ())

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the SDK's ``generate`` and ``chat``. Raises BadParameter."""
        return {
            # Not asdict, which would make dictionaries of values that are dataclasses.
            **{each.name: getattr(self.fields, each.name) for each in fields(self.fields)},
            "model": self.model,
            "strategy": self.strategy,
            "timeout_s": self.timeout,
            **self.of_strategy,
        }

    def check(self, served: Sequence[ServedModel]) -> None:
        """Raise BadParameter for an option that the strategy does not use, as far as the mesh lists
        its strategies."""
        check_options(served, self.model, self.strategy, self.of_strategy)
