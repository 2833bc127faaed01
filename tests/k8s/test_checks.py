"""Each check sees what it is for: a manifest is broken, and it tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from tests.k8s.checks import (
    certificates,
    code,
    collector,
    hardening,
    lifecycle,
    memory,
    metrics,
    network,
    parts,
    references,
)
from tests.k8s.checks.every import CHECKS, Check
from tests.k8s.manifests import Manifests, Object
from tests.k8s.rendering import FULL, manifests
from tests.k8s.tools import needs_tools

pytestmark = needs_tools

LEADERS = "tensor-parallel-nodes"
ONE_NODE = "tensor-parallel"
VLLM = "vllm"
FETCHED = "models are fetched"


def of(kind: str, name: str) -> Callable[[Manifests], Object]:
    """An object, whose name may end in a hash."""

    def find(built: Manifests) -> Object:
        found = built.of(kind)
        (match,) = [each for each in found if each == name or each.rpartition("-")[0] == name]
        return found[match]

    return find


def deployment(name: str) -> Callable[[Manifests], Object]:
    return lambda built: of("Deployment", name)(built)["spec"]


def pod(name: str) -> Callable[[Manifests], Object]:
    return lambda built: built.pod(name).spec


def container(name: str) -> Callable[[Manifests], Object]:
    return lambda built: built.pod(name).spec["containers"][0]


def settings(name: str) -> Callable[[Manifests], Object]:
    return lambda built: of("ConfigMap", name)(built)["data"]


def collector_config(built: Manifests) -> Object:
    return of("ConfigMap", "otel-collector")(built)["data"]


Path = tuple[str | int, ...]
Broken = tuple[Check, Callable[[Manifests], Object], Path, object, str]
"""A check, where to break what it checks, what is there instead, and what is told."""

GONE = object()

BREAKAGES: list[Broken] = [
    # Labels.
    (references.selectors, deployment("drafter"), ("selector", "matchLabels"), {"a": "b"}, "own"),
    (
        *(references.selectors, of("Service", "verifier"), ("spec", "selector")),
        *({"app.kubernetes.io/name": "verifer"}, "Service verifier selects nothing"),
    ),
    (
        *(references.selectors, of("PodDisruptionBudget", "drafter")),
        *(("spec", "selector", "matchLabels"), {"app": "x"}, "drafter selects nothing"),
    ),
    (
        *(references.selectors, pod("verifier"), ("topologySpreadConstraints", 0, "labelSelector")),
        *({"matchLabels": {"app": "x"}}, "spread"),
    ),
    # Ports.
    (
        *(references.ports, of("Service", "drafter"), ("spec", "ports", 0, "targetPort"), "grcp"),
        "has no port 'grcp'",
    ),
    (
        *(references.ports, of("Service", "drafter"), ("spec", "ports", 0, "port"), 50052),
        "headless",
    ),
    (references.ports, container("verifier"), ("ports", 0, "containerPort"), 50052, "listens on"),
    (references.ports, container("gateway"), ("ports", 2, "name"), "prob", "probe is None"),
    (
        *(references.ports, of("PodMonitor", "specmesh")),
        *(("spec", "podMetricsEndpoints", 0, "port"), "metric", "has no port 'metric'"),
    ),
    (
        *(references.ports, container("drafter"), ("livenessProbe", "grpc", "port"), 8087),
        "asks port 8087",
    ),
    (
        *(references.ports, settings("confidence")),
        *(("SPECMESH_CONFIDENCE__METRICS_ADDRESS",), "9465", "metrics is 9464"),
    ),
    # Addresses.
    (
        *(references.addresses, settings("orchestrator")),
        *(("SPECMESH_ORCHESTRATOR__VERIFIERS",), "dns:///verifiers:50051", "'verifiers'"),
    ),
    (
        *(references.addresses, settings("gateway")),
        *(("SPECMESH_GATEWAY__ORCHESTRATORS",), "dns:///orchestrator:50052", "no port 50052"),
    ),
    (
        *(references.addresses, container("verifier"), ("env", 1, "value")),
        *("rediss+sentinel://redis-0.redys:26379/specmesh", "'redys'"),
    ),
    (
        *(references.addresses, container("verifier"), ("env", 1, "value")),
        *("rediss+sentinel://radis-0.redis:26379/specmesh", "no StatefulSet 'radis'"),
    ),
    (
        *(references.addresses, settings("load"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",)),
        *("http://otel:4317", "'otel'"),
    ),
    # Names.
    (
        *(references.names, container("drafter"), ("envFrom", 0, "configMapRef", "name")),
        *("drafter-abc", "no ConfigMap 'drafter-abc'"),
    ),
    (references.names, pod("drafter"), ("serviceAccountName",), "x", "no ServiceAccount 'x'"),
    (references.names, pod("drafter"), ("priorityClassName",), "x", "no PriorityClass 'x'"),
    (
        *(references.names, container("orchestrator"), ("volumeMounts", 0, "name"), "temp"),
        "no volume 'temp'",
    ),
    (
        *(references.names, of("Certificate", "verifier"), ("spec", "secretName"), "x"),
        "no Secret 'tls-verifier'",
    ),
    (
        *(references.names, of("PersistentVolumeClaim", "reports"), ("metadata", "name"), "x"),
        "no PersistentVolumeClaim 'reports'",
    ),
    # Ends.
    (lifecycle.grace, pod("orchestrator"), ("terminationGracePeriodSeconds",), 65, "killed after"),
    (
        *(lifecycle.grace, settings("verifier"), ("SPECMESH_VERIFIER__DRAIN_SECONDS",), "30"),
        "killed after",
    ),
    (lifecycle.disruptions, of("PodDisruptionBudget", "redis"), ("spec", "selector"), {}, "2 bud"),
    (
        *(lifecycle.disruptions, of("PodDisruptionBudget", "redis")),
        *(("spec", "selector", "matchLabels"), {"a": "b"}, "0 budgets"),
    ),
    (
        *(lifecycle.disruptions, of("PodDisruptionBudget", "verifier")),
        *(("spec", "maxUnavailable"), 0, "can't be drained"),
    ),
    (
        *(lifecycle.rollouts, deployment("orchestrator")),
        *(("strategy", "rollingUpdate", "maxUnavailable"), 1, "before a new one is ready"),
    ),
    (
        *(lifecycle.rollouts, deployment("verifier")),
        *(("strategy", "rollingUpdate", "maxSurge"), 1, "would wait"),
    ),
    (
        lifecycle.rollouts,
        deployment("traces"),
        ("strategy",),
        {"rollingUpdate": {"maxSurge": 1}},
        "wait",
    ),
    (
        *(lifecycle.deadlines, deployment("verifier"), ("progressDeadlineSeconds",)),
        *(GONE, "may start for 1800 s, but its rollout fails after 600 s"),
    ),
    (
        *(lifecycle.deadlines, container("drafter"), ("startupProbe", "failureThreshold")),
        *(720, "may start for 3600 s"),
    ),
    # Rights and resources.
    (hardening.restricted, pod("load"), ("enableServiceLinks",), True, "enableServiceLinks"),
    (hardening.restricted, pod("redis"), ("automountServiceAccountToken",), GONE, "automount"),
    (hardening.restricted, pod("verifier"), ("securityContext", "seccompProfile"), {}, "seccomp"),
    (hardening.restricted, pod("verifier"), ("hostNetwork",), True, "hostNetwork"),
    (
        *(
            hardening.restricted,
            container("drafter"),
            ("securityContext", "readOnlyRootFilesystem"),
        ),
        *(False, "readOnlyRootFilesystem"),
    ),
    (hardening.restricted, pod("drafter"), ("volumes", 0, "emptyDir"), {}, "no sizeLimit"),
    (hardening.resources, container("redis"), ("resources", "limits", "cpu"), GONE, "how much cpu"),
    (
        *(hardening.resources, container("drafter"), ("resources", "limits", "memory"), "9Gi"),
        "up to 9Gi",
    ),
    (
        *(hardening.disk, container("drafter"), ("resources", "requests", "ephemeral-storage")),
        *("512Mi", "asks for"),
    ),
    (
        *(hardening.disk, pod("traces"), ("volumes", 1, "emptyDir", "sizeLimit")),
        *("2Gi", "may fill"),
    ),
    (
        *(code.patience, container("verifier"), ("readinessProbe", "failureThreshold")),
        *(1, "fails once"),
    ),
    (
        *(code.patience, container("gateway"), ("readinessProbe", "timeoutSeconds")),
        *(GONE, "waits for a second"),
    ),
    (
        *(memory.memory, container("orchestrator"), ("resources", "limits", "memory")),
        *("1Gi", "may take 1100 MiB, but has 1024"),
    ),
    (
        *(memory.memory, settings("gateway"), ("SPECMESH_GATEWAY__MAX_HELD_BYTES",)),
        *("134217728", "MAX_HELD_BYTES is 128, docs/kubernetes.md says 64"),
    ),
    # The code.
    (
        *(code.probes, container("verifier"), ("livenessProbe", "grpc", "service"), "live"),
        "livenessProbe must ask",
    ),
    (code.probes, container("gateway"), ("readinessProbe",), GONE, "readinessProbe must ask"),
    (code.probes, container("drafter"), ("startupProbe", "grpc", "port"), 50051, "must ask"),
    (code.settings, settings("verifier"), ("SPECMESH_VERIFIER__THREAD",), "1", "no setting SPEC"),
    (code.settings, settings("drafter"), ("SPECMESH_VERIFIER__THREADS",), "1", "no setting SPEC"),
    (code.settings, settings("verifier"), ("SPECMESH_VERIFIER__DTYPE",), "int3", "--dtype"),
    (
        *(code.settings, container("orchestrator"), ("env", 1, "value"), "tcp://redis:6379"),
        "--redis-url",
    ),
    (code.settings, settings("gateway"), ("SPECMESH_GATEWAY__MESH_CA",), GONE, "--mesh-cert"),
    (code.settings, settings("traces"), ("SPECMESH_TRACES__PORT",), "1", "no setting SPEC"),
    (code.settings, settings("load"), ("SPECMESH_TARGETS",), "a:1", "no setting SPECMESH_TARGETS"),
    (code.settings, container("load"), ("args", 1), "--rats=10", "--rats"),
    (code.settings, container("load"), ("args", 1), "--rate=ten", "'ten' is not a number"),
    (code.images, container("verifier"), ("image",), "specmesh-verifier:0.0.9", "is of 0.0.9"),
    (code.images, container("verifier"), ("image",), "specmesh-verifer:0.1.0", "no image"),
    (code.images, container("verifier"), ("image",), "specmesh-drafter:0.1.0", "runs 'drafter'"),
    (code.images, container("traces"), ("args",), ["serve", "tracks"], "runs 'tracks'"),
    (code.images, container("redis"), ("image",), "docker.io/valkey/valkey:latest", "VERSION"),
    # Engines and their GPUs.
    (parts.engines, settings("verifier"), ("SPECMESH_VERIFIER__BACKEND",), "vllm", "no place for"),
    (
        parts.engines,
        container("verifier"),
        ("image",),
        "a/specmesh-verifier-vllm:1",
        "backend None",
    ),
    (
        *(parts.processes, settings("verifier"), ("SPECMESH_VERIFIER__TENSOR_PARALLEL_SIZE",)),
        *("2", "2 processes have 1 GPUs"),
    ),
    # Metrics.
    (
        *(metrics.queries, of("ScaledObject", "verifier"), ("spec", "triggers", 0)),
        *(
            {
                "type": "prometheus",
                "name": "x",
                "metadata": {"query": 'specmesh_queue_length{namespace="specmesh"}'},
            },
            "exports specmesh_queue_length",
        ),
    ),
    (
        *(metrics.queries, of("ScaledObject", "drafter"), ("spec", "triggers", 0)),
        *(
            {
                "type": "prometheus",
                "name": "x",
                "metadata": {
                    "query": "specmesh_requests_running"
                    '{namespace="specmesh", service_name="specmesh-drafter"}'
                },
            },
            "drafter doesn't export specmesh_requests_running",
        ),
    ),
    (
        *(metrics.queries, of("ScaledObject", "verifier"), ("spec", "triggers", 1, "metadata")),
        *({"query": 'specmesh_engine_jobs{namespace="specmesh", role="a"}'}, "a label role"),
    ),
    (
        *(metrics.queries, of("ScaledObject", "orchestrator"), ("spec", "triggers", 0, "metadata")),
        *({"query": 'sum(specmesh_requests_running{namespace="other"})'}, "of namespace"),
    ),
    (
        *(metrics.queries, of("ScaledObject", "orchestrator"), ("spec", "triggers", 0, "metadata")),
        *(
            {
                "query": 'sum(specmesh_requests_running{namespace="specmesh"})'
                ' / sum(specmesh_requests_room{role="x"})'
            },
            "other namespaces",
        ),
    ),
    (
        *(metrics.alerts, of("PrometheusRule", "specmesh")),
        *(("spec", "groups", 0, "rules", 0, "expr"), "specmesh_none > 0", "exports specmesh_none"),
    ),
    (
        *(metrics.scaling, of("ScaledObject", "drafter"), ("spec", "scaleTargetRef", "name")),
        *("drafters", "no Deployment 'drafters'"),
    ),
    (metrics.scaling, deployment("verifier"), ("replicas",), 3, "would set the replicas"),
    (metrics.scaling, pod("drafter"), ("terminationGracePeriodSeconds",), 90, "more away"),
    (
        *(metrics.monitored, of("PodMonitor", "specmesh"), ("spec", "selector", "matchLabels")),
        *({"app": "x"}, "leaves"),
    ),
    # Who calls whom.
    (
        *(network.policies, of("NetworkPolicy", "orchestrator"), ("spec", "ingress", 0, "from")),
        *([{"namespaceSelector": {}}], "strangers may reach grpc of orchestrator"),
    ),
    (
        *(network.policies, of("NetworkPolicy", "gateway"), ("spec", "ingress", 0, "from")),
        *(GONE, "strangers may reach http of gateway"),
    ),
    (
        *(network.policies, of("NetworkPolicy", "verifier"), ("spec", "ingress", 0, "ports")),
        *([{"port": 50052}], "orchestrator can't reach grpc of verifier"),
    ),
    (
        *(network.policies, of("NetworkPolicy", "redis"), ("spec", "podSelector", "matchLabels")),
        *({"app.kubernetes.io/name": "radis"}, "nothing is called 'radis'"),
    ),
    (
        *(network.policies, of("NetworkPolicy", "all-resolve-names"), ("spec", "egress", 0)),
        *({}, "traces may reach https of the internet"),
    ),
    (
        *(network.policies, of("NetworkPolicy", "all-resolve-names"), ("spec", "egress")),
        *([], "can't reach dns of dns"),
    ),
    (
        *(network.policies, of("NetworkPolicy", "prometheus-reads-metrics")),
        *(("spec", "ingress", 0, "from"), GONE, "strangers may reach metrics"),
    ),
    # Certificates.
    (
        *(certificates.certificates, of("Certificate", "verifier"), ("spec", "uris")),
        *(["spiffe://specmesh.internal/specmesh/drafter"], "must say the role verifier"),
    ),
    (
        *(certificates.certificates, of("Certificate", "drafter"), ("spec", "dnsNames")),
        *(["drafter"], "must be for drafter.specmesh.internal"),
    ),
    (
        *(certificates.certificates, of("Certificate", "orchestrator"), ("spec", "dnsNames")),
        *(["orchestrator.specmesh.internal"], "as clients call it"),
    ),
    (
        *(certificates.certificates, of("Certificate", "redis"), ("spec", "uris")),
        *(["spiffe://specmesh.internal/specmesh/verifier"], "have no identity"),
    ),
    (
        *(certificates.clear_text, container("verifier"), ("env", 1, "value")),
        *("redis://redis:6379", "REDIS_URL is redis://redis:6379: in clear text"),
    ),
    (
        *(certificates.clear_text, settings("load"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",)),
        *("http://otel-collector:4317", "in clear text"),
    ),
    (certificates.clear_text, collector_config, ("tls.yaml",), "{}", "exporter otlp/traces sends"),
    (
        *(certificates.certificates, of("Certificate", "gateway")),
        *(("spec", "issuerRef", "name"), "x", "no Issuer 'x'"),
    ),
]


@pytest.mark.parametrize(
    ("check", "find", "path", "value", "told"),
    BREAKAGES,
    ids=[f"{check.__name__}: {told}" for check, _, _, _, told in BREAKAGES],
)
def test_what_is_broken_is_told(check, find, path, value, told):
    built = manifests(FULL)
    assert list(check(built)) == []
    *steps, last = path
    at = find(built)
    for step in steps:
        at = at[step]
    if value is GONE:
        del at[last]
    else:
        at[last] = value
    assert any(told in problem for problem in check(built)), list(check(built))


@pytest.mark.parametrize("name", [ONE_NODE, LEADERS])
def test_torchrun_that_kills_ranks_while_they_drain_is_told(name):
    built = manifests(name)
    command = built.pod("verifier").spec["containers"][0]["command"]
    assert list(lifecycle.grace(built)) == []
    (at,) = [n for n, each in enumerate(command) if each.startswith("--shutdown-timeout")]
    for wrong in ("--shutdown-timeout=20", "--shutdown-timeout=80"):
        command[at] = wrong
        (problem,) = lifecycle.grace(built)
        assert "torchrun kills ranks after" in problem


def test_a_rollout_that_fails_while_its_pods_fetch_a_model_is_told():
    built = manifests(FETCHED)
    assert list(lifecycle.deadlines(built)) == []
    deployment("drafter")(built)["progressDeadlineSeconds"] = 2400
    (problem,) = lifecycle.deadlines(built)
    assert "(drafter): may start for 5400 s, but its rollout fails after 2400 s" in problem


@pytest.mark.parametrize("name", [ONE_NODE, LEADERS, VLLM])
def test_a_target_in_parts_with_little_shared_memory_is_told(name):
    built = manifests(name)
    assert list(parts.processes(built)) == []
    for pod in built.pods:
        for volume in pod.spec.get("volumes", ()):
            volume.get("emptyDir", {}).pop("medium", None)
    problems = list(parts.processes(built))
    assert problems
    assert all("8 processes have 64 MiB of /dev/shm" in each for each in problems)


def test_a_target_on_vllm_in_fewer_parts_than_gpus_is_told():
    built = manifests(VLLM)
    settings("verifier")(built)["SPECMESH_VERIFIER__TENSOR_PARALLEL_SIZE"] = "4"
    (problem,) = parts.processes(built)
    assert "4 processes have 8 GPUs" in problem


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("service", "pipelines", "traces", "processors"), ["tail"], "processors tail, which"),
        (("service", "extensions"), ["health"], "extension health is not configured"),
        (("processors", "tail_sampling", "policies"), [{"type": "latency"}], "by status_code"),
        (("extensions", "health_check", "endpoint"), "0.0.0.0:1", "but listens on"),
        (("exporters", "otlp/traces", "endpoint"), "trace:4317", "where there is no Service"),
    ],
)
def test_a_collector_that_is_broken_is_told(path, value, told):
    built = manifests(FULL)
    data = collector_config(built)
    config = yaml.safe_load(data["config.yaml"])
    at = config
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    data["config.yaml"] = yaml.safe_dump(config)
    assert any(told in problem for problem in collector.collector(built))


@pytest.mark.parametrize("name", ["MODEL", "HEADS"])
def test_a_model_that_its_image_does_not_have_is_told(name):
    built = manifests("local")
    assert list(code.models(built)) == []
    data = settings("verifier")(built)
    assert data[f"SPECMESH_VERIFIER__{name}"].startswith("/models/pycode-12m")
    data[f"SPECMESH_VERIFIER__{name}"] = "/models/pycode-13m"
    (problem,) = code.models(built)
    assert f"{name} is /models/pycode-13m, which its image does not have" in problem


def test_every_check_has_been_seen_to_fail():
    seen = {check for check, *_ in BREAKAGES} | {code.models, collector.collector}
    assert seen == set(CHECKS)
