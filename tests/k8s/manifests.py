"""Objects of Kubernetes, and the pods that they make."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Labels = Mapping[str, str]

ROLES = ("orchestrator", "verifier", "drafter", "confidence", "gateway")
NAME = "app.kubernetes.io/name"
TEMPLATES = {
    "Deployment": [("spec", "template")],
    "StatefulSet": [("spec", "template")],
    "Job": [("spec", "template")],
    "LeaderWorkerSet": [
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ],
}
"""Where workloads describe their pods."""


@dataclass(frozen=True)
class Pod:
    """What pods of a workload are made from."""

    workload: Object
    template: Object

    @property
    def labels(self) -> dict[str, str]:
        return self.template["metadata"]["labels"]

    @property
    def name(self) -> str:
        """What it is: "verifier"."""
        return self.labels[NAME]

    @property
    def spec(self) -> Object:
        return self.template["spec"]

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def ports(self) -> dict[str, int]:
        return {
            port["name"]: port["containerPort"]
            for container in self.containers
            for port in container.get("ports", ())
        }

    def __str__(self) -> str:
        return f"{self.workload['kind']} {self.workload['metadata']['name']} ({self.name})"


class Manifests:
    """All objects that are applied together."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = list(objects)

    def of(self, kind: str) -> dict[str, Object]:
        """The objects of a kind, by name."""
        return {each["metadata"]["name"]: each for each in self.objects if each["kind"] == kind}

    @property
    def pods(self) -> list[Pod]:
        return list(self._pods())

    def _pods(self) -> Iterator[Pod]:
        for workload in self.objects:
            for path in TEMPLATES.get(workload["kind"], ()):
                template = workload
                for step in path:
                    template = template[step]
                yield Pod(workload, template)

    def pod(self, name: str) -> Pod:
        """The one pod that is called so."""
        (found,) = (pod for pod in self.pods if pod.name == name)
        return found

    def serving(self) -> list[Pod]:
        """Pods of the mesh's own roles that serve; the ranks behind a verifier don't."""
        return [pod for pod in self.pods if pod.name in ROLES]

    def environment(self, container: Object) -> dict[str, str]:
        """A container's variables; those from secrets and the pod's own fields are empty."""
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            config = self.of("ConfigMap").get(source["configMapRef"]["name"], {})
            found |= config.get("data", {})
        for variable in container.get("env", ()):
            found[variable["name"]] = variable.get("value", "")
        return found


def selects(selector: Object | None, labels: Labels) -> bool:
    """Whether a label selector selects what has ``labels``: an empty one does, none doesn't."""
    if selector is None:
        return False
    matched = selector.get("matchLabels", {}).items() <= dict(labels).items()
    return matched and all(_holds(each, labels) for each in selector.get("matchExpressions", ()))


def _holds(expression: Object, labels: Labels) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise AssertionError(expression["operator"])
