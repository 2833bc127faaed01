"""Everything that k8s/ can be put together to: overlays, and components on the base."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from tests.k8s.manifests import Manifests
from tests.k8s.tools import K8S, kustomize

_FOUND = {folder.name for folder in (K8S / "overlays").iterdir()}
PLAYED = sorted(_FOUND & {"podman"})
"""For no cluster: `make k8s-smoke` plays it."""
OVERLAYS = sorted(_FOUND - {*PLAYED})

EXTRAS = (
    *("gateway", "gpu", "models", "load", "tracing", "monitoring", "autoscaling", "network-policy"),
)
TRANSPORTS = ("plaintext", "tls", "tls-cert-manager")
STORES = ("redis", "redis-sentinel", "redis-managed")


def combinations() -> dict[str, tuple[str, ...]]:
    """Components by name of the combination: every transport with every Redis and all that goes
    with them, and each component alone with as little as it takes."""
    found = {
        f"{transport} {store} all": (
            *("gateway", "gpu", "models", "load", _over(transport, "tracing"), "monitoring"),
            *(_over(transport, store), transport),
            *("autoscaling", "autoscaling-gateway", "network-policy"),
            *(["network-policy-managed-redis"] if store == "redis-managed" else ()),
        )
        for transport in TRANSPORTS
        for store in STORES
    }
    found["gateway with tokens"] = (*("gateway", "plaintext", "network-policy", "gateway-tokens"),)
    found |= {f"{store} alone": (store, "plaintext") for store in STORES}
    found |= {f"{extra} alone": (extra, "plaintext") for extra in EXTRAS}
    found["models are fetched"] = (
        *("models-fetch", "plaintext", "network-policy", "network-policy-models-fetch"),
    )
    found["nothing"] = ("plaintext",)
    return found


def _over(transport: str, component: str) -> str:
    """The component that does the same over TLS, where the transport is."""
    secure = f"{component}-tls"
    is_there = (K8S / "components" / secure).is_dir()
    return secure if transport != "plaintext" and is_there else component


COMBINATIONS = combinations()
FULL = "tls-cert-manager redis-sentinel all"
NAMES = (*OVERLAYS, *COMBINATIONS)


@cache
def rendered(name: str) -> str:
    """The YAML of an overlay or combination."""
    if name not in COMBINATIONS:
        return kustomize(K8S / "overlays" / name)
    return _rendered(COMBINATIONS[name], {})


def changed(name: str, more: Mapping[str, Any]) -> Manifests:
    """The objects of an overlay or combination, as an overlay with ``more`` fields changes them."""
    if name in COMBINATIONS:
        return together(COMBINATIONS[name], more)
    return Manifests(yaml.safe_load_all(_rendered((), more, f"overlays/{name}")))


def _rendered(components: Sequence[str], more: Mapping[str, Any], on: str = "base") -> str:
    """The YAML of the folder ``on`` with these components and more fields of an overlay."""
    with TemporaryDirectory() as folder:
        # kustomize takes relative paths only, and follows links in none.
        here = Path(folder).resolve()

        def path(part: str) -> str:
            return os.path.relpath(K8S.resolve() / part, here)

        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "specmesh",
            "resources": [path(on)],
            "components": [path(f"components/{each}") for each in components],
            **more,
        }
        (here / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        return kustomize(here)


def together(components: Sequence[str], more: Mapping[str, Any]) -> Manifests:
    """The objects of the base with these components and more fields of an overlay."""
    return Manifests(yaml.safe_load_all(_rendered(components, more)))


def every_object(names: Sequence[str] = NAMES) -> list[str]:
    """The YAML of each object in any of these overlays or combinations, once; most are in many."""
    return list(dict.fromkeys(each for name in names for each in rendered(name).split("\n---\n")))


def manifests(name: str) -> Manifests:
    """The objects of an overlay or combination, to keep or to break."""
    return Manifests(yaml.load_all(rendered(name), yaml.CSafeLoader))
