"""The ``/metrics`` of the servers, scraped while they are under load."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from specmesh.load.results.report import ServerLoad, ServerSample

INTERVAL_S = 2.0
"""Interval between two scrapes of a process, each of which costs it some milliseconds."""
_TIMEOUT_S = 5.0

_SERVICE_LABEL = "service_name"
_CPU = "process_cpu_seconds_total"
_RESIDENT = "process_resident_memory_bytes"
_FORWARDS = "specmesh_engine_forward_duration_seconds_sum"
_QUEUED = "specmesh_queue_duration_seconds_sum"
_QUEUED_COUNT = "specmesh_queue_duration_seconds_count"
_QUEUE_DEPTH = "specmesh_engine_queue_depth"
_WAITING = "specmesh_requests_waiting"
_KNOWN = frozenset({_CPU, _RESIDENT, _FORWARDS, _QUEUED, _QUEUED_COUNT, _QUEUE_DEPTH, _WAITING})


@dataclass(frozen=True, slots=True)
class ServerReading:
    """The metrics of a process, summed over labels, ``at_s`` seconds after the start."""

    at_s: float
    role: str
    values: dict[str, float]


class CannotScrape(Exception):
    """An address that does not answer with metrics."""


async def scrape(session: aiohttp.ClientSession, address: str, at_s: float) -> ServerReading:
    """Scrape ``address``, ``host:port``. Raises CannotScrape."""
    url = f"http://{address}/metrics"
    try:
        async with session.get(url) as response:
            response.raise_for_status()
            return parsed(await response.text(), at_s)
    except aiohttp.ClientConnectorError as error:
        raise CannotScrape(f"{url}: {error.os_error}") from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise CannotScrape(f"{url}: {error or type(error).__name__}") from error


def parsed(text: str, at_s: float) -> ServerReading:
    """Parse the text format of Prometheus."""
    role, values = "", dict[str, float]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            role = role or sample.labels.get(_SERVICE_LABEL, "").removeprefix("specmesh-")
            if sample.name in _KNOWN:
                values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return ServerReading(at_s, role, values)


@dataclass(slots=True)
class ServerWatch:
    """Scrapes processes at intervals until cancelled. Failed scrapes after the start are
    skipped."""

    addresses: Sequence[str]
    scrapes: dict[str, list[ServerReading]] = field(default_factory=dict)

    async def check(self) -> None:
        """Scrape each address once. Raises CannotScrape."""
        async with _session() as session:
            await asyncio.gather(*(scrape(session, each, 0.0) for each in self.addresses))

    async def run(self, now: Callable[[], float]) -> None:
        """Scrape all addresses until cancelled; ``now`` returns the seconds since the start."""
        async with _session() as session:
            while True:
                found = await asyncio.gather(
                    *(scrape(session, each, now()) for each in self.addresses),
                    return_exceptions=True,
                )
                for address, each in zip(self.addresses, found, strict=True):
                    if isinstance(each, ServerReading):
                        self.scrapes.setdefault(address, []).append(each)
                await asyncio.sleep(INTERVAL_S)

    def servers(self, from_s: float, until_s: float) -> list[ServerLoad]:
        """Return the load of each server between two times."""
        return [
            server(address, self.scrapes[address], from_s, until_s)
            for address in self.addresses
            if address in self.scrapes
        ]


def server(
    address: str, scrapes: Sequence[ServerReading], from_s: float, until_s: float
) -> ServerLoad:
    """Return the load of one process; ``scrapes`` are in order, and not empty."""
    first = max((each for each in scrapes if each.at_s <= from_s), key=_when, default=scrapes[0])
    last = min((each for each in scrapes if each.at_s >= until_s), key=_when, default=scrapes[-1])
    within = [each for each in scrapes if first.at_s <= each.at_s <= last.at_s]
    num_queued = _grown(within, _QUEUED_COUNT)
    queued_s = _grown(within, _QUEUED)
    return ServerLoad(
        address=address,
        role=last.role or "unknown",
        cpu_cores=_rate(within, _CPU),
        forward_share=_rate(within, _FORWARDS),
        queue_mean_ms=round(queued_s / num_queued * 1e3, 4) if num_queued and queued_s else None,
        max_queue_depth=_most(within, _QUEUE_DEPTH),
        max_waiting=_most(within, _WAITING),
        samples=[
            ServerSample(
                t_s=round(each.at_s, 3),
                cpu_cores=_rate((before, each), _CPU),
                forward_share=_rate((before, each), _FORWARDS),
                queue_depth=each.values.get(_QUEUE_DEPTH),
                waiting=each.values.get(_WAITING),
                resident_bytes=each.values.get(_RESIDENT),
            )
            for before, each in itertools.pairwise(scrapes)
        ],
    )


def _when(each: ServerReading) -> float:
    return each.at_s


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))


def _grown(scrapes: Sequence[ServerReading], name: str) -> float | None:
    """Return the growth of a counter from the first scrape to the last, None if it is unknown.

    A counter that has fallen began again from 0, because its process was restarted, as in
    Prometheus' ``increase``.
    """
    if name not in scrapes[-1].values:
        return None
    counted = [each.values.get(name, 0.0) for each in scrapes]
    return sum(
        after - before if after >= before else after
        for before, after in itertools.pairwise(counted)
    )


def _rate(scrapes: Sequence[ServerReading], name: str) -> float | None:
    grown, took_s = _grown(scrapes, name), scrapes[-1].at_s - scrapes[0].at_s
    return None if grown is None or took_s <= 0 else round(grown / took_s, 4)


def _most(scrapes: Sequence[ServerReading], name: str) -> float | None:
    return max((each.values[name] for each in scrapes if name in each.values), default=None)
