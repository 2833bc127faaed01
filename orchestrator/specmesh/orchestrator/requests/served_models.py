"""The response of ListModels: the target, its drafters, and the available strategies."""

from __future__ import annotations

from collections.abc import Iterable

from specmesh.decoding.errors import InvalidField
from specmesh.orchestrator.replicas.pool.replica_pool import Pool
from specmesh.orchestrator.replicas.replica_pools import ReplicaPools
from specmesh.orchestrator.replicas.target import Target
from specmesh.orchestrator.requests.answer_format import name_of
from specmesh.orchestrator.requests.plan import Defaults
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.serving.errors import FailedPreconditionStatus
from specmesh.v1 import model_pb2, served_model_pb2


def check_page(request: served_model_pb2.ListModelsRequest) -> None:
    """Raise ``InvalidField`` for any page but the first, which holds all models."""
    if request.page_size < 0:
        raise InvalidField("page_size", "must not be negative")
    if request.page_token:
        raise InvalidField("page_token", "must be empty: all models are on the first page")


def served_model(
    target: Target, mesh: ReplicaPools, defaults: Defaults
) -> served_model_pb2.ServedModel:
    """Return the model that ``mesh`` serves, as clients see it."""
    return served_model_pb2.ServedModel(
        target=target.info,
        drafters=[peer.model.info for peer in mesh.drafters.ready if peer.model],
        num_verifiers=len(mesh.verifiers.ready),
        strategies=_strategies(mesh),
        default_strategy=defaults.strategy,
        default_lookahead=defaults.lookahead or 0,
        has_chat_template=target.chat_template is not None,
        tool_format=name_of(defaults.formats.tools_of(target)),
        reasoning_format=name_of(defaults.formats.reasoning_of(target)),
    )


def missing(strategy: str, mesh: ReplicaPools) -> FailedPreconditionStatus | None:
    """Return the error for what ``mesh`` lacks for ``strategy``; None if it lacks nothing.

    A drafter or confidence service that is only unreachable is not missing: until it returns, the
    target does all the work.
    """
    if STRATEGIES[strategy].needs_confidence and not mesh.confidence.configured:
        return FailedPreconditionStatus(
            "NO_CONFIDENCE_SERVICE",
            f"strategy {strategy!r} needs a confidence service: none is configured",
            {"strategy": strategy},
        )
    if STRATEGIES[strategy].needs_heads and not _may_have_heads(mesh.verifiers):
        return FailedPreconditionStatus(
            "UNSUPPORTED_FEATURE",
            f"strategy {strategy!r} needs heads: no replica of the target has any",
            {"feature": "HEADS"},
        )
    drafters = mesh.drafters
    if STRATEGIES[strategy].needs_drafter and drafters.all_refused:
        reasons = "; ".join(f"{peer.title}: {peer.refusal}" for peer in drafters.peers)
        return FailedPreconditionStatus(
            "NO_FITTING_DRAFTER",
            f"strategy {strategy!r} needs a drafter: {reasons or 'none is configured'}",
            {"strategy": strategy},
        )
    return None


def _may_have_heads(replicas: Pool) -> bool:
    """Return whether some replica has heads, or may have them because it is not known yet."""
    return any(
        peer.model is None or peer.can(model_pb2.MODEL_FEATURE_HEADS) for peer in replicas.peers
    )


def _strategies(mesh: ReplicaPools) -> Iterable[served_model_pb2.StrategyInfo]:
    for name, strategy in STRATEGIES.items():
        yield served_model_pb2.StrategyInfo(
            name=name,
            lossless=strategy.lossless,
            available=missing(name, mesh) is None,
            options=sorted(strategy.options),
        )
