"""Settings of processes that can use vLLM."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class VllmSettings(BaseSettings):
    """A mixin for the roles that can use vLLM."""

    help_panel: ClassVar[str] = "vLLM"

    model_config = SettingsConfigDict(frozen=True)

    tensor_parallel_size: int = Field(
        1, ge=1, description="vLLM processes that share each layer; other backends use torchrun"
    )
    engine_options: str = Field(
        "",
        description="further vLLM command-line options, such as "
        "'--pipeline-parallel-size 2 --quantization fp8'",
    )
