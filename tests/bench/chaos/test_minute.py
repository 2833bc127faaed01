"""A minute of ``specmesh bench chaos``; ``make chaos`` is half an hour of it."""

import json
import subprocess
import sys

SCRIPT = "from specmesh.cli.main import main; main()"
SECONDS = 240


def test_a_minute_of_faults_loses_doubles_and_changes_nothing(no_process_left):
    done = subprocess.run(
        [
            *(sys.executable, "-c", SCRIPT, "bench", "chaos", "--json"),
            *("--minutes", "1", "--streams", "6", "--tokens", "300", "--seed", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    figures = json.loads(done.stdout)
    assert (figures["findings"], done.returncode) == ([], 0), done.stderr
    assert figures["faults"] >= 10
    assert figures["exact"] > 0
    assert figures["finished"] >= figures["exact"]
