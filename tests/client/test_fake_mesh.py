"""The scripted mesh with which users test their own code does as its script says."""

import grpc
import pytest

from specmesh.client import Client, Unavailable
from specmesh.client.testing import FakeMesh


@pytest.fixture
def mesh():
    with FakeMesh() as mesh:
        yield mesh


def test_each_answer_is_a_session_of_its_own_also_after_refusals(mesh):
    with Client(mesh.address, max_retries=0) as client:
        mesh.fail(grpc.StatusCode.UNAVAILABLE)
        mesh.answer("one")
        with pytest.raises(Unavailable):
            client.complete("hello")
        mesh.answer("two")
        assert [client.complete("hello").session_id for _ in range(2)] == ["fake-1", "fake-2"]
