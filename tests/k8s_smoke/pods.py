"""Pods on a network: each with a name and an address of its own, as in a cluster."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.k8s_smoke.playable import NAME, Workload
from tests.k8s_smoke.podman import CommandFailed, inspect, logs, podman, quietly

PROBE_PORT = 8086
READY_S = 180.0


class NotInTime(Exception):
    """Something that was waited for did not happen."""


def wait_until(what: str, happened: Callable[[], bool], within_s: float) -> float:
    """Returns after how many seconds it had. Raises NotInTime."""
    began = time.monotonic()
    while not happened():
        if time.monotonic() - began > within_s:
            raise NotInTime(f"{what}: not within {within_s:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - began


@dataclass(frozen=True, slots=True)
class Pod:
    """One that was played."""

    name: str
    role: str
    address: str

    @property
    def container(self) -> str:
        """podman's name for its only container."""
        return f"{self.name}-{self.role}"

    @property
    def process(self) -> int:
        """The id on this machine of the process in it."""
        return int(inspect("container", self.container)["State"]["Pid"])

    @property
    def num_restarts(self) -> int:
        """How often podman has started it again."""
        return int(inspect("container", self.container)["RestartCount"])

    def probe(self, name: str) -> bool:
        """What the kubelet would be told that asks the probe ``name``."""
        with grpc.insecure_channel(
            f"{self.address}:{PROBE_PORT}", [("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            ask = health_pb2_grpc.HealthStub(channel)
            try:
                told = ask.Check(health_pb2.HealthCheckRequest(service=name), timeout=2)
            except grpc.RpcError:
                return False
        return bool(told.status == health_pb2.HealthCheckResponse.SERVING)

    def is_ready(self) -> bool:
        """Whether a Service would send it calls."""
        return self.probe("readiness")


@dataclass(slots=True)
class Mesh:
    """The workloads of one overlay on a network of their own, where the pods of a workload answer
    to its name, as those behind a headless Service do."""

    network: str
    workloads: Mapping[str, Workload]
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    _numbers: dict[str, itertools.count[int]] = field(default_factory=dict)

    def __enter__(self) -> Mesh:
        podman("network", "create", self.network)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Remove every pod, its emptyDirs, then the network."""
        played = podman("pod", "ps", "--quiet", "--filter", f"network={self.network}").split()
        if played:
            quietly("pod", "rm", "--force", "--time", "0", *played, timeout_s=120)
        volumes = podman("volume", "ls", "--quiet", "--filter", f"name={NAME}").split()
        if volumes:
            quietly("volume", "rm", "--force", *volumes)
        quietly("network", "rm", "--force", self.network)

    def start(self, *roles: str) -> None:
        """Play as many pods of each workload as it wants; return once all are ready."""
        for role in roles:
            for _ in range(self.workloads[role].replicas):
                self.play(role)
        for pod in [pod for role in roles for pod in self.pods[role] if role != "redis"]:
            wait_until(f"{pod.name} ready", pod.is_ready, READY_S)

    def play(self, role: str) -> Pod:
        """One more pod of a workload."""
        number = next(self._numbers.setdefault(role, itertools.count()))
        name = f"{role}-{number}"
        manifests = yaml.safe_dump_all(self.workloads[role].manifests(name))
        podman("play", "kube", "--network", f"{self.network}:alias={role}", "-", given=manifests)
        pod = Pod(name, role, self._address(name))
        self.pods.setdefault(role, []).append(pod)
        return pod

    def stop(self, pod: Pod) -> float:
        """SIGTERM, then SIGKILL after the grace period, as the kubelet does; returns how many
        seconds it took. Raises CommandFailed if it ended with another status than 0."""
        grace_s = self.workloads[pod.role].grace_s
        began = time.monotonic()
        podman("pod", "stop", "--time", str(grace_s), pod.name, timeout_s=grace_s + 30)
        took_s = time.monotonic() - began
        status = inspect("container", pod.container)["State"]["ExitCode"]
        if status != 0:
            raise CommandFailed(f"{pod.name} ended with status {status}: {logs(pod.container)}")
        podman("pod", "rm", "--force", pod.name)
        self.pods[pod.role].remove(pod)
        return took_s

    def roll(self, role: str) -> list[float]:
        """Replace every pod of a workload, each by a new one that is ready before the old one is
        told to end (maxSurge 1, maxUnavailable 0); returns how long each old one took to end."""
        took = []
        for old in list(self.pods[role]):
            new = self.play(role)
            wait_until(f"{new.name} ready", new.is_ready, READY_S)
            took.append(self.stop(old))
        return took

    def _address(self, pod: str) -> str:
        infra = inspect("pod", pod)["InfraContainerID"]
        return str(
            inspect("container", infra)["NetworkSettings"]["Networks"][self.network]["IPAddress"]
        )
