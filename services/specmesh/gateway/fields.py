"""Types of fields, and how strictly they are read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Uint32 = Annotated[int, Field(ge=0, lt=2**32)]
Uint64 = Annotated[int, Field(ge=0, lt=2**64)]
Float32 = Annotated[float, Field(ge=-3.4e38, le=3.4e38, allow_inf_nan=False)]


class Fields(BaseModel):
    """Takes no field that it doesn't have, and no value of another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
