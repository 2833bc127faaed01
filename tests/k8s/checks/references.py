"""What one object says of another is true of it: labels, ports, addresses, names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.k8s.checks.certificates import SERVICES
from tests.k8s.manifests import ROLES, Manifests, Object, Pod, selects
from tests.k8s.tools import REPOSITORY

_ADDRESS = re.compile(r"\b([a-z][\w-]*(?:\.[a-z][\w.-]*)?):(\d{4,5})\b")
_POD = re.compile(r"(.+)-\d+\.(.+)")
DOCUMENTED = {
    name.replace("$role", role)
    for name in re.findall(
        r"create secret \S+ ([\w$-]+)", (REPOSITORY / "docs/kubernetes.md").read_text()
    )
    for role in (*ROLES, "load", *SERVICES)
}
"""Secrets that the docs say how to make."""


def selectors(manifests: Manifests) -> Iterator[str]:
    """Every selector finds pods, and a workload's own its own."""
    everybody = [pod.labels for pod in manifests.pods]
    for pod in manifests.pods:
        own = pod.workload["spec"].get("selector")
        if own is not None and not selects(own, pod.labels):
            yield f"{pod}: its selector is not for its own pods"
        spread = pod.spec.get("topologySpreadConstraints", ())
        if not all(selects(each["labelSelector"], pod.labels) for each in spread):
            yield f"{pod}: spread by labels of others"
    for kind in ("Service", "PodDisruptionBudget", "PodMonitor"):
        for name, each in manifests.of(kind).items():
            selector = each["spec"]["selector"]
            selector = {"matchLabels": selector} if kind == "Service" else selector
            if not any(selects(selector, labels) for labels in everybody):
                yield f"{kind} {name} selects nothing"


def selected_pods(manifests: Manifests, service: Object) -> list[Pod]:
    """The pods behind a Service."""
    selector = {"matchLabels": service["spec"]["selector"]}
    return [pod for pod in manifests.pods if selects(selector, pod.labels)]


def ports(manifests: Manifests) -> Iterator[str]:
    """Ports that are named are there, and are those that the process listens on."""
    for name, service in manifests.of("Service").items():
        for port in service["spec"]["ports"]:
            for pod in selected_pods(manifests, service):
                target = pod.ports.get(port["targetPort"])
                if target is None:
                    yield f"Service {name}: {pod} has no port {port['targetPort']!r}"
                elif service["spec"].get("clusterIP") == "None" and target != port["port"]:
                    yield f"Service {name}: headless, so port {port['port']} must be {target}"
    for name, monitor in manifests.of("PodMonitor").items():
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            for pod in manifests.serving():
                if endpoint["port"] not in pod.ports:
                    yield f"PodMonitor {name}: {pod} has no port {endpoint['port']!r}"
    for pod in manifests.pods:
        yield from _probed_ports(pod)
        yield from _listened_ports(manifests, pod)


def _probed_ports(pod: Pod) -> Iterator[str]:
    for container in pod.containers:
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            for how in ("grpc", "httpGet", "tcpSocket"):
                port = probe.get(how, {}).get("port")
                if port is not None and port not in {*pod.ports, *pod.ports.values()}:
                    yield f"{pod}: {kind} asks port {port}, which it doesn't have"


def _listened_ports(manifests: Manifests, pod: Pod) -> Iterator[str]:
    if pod.name not in {served.name for served in manifests.serving()}:
        return
    settings = manifests.environment(pod.containers[-1])
    prefix = f"SPECMESH_{pod.name.upper()}__"
    main = "http" if pod.name == "gateway" else "grpc"
    named = {main: "PORT", "metrics": "METRICS_ADDRESS", "probe": "PROBE_ADDRESS"}
    for port, setting in named.items():
        listened = settings.get(prefix + setting)
        if listened != str(pod.ports.get(port)):
            yield f"{pod}: listens on {listened} ({setting}), but {port} is {pod.ports.get(port)}"


def addresses(manifests: Manifests) -> Iterator[str]:
    """Addresses in settings and arguments are those of Services and their ports."""
    for pod in manifests.pods:
        for container in pod.containers:
            values = manifests.environment(container) | dict(
                enumerate(container.get("args", ())),
            )
            for variable, value in values.items():
                for host, port in _ADDRESS.findall(str(value)):
                    yield from _unreachable(manifests, f"{pod}: {variable}", host, int(port))


def _unreachable(manifests: Manifests, where: str, host: str, port: int) -> Iterator[str]:
    of_pod = _POD.fullmatch(host)
    name = of_pod[2] if of_pod else host
    service = manifests.of("Service").get(name)
    if service is None:
        yield f"{where}: there is no Service {name!r}"
    elif port not in {each["port"] for each in service["spec"]["ports"]}:
        yield f"{where}: Service {name} has no port {port}"
    elif of_pod and of_pod[1] not in manifests.of("StatefulSet"):
        yield f"{where}: there is no StatefulSet {of_pod[1]!r} whose pod {host} could be"


def names(manifests: Manifests) -> Iterator[str]:
    """What pods name is applied with them; Secrets are, or the docs say how to make them."""
    secrets = {each["spec"]["secretName"] for each in manifests.of("Certificate").values()}
    secrets |= {name for name in DOCUMENTED if not (secrets and name.startswith("tls-"))}
    for pod in manifests.pods:
        for kind, name in _named(pod):
            known = set(manifests.of(kind))
            if name not in (known | secrets if kind == "Secret" else known):
                yield f"{pod}: there is no {kind} {name!r}"
        volumes = {volume["name"] for volume in pod.spec.get("volumes", ())}
        claims = pod.workload["spec"].get("volumeClaimTemplates", ())
        volumes |= {claim["metadata"]["name"] for claim in claims}
        for container in pod.containers:
            for mount in container.get("volumeMounts", ()):
                if mount["name"] not in volumes:
                    yield f"{pod}: there is no volume {mount['name']!r}"


def _named(pod: Pod) -> Iterator[tuple[str, str]]:
    yield "ServiceAccount", pod.spec["serviceAccountName"]
    yield "PriorityClass", pod.spec["priorityClassName"]
    for volume in pod.spec.get("volumes", ()):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in pod.containers:
        for source in container.get("envFrom", ()):
            yield "ConfigMap", source["configMapRef"]["name"]
        for variable in container.get("env", ()):
            secret = variable.get("valueFrom", {}).get("secretKeyRef")
            if secret:
                yield "Secret", secret["name"]
    if pod.workload["kind"] == "StatefulSet":
        yield "Service", pod.workload["spec"]["serviceName"]
