"""What the mesh may do at a Redis of ours is what docs/security.md lists."""

from __future__ import annotations

import re

import pytest
from tests.k8s.tools import K8S, REPOSITORY

DOCUMENTED = re.search(
    r"^ACL SETUSER specmesh on >PASSWORD (.*)$",
    (REPOSITORY / "docs/security.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize("component", ["redis-tls", "redis-sentinel"])
def test_the_mesh_may_do_what_the_docs_list_and_nothing_else(component):
    script = (K8S / "components" / component / "start-redis.sh").read_text()
    (granted,) = re.findall(r"^user specmesh on #\S+(?: \S+\))? (~.*)$", script, re.MULTILINE)
    assert DOCUMENTED
    assert granted.split() == DOCUMENTED[1].split()
