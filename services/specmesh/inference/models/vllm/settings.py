"""Settings of processes that vLLM computes for."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class VllmSettings(BaseSettings):
    """Mixin for the roles that vLLM can compute for."""

    help_panel: ClassVar[str] = "vLLM"

    model_config = SettingsConfigDict(frozen=True)

    tensor_parallel_size: int = Field(
        1, ge=1, description="processes of vLLM's that share each layer; our own engine: torchrun"
    )
    engine_options: str = Field(
        "",
        description="further options of vLLM's own command line, such as "
        "'--pipeline-parallel-size 2 --quantization fp8'",
    )
