"""The benchmark of linear layers: its rows, and what it refuses."""

import json

import pytest
from typer.testing import CliRunner

from specmesh.bench.linear import app
from specmesh.inference.models.cpu.panel_linear import best_tile

pytestmark = pytest.mark.skipif(best_tile() is None, reason="the library is faster here")

SMALL = ("--megabytes", "1", "--tries", "1")


def test_every_shape_is_timed_with_each_number_of_rows():
    wanted = ("--shape", "64x48", "--shape", "8x100", "--rows", "1", "--rows", "5")
    told = CliRunner().invoke(app, [*SMALL, *wanted, "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.output)["rows"]
    assert [(row["features"], row["outputs"], row["rows"]) for row in rows] == [
        (64, 48, 1),
        (64, 48, 5),
        (8, 100, 1),
        (8, 100, 5),
    ]
    for row in rows:
        assert min(row[each] for each in ("panels", "mkl", "onednn", "read", "ratio")) > 0


def test_times_are_also_a_table():
    told = CliRunner().invoke(app, [*SMALL, "--shape", "64x48", "--rows", "3"])
    assert told.exit_code == 0
    assert "64 x 48" in told.output


@pytest.mark.parametrize("shape", ["64", "64x", "x64", "0x4", "axb"])
def test_what_is_no_shape_is_refused(shape):
    told = CliRunner().invoke(app, [*SMALL, "--shape", shape])
    assert told.exit_code == 2
    assert f"--shape {shape} is not FEATURESxOUTPUTS" in told.output
