"""The values of OpenTelemetry's standard variables, checked before its SDK reads them.

The SDK itself ends at some wrong values with a traceback, at one while it is imported, and uses
defaults in place of others:
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal
from urllib.parse import urlsplit

Signal = Literal["TRACES", "METRICS"]

GRPC = "grpc"
HTTP = "http/protobuf"

_QUEUE, _QUEUE_SIZE = "OTEL_BSP_MAX_QUEUE_SIZE", 2048
_BATCH, _BATCH_SIZE = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512
"""Variables of the span processor, and the SDK's defaults."""


@dataclass(frozen=True, slots=True)
class _Rule:
    expected: str
    accepts: Callable[[str], bool]


def _number(
    expected: str, parse: Callable[[str], float], is_right: Callable[[float], bool]
) -> _Rule:
    def accepts(text: str) -> bool:
        try:
            return is_right(parse(text))
        except ValueError:
            return False

    return _Rule(expected, accepts)


def _one_of(*values: str) -> _Rule:
    """Return the rule of a variable whose case does not matter."""
    *others, last = values
    expected = f"{', '.join(others)} or {last}" if others else last
    return _Rule(expected, lambda text: text.lower() in values)


_SECONDS = _number("a positive number of seconds", float, lambda number: 0 < number < inf)
_MILLISECONDS = _number("a positive number of milliseconds", float, lambda number: 0 < number < inf)
_SHARE = _number("a share from 0 to 1", float, lambda number: 0 <= number <= 1)
_COUNT = _number("a positive whole number", int, lambda number: number > 0)
_LIMIT = _number("a whole number, 0 or more", int, lambda number: number >= 0)
_HEADER = re.compile(r"[!#-'*+.0-9A-Z^-z|~-]+[ \t]*=[ !#-+\--:<-\[\]-~]*")
_HEADERS = _Rule(
    "name=value, or several with commas between them; other characters of a value as in a URL",
    lambda text: all(_HEADER.fullmatch(each.strip()) for each in text.split(",") if each.strip()),
)


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_ENDPOINTS = {
    GRPC: _Rule(
        "a URL without a user or password, which gRPC can't send", lambda text: "@" not in text
    ),
    HTTP: _Rule("a URL that begins with http:// or https://", _is_http_url),
}
_COMPRESSIONS = {GRPC: _one_of("gzip"), HTTP: _one_of("none", "gzip", "deflate")}
_RATIO_SAMPLERS = frozenset({"traceidratio", "parentbased_traceidratio"})
_SAMPLER, _SAMPLER_ARG = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"

_OF_TRACES = {
    "OTEL_BSP_SCHEDULE_DELAY": _COUNT,
    "OTEL_BSP_EXPORT_TIMEOUT": _COUNT,
    _QUEUE: _COUNT,
    _BATCH: _COUNT,
    "OTEL_ATTRIBUTE_COUNT_LIMIT": _LIMIT,
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": _LIMIT,
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": _LIMIT,
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": _LIMIT,
    "OTEL_SPAN_EVENT_COUNT_LIMIT": _LIMIT,
    "OTEL_SPAN_LINK_COUNT_LIMIT": _LIMIT,
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": _LIMIT,
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": _LIMIT,
    _SAMPLER: _one_of(
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
        "parentbased_rate_limited",
    ),
}
_OF_METRICS = {
    "OTEL_METRIC_EXPORT_INTERVAL": _MILLISECONDS,
    "OTEL_METRIC_EXPORT_TIMEOUT": _MILLISECONDS,
    "OTEL_METRICS_EXEMPLAR_FILTER": _Rule(
        "always_on, always_off or trace_based",
        frozenset({"always_on", "always_off", "trace_based"}).__contains__,
    ),
}


def mistakes(environment: Mapping[str, str], protocols: Mapping[Signal, str]) -> Iterator[str]:
    """Yield a sentence about each wrong value in ``environment`` that takes effect, which begins
    with the variable. ``protocols`` has the signals that are sent, and how."""
    for signal, protocol in protocols.items():
        yield from _of_exporter(environment, signal, protocol)
    if "METRICS" in protocols:
        yield from _broken(environment, _OF_METRICS)
    if "TRACES" in protocols:
        wrong = list(_broken(environment, _OF_TRACES | _of_sampler(environment)))
        yield from wrong or _of_batches(environment)


def _of_exporter(environment: Mapping[str, str], signal: Signal, protocol: str) -> Iterator[str]:
    for kind, rule in (("TIMEOUT", _SECONDS), ("COMPRESSION", _COMPRESSIONS[protocol])):
        for name in (f"OTEL_EXPORTER_OTLP_{signal}_{kind}", f"OTEL_EXPORTER_OTLP_{kind}"):
            given = environment.get(name)
            # The exporter over gRPC does not take an empty value as none.
            if given or (given is not None and protocol == GRPC):
                if not rule.accepts(given.strip()):
                    yield _sentence(name, given, rule)
                break
    for kind, rule in (("ENDPOINT", _ENDPOINTS[protocol]), ("HEADERS", _HEADERS)):
        names = (f"OTEL_EXPORTER_OTLP_{signal}_{kind}", f"OTEL_EXPORTER_OTLP_{kind}")
        chosen = next((name for name in names if environment.get(name)), None)
        if chosen is not None and not rule.accepts(environment[chosen].strip()):
            # The sentence goes to the log, and the value may have a secret.
            yield f"{chosen}: it must be {rule.expected}"


def _of_sampler(environment: Mapping[str, str]) -> dict[str, _Rule]:
    """Return the rule for the argument of a sampler that the SDK itself has."""
    takes_ratio = environment.get(_SAMPLER, "").lower() in _RATIO_SAMPLERS
    return {_SAMPLER_ARG: _SHARE} if takes_ratio else {}


def _of_batches(environment: Mapping[str, str]) -> Iterator[str]:
    queue = int(environment.get(_QUEUE, "").strip() or _QUEUE_SIZE)
    batch = int(environment.get(_BATCH, "").strip() or _BATCH_SIZE)
    if batch > queue:
        yield f"{_QUEUE}={queue}: it must be at least {_BATCH}, which is {batch}"


def _broken(environment: Mapping[str, str], rules: Mapping[str, _Rule]) -> Iterator[str]:
    """Yield a sentence about each value that breaks its rule; an empty one counts as unset."""
    for name, rule in rules.items():
        given = environment.get(name, "").strip()
        if given and not rule.accepts(given):
            yield _sentence(name, given, rule)


def _sentence(name: str, given: str, rule: _Rule) -> str:
    return f"{name}={given}: it must be {rule.expected}"
