"""All checks: each is given what would be applied together, and tells what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from tests.k8s.manifests import Manifests

Check = Callable[[Manifests], Iterator[str]]

CHECKS: tuple[Check, ...] = (
    references.selectors,
    references.ports,
    references.addresses,
    references.names,
    lifecycle.grace,
    lifecycle.disruptions,
    lifecycle.rollouts,
    lifecycle.deadlines,
    hardening.restricted,
    hardening.resources,
    hardening.disk,
    memory.memory,
    code.probes,
    code.patience,
    code.settings,
    code.images,
    code.models,
    parts.engines,
    parts.processes,
    metrics.queries,
    metrics.alerts,
    metrics.scaling,
    metrics.monitored,
    network.policies,
    certificates.certificates,
    certificates.clear_text,
    collector.collector,
)
