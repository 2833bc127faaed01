import pytest
import torch
from tests.inference.conftest import save
from tests.inference.eagle3 import reference

from specmesh.inference.models.loading import read_model


@pytest.fixture(scope="package")
def target_folder(tmp_path_factory):
    """A random target of Llama-3.1-8B's shapes scaled down."""
    folder = tmp_path_factory.mktemp("eagle3") / "Target-8B"
    save(folder, reference.TARGET)
    return folder


@pytest.fixture(scope="package")
def target(target_folder):
    return read_model(str(target_folder), "float32", "cpu", None)


@pytest.fixture(scope="package")
def digest(target):
    return target.describe("float32", None, None).weights_digest


@pytest.fixture
def text():
    return torch.randint(1, 400, (20,), generator=torch.Generator().manual_seed(3))
