"""The benchmark of choosing tokens: its rows and their form."""

import json

import pytest
from typer.testing import CliRunner

from specmesh.bench.sampling import WIDTHS, app

FIELDS = {"entries", "mode", "settings", "width", "ms_per_row", "ms_per_verify"}
CASES = {("greedy", "plain")} | {
    (mode, settings)
    for mode in ("coupled", "rejection")
    for settings in ("plain", "top-k 50", "top-p 0.95")
}


@pytest.mark.parametrize("entries", [64, 9_000])
def test_every_mode_is_timed_with_every_setting_and_width(entries):
    told = CliRunner().invoke(app, ["--entries", str(entries), "--tries", "1", "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.output)["rows"]
    found = {(row["mode"], row["settings"], row["width"]) for row in rows}
    assert found == {(*case, width) for case in CASES for width in WIDTHS}
    for row in rows:
        assert set(row) == FIELDS | {"draft_ms_per_row", "argmax_ms_per_row"}
        assert row["entries"] == entries
        assert 0 < row["ms_per_row"] < row["ms_per_verify"]


def test_times_are_also_a_table():
    told = CliRunner().invoke(app, ["--entries", "64", "--tries", "1"])
    assert told.exit_code == 0
    assert "rejection, top-p 0.95" in told.output
