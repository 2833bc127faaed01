"""The Ray cluster in which vLLM's workers run: one that is there already, else one of this
machine's that ends with this process."""

from __future__ import annotations

import os
from collections.abc import Mapping

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.vllm.versions import RAY
from specmesh.serving.process.logging import take_over


def join_ray(environment: Mapping[str, str]) -> None:
    """Join the cluster that ``RAY_ADDRESS`` names, the one that was begun on this machine, or a new
    one. Workers are started with ``environment``.

    Raises ``ModelNotLoadable`` without Ray, or if there is no way to the cluster.
    """
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModelNotLoadable(
            "--engine-options: --distributed-executor-backend ray needs Ray, and there is none: "
            f"pip install 'ray{RAY}'"
        ) from error
    take_over("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            runtime_env={"env_vars": dict(environment)},
            include_dashboard=False,
            configure_logging=False,
            log_to_driver=False,  # what workers write is plain text
        )
    except Exception as error:  # of many types: ConnectionError, ValueError, its own
        raise ModelNotLoadable(f"cannot join a Ray cluster: {error}") from error
