"""The confidence process: ``specmesh serve confidence``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

import grpc.aio
from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from specmesh.confidence.assessor import Assessor
from specmesh.confidence.request_cache import RequestCache
from specmesh.confidence.servicer import ConfidenceServicer
from specmesh.decoding.errors import InvalidField
from specmesh.decoding.predict.confidence import CALIBRATED, SCORERS
from specmesh.decoding.predict.thresholds import Constant, EscalationRate, FollowLoad, Rule
from specmesh.mesh.v1alpha1 import confidence_pb2, confidence_pb2_grpc
from specmesh.serving.calibration_file import read_calibration
from specmesh.serving.process.command_line import parse
from specmesh.serving.process.server import serve
from specmesh.serving.process.server_loop import run
from specmesh.serving.settings import ServerSettings

DEFAULT_RULE = EscalationRate(0.5)
"""A share means the same for every scorer and every pair of models; a threshold doesn't."""


def _check_scorer(name: str) -> str:
    names = (*SCORERS, CALIBRATED)
    if name not in names:
        raise ValueError(f"must be one of: {', '.join(names)}")
    return name


def _read_bounds(listed: str) -> FollowLoad:
    lowest, _, highest = listed.partition(",")
    return FollowLoad(float(lowest), float(highest))


def _check_bounds(listed: str) -> str:
    try:
        _read_bounds(listed)
    except InvalidField as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError("must be two numbers separated by a comma") from None
    return listed


class ConfidenceSettings(ServerSettings):
    """The confidence service: decides which draft tokens to keep without verification by the
    target."""

    model_config = SettingsConfigDict(env_prefix="SPECMESH_CONFIDENCE__")

    scorer: Annotated[str, AfterValidator(_check_scorer)] = Field(
        "log-probability",
        description=f"scorer for requests that name none: {', '.join(SCORERS)}, "
        f"or {CALIBRATED}, which needs --calibration",
    )
    calibration: Path | None = Field(
        None, description="file written by 'specmesh calibrate confidence'"
    )
    threshold: float | None = Field(
        None,
        description="rule for requests without one: keep tokens that score above this constant; "
        "-inf keeps all, inf none. This is the only rule under which an answer does not "
        "depend on other requests",
    )
    escalation_rate: float | None = Field(
        None,
        ge=0,
        le=1,
        description="or: have the target verify this share of the tokens of all sessions, judged "
        f"by recent scores; the default, with {DEFAULT_RULE.share}",
    )
    follow_load: Annotated[str, AfterValidator(_check_bounds)] | None = Field(
        None,
        description="or: verify a share that follows the target's load, LOW,HIGH: the lower one "
        "while its replicas are busy, the higher one while they are idle",
    )
    window_ms: float = Field(
        0.0,
        ge=0,
        le=100,
        description="longest wait of a request for others to be batched with, never longer "
        "than half a verification; for targets without continuous batching, which "
        "verifiers have",
    )
    max_batch: int = Field(32, ge=1, le=1024, description="most requests released together")

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = (self.threshold, self.escalation_rate, self.follow_load)
        if sum(rule is not None for rule in given) > 1:
            raise ValueError(
                "only one of --threshold, --escalation-rate and --follow-load can be set"
            )
        if self.scorer == CALIBRATED and self.calibration is None:
            raise ValueError("--scorer calibrated needs --calibration")
        try:
            assert self.rule
        except InvalidField as error:  # NaN
            raise ValueError(str(error)) from None
        return self

    @property
    def rule(self) -> Rule:
        """The rule for requests that name none."""
        if self.threshold is not None:
            return Constant(self.threshold)
        if self.escalation_rate is not None:
            return EscalationRate(self.escalation_rate)
        return _read_bounds(self.follow_load) if self.follow_load else DEFAULT_RULE


class ConfidenceService:
    """The ``Service`` of the confidence role."""

    role = "confidence"

    def __init__(self, settings: ConfidenceSettings) -> None:
        self._settings = settings
        self._cache = RequestCache(window_s=settings.window_ms / 1e3, max_batch=settings.max_batch)

    @property
    def names(self) -> Sequence[str]:
        """Full names of the gRPC services."""
        return (confidence_pb2.DESCRIPTOR.services_by_name["ConfidenceService"].full_name,)

    async def start(self) -> None:
        """Read the calibration."""
        calibration = read_calibration(self._settings.calibration)
        self._assessor = Assessor(self._settings.scorer, self._settings.rule, calibration)

    def register(self, server: grpc.aio.Server) -> None:
        """Add ConfidenceService."""
        servicer = ConfidenceServicer(self._assessor, self._cache)
        confidence_pb2_grpc.add_ConfidenceServiceServicer_to_server(servicer, server)

    async def stop(self) -> None:
        """Release the requests that wait."""
        self._cache.stop()


if __name__ == "__main__":
    settings = parse(ConfidenceSettings, sys.argv[1:], "specmesh serve confidence")
    sys.exit(run(serve(settings, ConfidenceService(settings))))
