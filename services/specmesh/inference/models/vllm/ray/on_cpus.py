"""vLLM's workers as Ray actors on CPUs; vLLM itself supports them only on GPUs."""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform
from vllm.v1.executor import ray_executor_v2
from vllm.v1.executor.ray_executor_v2 import RayExecutorV2, RayWorkerProc

RESOURCE = "CPU"
"""The Ray resource of which each worker gets one."""


class CpuWorker(RayWorkerProc):  # type: ignore[misc] # vLLM is in another environment
    """A worker that has no numbered devices."""

    def get_node_and_physical_gpu_ids(self) -> tuple[str, list[int]]:
        """Return the worker's node, and no devices."""
        import ray

        return ray.get_runtime_context().get_node_id(), []


class RayOnCpus(RayExecutorV2):  # type: ignore[misc] # vLLM is in another environment
    """vLLM's own executor, except that a worker reserves CPUs instead of GPUs."""

    def _init_executor(self) -> None:
        current_platform.ray_device_key = RESOURCE
        ray_executor_v2.RayWorkerProc = CpuWorker
        super()._init_executor()

    @staticmethod
    def _get_actor_resource_kwargs() -> dict[str, Any]:
        """Request nothing beyond the resource reserved for the worker, in which it is placed."""
        return {}
