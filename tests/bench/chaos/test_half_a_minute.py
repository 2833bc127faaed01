"""Half a minute of ``specmesh bench chaos``; ``make chaos`` is half an hour of it."""

import json


def test_half_a_minute_of_faults_loses_doubles_and_changes_nothing(bench, no_process_left):
    load = ("--streams", "6", "--tokens", "300")
    done = bench("chaos", "--json", "--minutes", "0.5", *load, "--seed", "1")
    figures = json.loads(done.stdout)
    assert (figures["findings"], done.exit_code) == ([], 0), done.stderr
    assert figures["faults"] >= 5
    assert figures["exact"] > 0
    assert figures["finished"] >= figures["exact"]
