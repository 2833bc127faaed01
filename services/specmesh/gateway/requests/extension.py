"""The field ``specmesh`` of a request, which extends OpenAI's API.

Fields of sampling and stopping and the options of strategies are taken from the protocol, so that
new ones need no change here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pydantic import Field, create_model, model_validator

from specmesh.client import AcceptanceMode, Filter
from specmesh.gateway.errors import param_of
from specmesh.gateway.requests.fields import Fields, Float32, Uint32
from specmesh.gateway.requests.parameters import EXTENSION
from specmesh.v1 import sampling_pb2, speculation_pb2

MAX_STOP_TOKENS = 4096
"""Bounds the parsing; the orchestrator has the limit for an answer."""


class FilterFields(Fields):
    """The rule by which the strategy ``filter`` keeps draft tokens; the SDK's ``Filter``."""

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
        """The SDK's ``Filter``. Raises ValueError if there is more than one rule."""
        bounds = None if self.follow_load is None else (self.follow_load[0], self.follow_load[1])
        return Filter(self.scorer, self.threshold, self.escalation_rate, bounds)


class _Extension(Fields):
    strategy: str = ""
    filter: FilterFields | None = None
    acceptance_mode: Annotated[AcceptanceMode, Field(strict=False)] | None = None
    stop_token_ids: Annotated[list[Uint32], Field(max_length=MAX_STOP_TOKENS, fail_fast=True)] = (
        Field(default_factory=list)
    )
    ignore_end_of_text: bool = False
    request_id: Annotated[str, Field(max_length=128)] = ""
    content_as_text: bool = False


_TYPES: Mapping[int, Any] = {
    FieldDescriptor.CPPTYPE_FLOAT: Float32,
    FieldDescriptor.CPPTYPE_UINT32: Uint32,
    FieldDescriptor.CPPTYPE_STRING: str,
}
_PARTS: Mapping[str, type[Message]] = {
    "sampling": sampling_pb2.SamplingParameters,
    "stopping": sampling_pb2.StoppingCriteria,
    "speculation": speculation_pb2.SpeculationOptions,
}
OPTIONS = {
    field.name: (_TYPES[field.cpp_type] | None, None)
    for part, message in _PARTS.items()
    for field in message.DESCRIPTOR.fields
    if param_of(f"{part}.{field.name}") == f"{EXTENSION}.{field.name}"
    and field.name not in _Extension.model_fields
}
"""The other fields of these parts of a request that OpenAI's API lacks, as pydantic fields."""

if TYPE_CHECKING:

    class Extension(_Extension):
        """The field ``specmesh`` of a request, which extends OpenAI's API."""
else:
    Extension = create_model("Extension", __base__=_Extension, **OPTIONS)
