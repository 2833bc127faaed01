"""The Ray cluster in which vLLM's workers run: an existing one, or else one on this machine that
ends with this process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.versions import RAY
from specmesh.serving.process.logging import take_over


def join_ray(environment: Mapping[str, str]) -> None:
    """Join the cluster that ``RAY_ADDRESS`` names, else the one that runs on this machine, else a
    new one. Workers start with ``environment``.

    Raises ``ModelNotLoadable`` if Ray is not installed or the cluster cannot be reached.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModelNotLoadable(
            "--engine-options: --distributed-executor-backend ray needs Ray: "
            f"pip install 'ray{RAY}'"
        ) from error
    take_over("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            runtime_env={"env_vars": dict(environment)},
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,  # workers write plain text, not JSON lines
        )
    except Exception as error:  # ConnectionError, ValueError, and Ray's own types
        raise ModelNotLoadable(f"cannot join a Ray cluster: {error}") from error
