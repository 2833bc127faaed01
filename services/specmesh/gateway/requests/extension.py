"""What OpenAI's calls don't have: the field ``specmesh`` of a request.

The options of strategies are read from the protocol, so that one more there is one more here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from google.protobuf.descriptor import FieldDescriptor
from pydantic import Field, create_model, model_validator

from specmesh.client import AcceptanceMode, Filter
from specmesh.gateway.requests.fields import Fields, Float32, Uint32
from specmesh.v1 import speculation_pb2

MAX_STOP_TOKENS = 4096
"""Bounds what is read. How many an answer may have, the orchestrator says."""


class FilterFields(Fields):
    """Which draft tokens the strategy ``filter`` keeps; the SDK's ``Filter``."""

    scorer: str = ""
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
        """Raises ValueError if there is more than one rule."""
        bounds = None if self.follow_load is None else (self.follow_load[0], self.follow_load[1])
        return Filter(self.scorer, self.threshold, self.escalation_rate, bounds)


class _Extension(Fields):
    strategy: str = ""
    filter: FilterFields | None = None
    acceptance_mode: Annotated[AcceptanceMode, Field(strict=False)] | None = None
    top_k: Uint32 | None = None
    stop_token_ids: Annotated[list[Uint32], Field(max_length=MAX_STOP_TOKENS, fail_fast=True)] = (
        Field(default_factory=list)
    )
    ignore_end_of_text: bool = False
    request_id: Annotated[str, Field(max_length=128)] = ""
    content_as_text: bool = False


_OPTION_TYPES: Mapping[int, Any] = {
    FieldDescriptor.CPPTYPE_UINT32: Uint32,
    FieldDescriptor.CPPTYPE_STRING: str,
}
OPTIONS = {
    field.name: (_OPTION_TYPES[field.cpp_type] | None, None)
    for field in speculation_pb2.SpeculationOptions.DESCRIPTOR.fields
    if field.name not in _Extension.model_fields
}
"""The options of strategies, as the protocol has them."""

if TYPE_CHECKING:

    class Extension(_Extension):
        """What OpenAI's calls don't have: the field ``specmesh`` of a request."""
else:
    Extension = create_model("Extension", __base__=_Extension, **OPTIONS)
