import pytest

from specmesh.decoding.compiled import choice as compiled
from specmesh.inference.team import team_for


@pytest.fixture(autouse=True, scope="session")
def compiled_race():
    """Tokens are chosen as in a service with a model."""
    compiled.prepare(team_for)
