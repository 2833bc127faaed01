"""Manifests for Kubernetes, made into what podman 4.3 plays; pure.

What it does not know, or knows otherwise, is left out: probes (they want systemd), ports (it would
publish them on the host), priorities, accounts, where to schedule. What makes a pod safe stays:
user, read-only root, capabilities, limits.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

_POD = ("restartPolicy", "securityContext", "terminationGracePeriodSeconds", "volumes")
_CONTAINER = (
    *("name", "image", "imagePullPolicy", "command", "args", "env", "envFrom"),
    *("resources", "securityContext", "volumeMounts"),
)
IMAGES = "localhost/{}:smoke"


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment: its name, how many pods it wants, and what one of them is."""

    name: str
    replicas: int
    pod: Object
    others: Sequence[Object]
    """ConfigMaps and Secrets that the pod names."""

    def manifests(self, name: str) -> list[Object]:
        """A pod called ``name``, and what it needs."""
        pod = copy.deepcopy(self.pod)
        pod["metadata"] = {"name": name, "labels": {"app.kubernetes.io/name": self.name}}
        return [*self.others, pod]

    @property
    def grace_s(self) -> int:
        """Seconds from SIGTERM to SIGKILL."""
        return int(self.pod["spec"]["terminationGracePeriodSeconds"])


def workloads(objects: Iterable[Object], secrets: Sequence[Object] = ()) -> dict[str, Workload]:
    """The Deployments of a rendered overlay by name."""
    listed = [*objects, *secrets]
    named = {
        (each["kind"], each["metadata"]["name"]): _bare(each)
        for each in listed
        if each["kind"] in ("ConfigMap", "Secret")
    }
    return {
        each["metadata"]["name"]: _workload(each, named)
        for each in listed
        if each["kind"] == "Deployment"
    }


def secret(name: str, files: Mapping[str, str]) -> Object:
    """A Secret of texts."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": dict(files),
    }


def _workload(deployment: Object, named: Mapping[tuple[str, str], Object]) -> Workload:
    spec = _only(_POD, deployment["spec"]["template"]["spec"])
    spec["restartPolicy"] = "Always"
    containers = deployment["spec"]["template"]["spec"]["containers"]
    spec["containers"] = [_container(each) for each in containers]
    spec["volumes"] = [_volume(each) for each in spec.get("volumes", ())]
    return Workload(
        deployment["metadata"]["name"],
        deployment["spec"]["replicas"],
        {"apiVersion": "v1", "kind": "Pod", "spec": spec},
        [named[key] for key in _references(spec)],
    )


def _container(container: Object) -> Object:
    kept = _only(_CONTAINER, container)
    image = kept["image"].rpartition("/")[2].partition(":")[0]
    return {**kept, "image": IMAGES.format(image), "imagePullPolicy": "Never"}


def _volume(volume: Object) -> Object:
    if "secret" in volume:
        # podman crashes on a Secret that does not say whether it is optional.
        name = volume["secret"]["secretName"]
        return {"name": volume["name"], "secret": {"secretName": name, "optional": False}}
    if "emptyDir" in volume:
        return {"name": volume["name"], "emptyDir": {}}
    return volume


def _references(spec: Object) -> list[tuple[str, str]]:
    sources = [each for c in spec["containers"] for each in c.get("envFrom", ())]
    found = [("ConfigMap", each["configMapRef"]["name"]) for each in sources]
    return found + [
        ("Secret", each["secret"]["secretName"]) for each in spec["volumes"] if "secret" in each
    ]


def _bare(each: Object) -> Object:
    return {**each, "metadata": {"name": each["metadata"]["name"]}}


def _only(names: Iterable[str], given: Mapping[str, Any]) -> Object:
    return {name: copy.deepcopy(given[name]) for name in names if name in given}
