"""Manifests for Kubernetes, made into what podman 4.3 plays; pure.

What it does not know, or knows otherwise, is left out: probes (they want systemd), ports (it would
publish them on the host), priorities, accounts, where to schedule. What makes a pod safe stays:
user, read-only root, capabilities, limits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]

_POD = ("restartPolicy", "securityContext", "terminationGracePeriodSeconds", "volumes")
_CONTAINER = (
    *("name", "image", "imagePullPolicy", "command", "args", "env", "envFrom"),
    *("resources", "securityContext", "volumeMounts"),
)
IMAGES = "localhost/{}:smoke"
NAME = "specmesh-smoke"
"""Begins the names of what is made here, where podman knows no labels."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment: its name, how many pods it wants, and what one of them is."""

    name: str
    replicas: int
    pod: Object
    others: Sequence[Object]
    """ConfigMaps that the pod names."""

    def manifests(self, name: str) -> list[Object]:
        """A pod called ``name``, and what it needs."""
        pod = copy.deepcopy(self.pod)
        pod["metadata"] = {"name": name, "labels": {"app.kubernetes.io/name": self.name}}
        # podman gives all pods one emptyDir of a name.
        own = {each["name"]: f"{NAME}-{name}-{each['name']}" for each in pod["spec"]["volumes"]}
        mounts = [each for c in pod["spec"]["containers"] for each in c.get("volumeMounts", ())]
        for each in (*pod["spec"]["volumes"], *mounts):
            each["name"] = own[each["name"]]
        return [*self.others, pod]

    @property
    def grace_s(self) -> int:
        """Seconds from SIGTERM to SIGKILL."""
        return int(self.pod["spec"]["terminationGracePeriodSeconds"])


def workloads(
    objects: Iterable[Object], secrets: Mapping[str, Path] | None = None
) -> dict[str, Workload]:
    """The Deployments of a rendered overlay by name; ``secrets`` has a folder for each Secret."""
    listed = list(objects)
    maps = {
        each["metadata"]["name"]: {**each, "metadata": {"name": each["metadata"]["name"]}}
        for each in listed
        if each["kind"] == "ConfigMap"
    }
    return {
        each["metadata"]["name"]: _workload(each, maps, secrets or {})
        for each in listed
        if each["kind"] == "Deployment"
    }


def _workload(
    deployment: Object, maps: Mapping[str, Object], secrets: Mapping[str, Path]
) -> Workload:
    wanted = deployment["spec"]["template"]["spec"]
    spec = _only(_POD, wanted)
    spec["restartPolicy"] = "Always"
    spec["containers"] = [_container(each) for each in wanted["containers"]]
    spec["volumes"] = [_volume(each, secrets) for each in wanted.get("volumes", ())]
    sources = [each for c in spec["containers"] for each in c.get("envFrom", ())]
    return Workload(
        deployment["metadata"]["name"],
        deployment["spec"]["replicas"],
        {"apiVersion": "v1", "kind": "Pod", "spec": spec},
        [maps[each["configMapRef"]["name"]] for each in sources],
    )


def _container(container: Object) -> Object:
    kept = _only(_CONTAINER, container)
    image = kept["image"].rpartition("/")[2].partition(":")[0]
    return {**kept, "image": IMAGES.format(image), "imagePullPolicy": "Never"}


def _volume(volume: Object, secrets: Mapping[str, Path]) -> Object:
    """podman leaves the contents of Secrets in base64: a folder stands in for one."""
    name = volume["name"]
    if "secret" in volume:
        folder = str(secrets[volume["secret"]["secretName"]])
        return {"name": name, "hostPath": {"path": folder, "type": "Directory"}}
    return {"name": name, "emptyDir": {}} if "emptyDir" in volume else volume


def _only(names: Iterable[str], given: Mapping[str, Any]) -> Object:
    return {name: copy.deepcopy(given[name]) for name in names if name in given}
