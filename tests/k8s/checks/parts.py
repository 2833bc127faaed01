"""Targets in parts: a GPU for each process, an engine that can, and memory to talk through."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.k8s.manifests import Manifests, Object, Pod


def engines(manifests: Manifests) -> Iterator[str]:
    """Pods are told vLLM where their image has it, and nowhere else."""
    for pod in manifests.pods:
        for container in pod.spec["containers"]:
            told = manifests.environment(container).get(f"SPECMESH_{pod.name.upper()}__BACKEND")
            image = container["image"].rpartition("/")[2].partition(":")[0]
            if (told == "vllm") != image.endswith("-vllm"):
                yield f"{pod}: image {image} is no place for backend {told}"


def processes(manifests: Manifests) -> Iterator[str]:
    """There is a process for each GPU, and several have /dev/shm to talk through."""
    for pod in manifests.pods:
        for container in pod.spec["containers"]:
            count = _count(manifests, container)
            gpus = container["resources"]["limits"].get("nvidia.com/gpu", count)
            if gpus != count:
                yield f"{pod}: {count} processes have {gpus} GPUs"
            if count > 1 and not _shared_memory(pod, container):
                yield f"{pod}: {count} processes have 64 MiB of /dev/shm"


def _count(manifests: Manifests, container: Object) -> int:
    """Processes that torchrun or vLLM start for a forward."""
    torchrun = re.findall(r"--nproc-per-node=(\d+)", " ".join(container.get("command", ())))
    settings = manifests.environment(container)
    return int((torchrun or [settings.get("SPECMESH_VERIFIER__TENSOR_PARALLEL_SIZE", "1")])[0])


def _shared_memory(pod: Pod, container: Object) -> bool:
    mounted = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", ())}
    return any(
        volume["name"] == mounted.get("/dev/shm")
        and volume.get("emptyDir", {}).get("medium") == "Memory"
        for volume in pod.spec.get("volumes", ())
    )
