"""Trees scored by passes that are laid out for a GPU, as those of the other engine."""

from __future__ import annotations

import pytest
from tests.inference import test_tree_scoring

globals().update(
    {name: test for name, test in vars(test_tree_scoring).items() if name.startswith("test_")}
)


@pytest.fixture
def model(load, architecture):
    return load(architecture)
