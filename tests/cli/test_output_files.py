"""A file that can't be written is told before a long measurement, not after it."""

import pytest
from typer.testing import CliRunner

from specmesh.tools.calibrate.__main__ import app as calibrate
from specmesh.tools.profile.__main__ import app as profile


@pytest.mark.parametrize(
    ("app", "arguments"),
    [
        (calibrate, ("confidence", "--target-model", "/no/such/model")),
        (calibrate, ("tree", "--target-model", "/no/such/model")),
        (profile, ("mesh", "--verifier", "127.0.0.1:1")),
    ],
)
def test_a_wrong_output_is_refused_before_anything_is_loaded_or_called(app, arguments, tmp_path):
    for file, why in (
        (tmp_path / "none" / "file.json", "does not exist"),
        (tmp_path, "is a folder"),
    ):
        runner = CliRunner(env={"COLUMNS": "400"})
        done = runner.invoke(app, [*arguments, "--output", str(file)])
        assert done.exit_code == 2
        assert "'--output'" in done.stderr
        assert why in done.stderr
