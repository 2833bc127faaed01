"""The tiny models, and what commands share."""

import pytest
from tests.cli.conftest import no_process_left, target_model  # noqa: F401 - fixtures
from tests.inference.conftest import folders, load, save_tiny  # noqa: F401 - fixtures


@pytest.fixture
def target(load):  # noqa: F811 - the fixture
    return load("llama")
