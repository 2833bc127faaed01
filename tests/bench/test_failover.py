"""``specmesh bench failover``: no token is lost or changed with the primary of Redis."""

import json

import pytest

STREAMS = 20


@pytest.mark.parametrize("loss", ["killed", "frozen"])
def test_a_lost_primary_changes_no_answer(bench, loss, no_process_left):
    done = bench("failover", "--json", "--loss", loss, "--streams", str(STREAMS), "--tokens", "10")
    (figures,) = json.loads(done.stdout)
    assert (figures["wrong"], figures["failed"], figures["lost"]) == (0, [], []), done.stderr
    assert (figures["kept"], done.exit_code) == (STREAMS, 0)
    # Half of them were at the orchestrator that was killed once sessions were stored again.
    assert figures["resumed"] == STREAMS // 2
    assert 0 < figures["not_stored"] <= STREAMS
    print(figures)  # noqa: T201 - shown with -s
