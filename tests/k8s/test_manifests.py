"""Everything that k8s/ can be put together to is valid, hangs together and fits the code."""

from __future__ import annotations

import pytest
from tests.k8s.checks.every import CHECKS
from tests.k8s.rendering import NAMES, manifests
from tests.k8s.tools import needs_tools

pytestmark = needs_tools


@pytest.mark.parametrize("name", NAMES)
def test_it_hangs_together(name):
    built = manifests(name)
    assert built.pods
    assert [problem for check in CHECKS for problem in check(built)] == []
