"""Everything that k8s/ can be put together to is valid, hangs together and fits the code."""

from __future__ import annotations

import re

import pytest
import yaml
from tests.k8s.checks import certificates, metrics
from tests.k8s.checks.every import CHECKS
from tests.k8s.checks.requests import requested, told
from tests.k8s.rendering import NAMES, changed, manifests, together
from tests.k8s.tools import REPOSITORY, needs_tools

pytestmark = needs_tools


@pytest.mark.parametrize("name", NAMES)
def test_it_hangs_together(name):
    built = manifests(name)
    assert built.pods
    assert [problem for check in CHECKS for problem in check(built)] == []


@pytest.mark.parametrize("name", ["local", "simulated"])
def test_an_overlay_for_one_machine_finds_the_room_that_the_docs_ask_for(name):
    needs, has = requested(manifests(name)), told(name)
    assert (needs.cores <= has.cores, needs.mib <= has.mib) == (True, True), (needs, has)
    # Much more would keep others from trying it.
    assert needs.cores > has.cores - 1
    assert needs.mib > has.mib - 1024


def test_scalers_and_certificates_of_another_namespace_name_it_as_the_docs_say():
    (shown,) = re.findall(
        r"```yaml\n(namespace: mesh-b\n.*?)```",
        (REPOSITORY / "docs/kubernetes.md").read_text(),
        re.DOTALL,
    )
    components = ("gateway", "autoscaling", "autoscaling-gateway", "tls-cert-manager")
    built = together(components, yaml.safe_load(shown))
    assert list(built.of("Namespace")) == ["mesh-b"]
    assert len(list(metrics.triggers(built))) > 1
    assert list(metrics.queries(built)) == []
    assert list(certificates.certificates(built)) == []
    unaltered = together(components, {"namespace": "mesh-b"})
    assert list(metrics.queries(unaltered))
    assert len(list(certificates.certificates(unaltered))) == 2
    # Whatever of it an overlay has no use for is passed over.
    assert together(("plaintext",), yaml.safe_load(shown)).pods


@pytest.mark.parametrize("name", NAMES)
def test_every_image_can_be_pinned_by_its_digest(name):
    # Digests are known to whoever has pushed an image, so that the manifests themselves have tags.
    digest = f"sha256:{'0' * 64}"
    names = {image.rpartition(":")[0] for image in images(manifests(name))}
    pinned = changed(name, {"images": [{"name": each, "digest": digest} for each in sorted(names)]})
    assert images(pinned) == {f"{each}@{digest}" for each in names}


def images(built):
    return {container["image"] for pod in built.pods for container in pod.containers}
