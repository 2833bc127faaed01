"""What scripts decide by."""

import json
import re
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.cli.exit_status import ExitStatus
from specmesh.client.testing import FakeMesh

CLI = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", ExitStatus.USAGE),
        (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND", ExitStatus.NOT_FOUND),
        (grpc.StatusCode.FAILED_PRECONDITION, "NO_FITTING_DRAFTER", ExitStatus.REFUSED),
        (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", ExitStatus.REFUSED),
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", ExitStatus.DENIED),
        (grpc.StatusCode.PERMISSION_DENIED, "WRONG_ROLE", ExitStatus.DENIED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE", ExitStatus.TIMEOUT),
        (grpc.StatusCode.UNIMPLEMENTED, "NO_SUCH_METHOD", ExitStatus.FAILED),
    ],
)
def test_every_kind_of_error_has_its_status(code, reason, status):
    with FakeMesh() as mesh:
        mesh.fail(code, reason)
        result = CliRunner().invoke(app, ["generate", "x", "--target", mesh.address])
    assert result.exit_code == status
    assert result.stderr.endswith(f"[{reason}]\n")


def test_a_prompt_that_is_too_large_for_grpc_is_not_to_be_sent_again():
    with FakeMesh() as mesh:
        asked = ["generate", "-", "--json", "--target", mesh.address]
        result = CliRunner().invoke(app, asked, input="x" * 20_000_000)
    assert json.loads(result.stdout)["error"]["code"] == "RESOURCE_EXHAUSTED"
    assert result.exit_code == ExitStatus.USAGE


def test_the_docs_list_them_all():
    listed = re.findall(r"^\| (\d+) \| ", CLI.read_text(), re.MULTILINE)
    assert [int(each) for each in listed] == [each.value for each in ExitStatus]
