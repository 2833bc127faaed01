"""vLLM's workers as actors of Ray on CPUs; vLLM itself has them on GPUs alone."""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform
from vllm.v1.executor import ray_executor_v2
from vllm.v1.executor.ray_executor_v2 import RayExecutorV2, RayWorkerProc

RESOURCE = "CPU"
"""What Ray sets aside for a worker: one of these."""


class CpuWorker(RayWorkerProc):  # type: ignore[misc] # vLLM is in another environment
    """A worker without devices that have numbers."""

    def get_node_and_physical_gpu_ids(self) -> tuple[str, list[int]]:
        """The node that it is on, and no devices."""
        import ray

        return ray.get_runtime_context().get_node_id(), []


class RayOnCpus(RayExecutorV2):  # type: ignore[misc] # vLLM is in another environment
    """vLLM's own executor, but for what a worker takes of a node."""

    def _init_executor(self) -> None:
        current_platform.ray_device_key = RESOURCE
        ray_executor_v2.RayWorkerProc = CpuWorker
        super()._init_executor()

    @staticmethod
    def _get_actor_resource_kwargs() -> dict[str, Any]:
        """Nothing beside the resource that was set aside for it, which it is placed in."""
        return {}
