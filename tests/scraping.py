"""Scrapes a process as Prometheus does, and reads what it says."""

from __future__ import annotations

import asyncio
import http.client
from dataclasses import dataclass

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
PATIENCE_S = 30


@dataclass(frozen=True)
class Scraped:
    """All samples of one scrape."""

    samples: tuple[Sample, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(sample.name for sample in self.samples)

    def all(self, name: str, **labels: str) -> list[Sample]:
        """The samples of that name whose labels have these values."""
        return [
            sample
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """Their sum; there must be one at least."""
        found = self.all(name, **labels)
        assert found, f"no {name} {labels} among {sorted(self.names)}"
        return sum(sample.value for sample in found)


async def scrape(address: str) -> Scraped:
    """What /metrics at ``address`` says, which must be OpenMetrics."""
    status, body = await get(address, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(body.decode())
    return Scraped(tuple(sample for family in families for sample in family.samples))


async def get(address: str, path: str) -> tuple[int, bytes]:
    """Status and body of a GET."""
    return await asyncio.to_thread(_get, address, path)


def _get(address: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers={"Accept": OPEN_METRICS})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
