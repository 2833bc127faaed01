"""The probe that asks whether an orchestrator serves the gateway."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from opentelemetry.metrics import Observation

from specmesh.client import AsyncClient, DeadlineExceeded, SpecmeshError, Unavailable
from specmesh.serving import metrics

log = logging.getLogger(__name__)

PROBE_SECONDS = 2.0
PROBE_AGE_SECONDS = 1.0
"""The time for which a successful probe counts."""


class Probe:
    """Calls orchestrators through ``client``, which has the gateway's own credentials.

    Errors in ``refusals`` mean that these credentials are refused, so that no caller of the gateway
    can be answered. Any other answer of an orchestrator shows that it serves the gateway, even
    while it has lost all verifiers: gateways that are then not ready would have their callers'
    connections refused, in place of a 503 that says why and when to retry.
    """

    def __init__(self, client: AsyncClient, refusals: tuple[type[SpecmeshError], ...]) -> None:
        self._client = client
        self._refusals = refusals
        self._probing = asyncio.Lock()
        self._served_s = -PROBE_AGE_SECONDS
        self._is_served: bool | None = None
        self._refusal = ""
        metrics.GATEWAY_SERVED.observe(self._observed)

    async def serves(self) -> bool:
        """Return True if an orchestrator serves the gateway."""
        async with self._probing:
            if time.monotonic() - self._served_s < PROBE_AGE_SECONDS:
                return True
            self._is_served = await self._ask()
            if self._is_served:
                self._served_s = time.monotonic()
            return self._is_served

    async def _ask(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._client.list_models()
        except (Unavailable, DeadlineExceeded, TimeoutError):
            return False
        except self._refusals as error:
            self._note(str(error))
            return False
        except SpecmeshError:
            pass
        self._note("")
        return True

    def _note(self, refusal: str) -> None:
        """Log why the gateway is refused once until that changes; an empty ``refusal`` is none."""
        if refusal and refusal != self._refusal:
            log.error("orchestrators refuse the gateway", extra={"reason": refusal})
        elif self._refusal and not refusal:
            log.info("orchestrators serve the gateway again")
        self._refusal = refusal

    def _observed(self) -> Iterable[Observation]:
        return () if self._is_served is None else (Observation(int(self._is_served)),)
