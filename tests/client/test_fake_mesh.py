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


@pytest.mark.parametrize("breaks_after", [0, 1, 2, (1, 2), (2, 2)])
def test_an_answer_breaks_after_each_number_of_tokens_also_after_the_last(mesh, breaks_after):
    mesh.answer("a", "b", breaks_after=breaks_after)
    with Client(mesh.address) as client:
        result = client.complete("hello")
    num_breaks = 1 if isinstance(breaks_after, int) else len(breaks_after)
    assert (result.text, result.num_resumes) == ("ab", num_breaks)


@pytest.mark.parametrize("breaks_after", [3, -1, (1, 3)])
def test_an_answer_cannot_break_where_it_never_gets(mesh, breaks_after):
    with pytest.raises(ValueError, match="is not from 0 to 2"):
        mesh.answer("a", "b", breaks_after=breaks_after)
