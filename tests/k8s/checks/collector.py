"""The OpenTelemetry Collector's configuration holds together, and keeps what matters."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import yaml
from tests.k8s.manifests import Manifests, Object


def collector(manifests: Manifests) -> Iterator[str]:
    """Pipelines name what is configured, ports are the pod's, and slow and failed traces stay."""
    for name, config in manifests.of("ConfigMap").items():
        if not name.startswith("otel-collector"):
            continue
        read = merged(config)
        for pipeline, parts in read["service"]["pipelines"].items():
            for kind, used in parts.items():
                for part in set(used) - read[kind].keys():
                    yield f"{name}: pipeline {pipeline} has {kind} {part}, which is not configured"
        for part in set(read["service"]["extensions"]) - read["extensions"].keys():
            yield f"{name}: extension {part} is not configured"
        policies = read["processors"]["tail_sampling"]["policies"]
        missing = {"status_code", "latency"} - {policy["type"] for policy in policies}
        yield from (f"{name}: no policy keeps traces by {kind}" for kind in sorted(missing))
        yield from _ports(manifests, read)


def merged(config: Object) -> Object:
    """Merge the Collector's files as it does itself, a later one over those before."""
    files = ("config.yaml", "tls.yaml")
    read = [yaml.safe_load(config["data"][file]) for file in files if file in config["data"]]
    return functools.reduce(_merge, read)


def _merge(first: Object, second: Object) -> Object:
    found = dict(first)
    for name, value in second.items():
        both = isinstance(value, dict) and isinstance(first.get(name), dict)
        found[name] = _merge(first[name], value) if both else value
    return found


def _ports(manifests: Manifests, read: dict) -> Iterator[str]:
    pod = manifests.pod("otel-collector")
    reader = read["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]
    listened = {
        "otlp": read["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].rpartition(":")[2],
        "health": read["extensions"]["health_check"]["endpoint"].rpartition(":")[2],
        "metrics": str(reader["port"]),
    }
    if listened != {name: str(port) for name, port in pod.ports.items()}:
        yield f"{pod}: has ports {pod.ports}, but listens on {listened}"
    for exporter in read["exporters"].values():
        host, _, port = exporter["endpoint"].rpartition(":")
        service = manifests.of("Service").get(host, {"spec": {"ports": []}})
        if int(port) not in {each["port"] for each in service["spec"]["ports"]}:
            yield f"{pod}: sends to {exporter['endpoint']}, where there is no Service"
