"""Settings of processes that vLLM computes for."""

from __future__ import annotations

from collections.abc import Iterator
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

    def refusals(self, backend: str) -> Iterator[str]:
        """What is set, and nothing to ``backend``."""
        if backend == "vllm":
            return
        if self.tensor_parallel_size > 1:
            yield (
                "--tensor-parallel-size is for --backend vllm; our own engine divides a target "
                "under torchrun"
            )
        if self.engine_options:
            yield "--engine-options is for --backend vllm"
