"""``specmesh bench failover``: no token is lost or changed with the primary of Redis."""

import json
import subprocess
import sys

import pytest

SCRIPT = "from specmesh.cli.main import main; main()"
STREAMS = 20
SECONDS = 120


@pytest.mark.parametrize("loss", ["killed", "frozen"])
def test_a_lost_primary_changes_no_answer(loss, no_process_left):
    done = subprocess.run(
        [
            *(sys.executable, "-c", SCRIPT, "bench", "failover", "--json"),
            *("--loss", loss, "--streams", str(STREAMS), "--tokens", "10"),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    (figures,) = json.loads(done.stdout)
    assert (figures["wrong"], figures["failed"], done.returncode) == (0, [], 0), done.stderr
    assert figures["kept"] == STREAMS
    # Half of them were at the orchestrator that was killed once sessions were stored again.
    assert figures["resumed"] == STREAMS // 2
    assert 0 < figures["not_stored"] <= STREAMS
    print(figures)  # noqa: T201 - shown with -s
