"""The field ``specmesh`` of a request, which extends OpenAI's API.

It has the options of strategies, and those fields of sampling that other APIs lack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, create_model, model_validator

from specmesh.client import AcceptanceMode, Filter
from specmesh.gateway.requests.fields import Fields, Float32
from specmesh.gateway.requests.protocol_fields import MAX_TEXT_CHARS, OPTIONS

_Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class FilterFields(Fields):
    """The rule by which the strategy ``filter`` keeps draft tokens; the SDK's ``Filter``."""

    scorer: _Text = ""
    threshold: Float32 | None = None
    escalation_rate: Float32 | None = None
    follow_load: (
        Annotated[list[Float32], Field(min_length=2, max_length=2, fail_fast=True)] | None
    ) = None

    @model_validator(mode="after")
    def _check_one_rule(self) -> Self:
        assert self.chosen
        return self

    @property
    def chosen(self) -> Filter:
        """The SDK's ``Filter``. Raises ValueError if there is more than one rule."""
        bounds = None if self.follow_load is None else (self.follow_load[0], self.follow_load[1])
        return Filter(self.scorer, self.threshold, self.escalation_rate, bounds)


class _Extension(Fields):
    strategy: _Text = ""
    filter: FilterFields | None = None
    acceptance_mode: Annotated[AcceptanceMode, Field(strict=False)] | None = None
    request_id: Annotated[str, Field(max_length=128)] = ""
    content_as_text: bool = False


if TYPE_CHECKING:

    class Extension(_Extension):
        """The field ``specmesh`` of a request, which extends OpenAI's API."""
else:
    Extension = create_model(
        "Extension",
        __base__=_Extension,
        **{name: each for name, each in OPTIONS.items() if name not in _Extension.model_fields},
    )
