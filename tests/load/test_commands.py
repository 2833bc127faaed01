"""The commands of ``specmesh load`` as processes, against a stub that is one, too."""

import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import psutil
import pytest
from tests.command import specmesh
from typer.testing import CliRunner

from specmesh.load.__main__ import app
from specmesh.load.results import report as reports
from specmesh.traces.receiver import TraceReceiver

SCRIPT = "from specmesh.cli.main import main; main()"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stub():
    """The address of a server that says four tokens at once."""
    child = subprocess.Popen(
        [sys.executable, "-m", "specmesh.bench.load.stub", "4"], stdout=subprocess.PIPE, text=True
    )
    yield json.loads(child.stdout.readline())["address"]
    child.kill()
    child.wait()
    child.stdout.close()


def run(stub, *arguments, start=specmesh, **given):
    done = start("load", "run", "--target", stub, "--json", "-", *arguments, **given)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_run_tells_people_and_programs_what_it_found(stub, tmp_path):
    file = tmp_path / "requests.csv"
    extent = ("--warm-up", "500ms", "--duration", "1500ms")
    wanted = ("--slo", "e2e=5s", "--trace-slowest", "3", "--csv", str(file))
    found, said = run(stub, "--rate", "50", *extent, *wanted, "--processes", "2")
    result, setting = found["result"], found["setting"]
    counts = result["counts"]
    assert 40 < counts["due"] < 120
    assert counts["answered"] == counts["due"]
    assert result["latency"]["ttft_ms"]["count"] == counts["due"]
    assert result["tokens_per_chunk"] == {"1": 4 * counts["due"]}
    assert result["goodput"]["share"] == 1.0
    assert result["speculation"]["target_calls_per_token"] == 1.0
    assert sum(each["requests"] for each in result["generator"]["processes"]) == counts["due"]
    assert all(each["requests"] > 0 for each in result["generator"]["processes"])
    assert len({each["trace_id"] for each in result["slowest"]}) == 3
    assert setting["model"] == "stub"
    assert setting["workload"]["words_per_token"] == 1.0
    assert setting["workload"]["arrivals"] == {"kind": "poisson", "rate": 50.0}
    assert f"{counts['due']} due, {counts['answered']} answered" in said
    assert "specmesh trace show " in said
    rows = list(csv.DictReader(file.read_text().splitlines()))
    measured = [row for row in rows if row["phase"] == "measured"]
    assert len(measured) == counts["due"] < len(rows)
    assert {row["outcome"] for row in rows} == {"answered"}
    assert {row["num_output_tokens"] for row in rows} == {"4"}
    assert {len(row["text_digest"]) for row in rows} == {16}


def test_the_same_seed_sends_the_same_schedule_however_many_processes(stub):
    several, alone = (
        run(stub, "--rate", "200", "--requests", "40", "--processes", number)[0]
        for number in ("2", "1")
    )
    due = [each["result"]["requests"]["due_s"] for each in (several, alone)]
    assert due[0] == due[1]
    assert len(due[0]) == 40


def test_a_recording_is_replayed_at_its_times_and_lengths(stub, tmp_path):
    file = tmp_path / "azure.csv"
    seconds = (10.0, 10.4, 11.2, 11.2)
    rows = [f"2023-11-16 18:17:{at:07.4f}000,{20 + n},4" for n, at in enumerate(seconds)]
    file.write_text("\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows)))
    found, _ = run(stub, "--trace", str(file), "--speed", "2")
    assert found["result"]["requests"]["due_s"] == pytest.approx([0.0, 0.2, 0.6, 0.6])
    assert found["setting"]["workload"]["arrivals"] == {"kind": "replay", "seconds": 4, "speed": 2}


async def test_traces_that_begin_here_have_the_spans_of_the_generator(stub):
    async with TraceReceiver() as receiver:
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        asked = ("--rate", "20", "--requests", "5", "--trace-slowest", "5")
        found, _ = await asyncio.to_thread(run, stub, *asked, env=environment)
    spans = receiver.spans
    named = {each["trace_id"] for each in found["result"]["slowest"]}
    assert len(named) == 5
    assert {(each.trace_id, each.name) for each in spans} == {
        (trace_id, name) for trace_id in named for name in ("specmesh.load", "specmesh.generate")
    }
    assert {each.node.service for each in spans} == {"specmesh-load"}


def test_a_closed_loop_has_as_many_requests_under_way_as_users(stub):
    found, _ = run(stub, "--users", "3", "--requests", "60", "--think", "1ms")
    assert found["result"]["counts"]["answered"] == 60
    assert max(each["under_way"] for each in found["result"]["timeline"]) <= 3


def test_two_generators_on_one_core_say_that_they_were_the_bottleneck(stub):
    """The load is several times what a core can make; the report must not blame the server."""

    def on_one_core(*arguments):
        core = min(os.sched_getaffinity(0))
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments],
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    crowded = ("--rate", "8000", "--duration", "200ms", "--processes", "2", "--timeout", "30s")
    found, said = run(stub, *crowded, start=on_one_core)
    made = found["result"]["generator"]
    assert made["lag_ms"]["max"] > 200.0
    assert made["lag_ms"]["p99"] > 1.0
    assert any("late (1 ms is allowed)" in reason for reason in made["bottleneck"])
    assert "the generator may be the bottleneck: " in said
    # Nor is it taken off the latencies: a request that left late was late for its user.
    assert found["result"]["latency"]["ttft_ms"]["p99"] > made["lag_ms"]["p99"]


def test_ctrl_c_ends_a_run_early_with_what_there_is(stub, tmp_path):
    file = tmp_path / "report.json"
    arguments = ("--rate", "100", "--duration", "60s", "--json", str(file))
    command = [sys.executable, "-c", SCRIPT, "load", "run", "--target", stub, *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        generator = _wait_for_generator(child)
        with pytest.raises(psutil.TimeoutExpired):
            generator.wait(1.0)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130
    assert "interrupted" in said
    found = json.loads(file.read_text())["result"]
    assert found["interrupted"]
    assert found["counts"]["answered"] > 10
    assert not generator.is_running()


def _wait_for_generator(child):
    """The generator's process, once it has connected."""
    process = psutil.Process(child.pid)
    while True:
        for each in process.children():
            if any(connection.status == "ESTABLISHED" for connection in each.net_connections()):
                return each
        assert child.poll() is None
        os.sched_yield()


def test_a_sweep_runs_all_combinations(stub, tmp_path):
    file = tmp_path / "sweep.json"
    rates = ("--rates", "40,20", "--over", "temperature=0,0.5", "--duration", "200ms")
    done = specmesh("load", "sweep", "--target", stub, *rates, "--json", str(file))
    assert done.returncode == 0, done.stderr
    points = json.loads(file.read_text())["points"]
    assert [(each["rate"], each["changed"]["temperature"]) for each in points] == [
        (20.0, "0"),
        (40.0, "0"),
        (20.0, "0.5"),
        (40.0, "0.5"),
    ]
    assert "temperature=0.5" in done.stdout
    for each in points:
        setting, workload = each["setting"], each["setting"]["workload"]
        assert workload["arrivals"]["rate"] == each["rate"]
        (variation,) = workload["variations"]
        assert variation["sampling"]["temperature"] == float(each["changed"]["temperature"])
        assert (setting["model"], workload["words_per_token"]) == ("stub", 1.0)


def test_a_search_ends_where_objectives_are_missed(stub, tmp_path):
    # No answer can take less than nothing: the first rates miss, and the search gives up.
    objective = ("--slo", "e2e=1us", "--from", "64", "--duration", "50ms")
    done = specmesh("load", "search", "--target", stub, *objective)
    assert done.returncode == 1
    assert "found no rate at which 95% of requests meet the objectives" in done.stdout


def test_two_runs_are_compared(stub, tmp_path):
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for number, file in enumerate(files):
        arguments = ("--rate", "200", "--duration", "500ms", "--seed", str(number))
        done = specmesh("load", "run", "--target", stub, *arguments, "--json", str(file))
        assert done.returncode == 0, done.stderr
    done = specmesh("load", "compare", *map(str, files))
    assert done.returncode == 0, done.stderr
    assert "TTFT" in done.stdout
    assert "the runs also differ: seed: 0, then 1" in done.stdout
    again = CliRunner().invoke(app, ["compare", "--json", *map(str, files)])
    listed = json.loads(again.stdout)["differences"]
    assert {each["metric"] for each in listed} == {"ttft_ms", "tpot_ms", "e2e_ms"}


TWICE = ("--rename", "seed=a", "--rename")


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("run",), 2, "one of --rate (open loop), --users (closed loop) and --trace"),
        (("run", "--rate", "1", "--users", "2"), 2, "not --rate and --users"),
        (("run", "--rate", "inf"), 2, "must be finite, not inf; for a burst use --users N"),
        (("run", "--rate", "1", "--arrivals", "ramp", "--ramp-to", "inf"), 2, "must be finite"),
        (("sweep", "--rates", "nan,5"), 2, "the rates must be finite, not nan,5"),
        (("search", "--from", "inf", "--slo", "e2e=1s"), 2, "'--from': must be finite, not inf"),
        (("run", "--rate", "1", "--duration", "0s"), 2, "'--duration': must be more than 0"),
        (("run", "--rate", "1", "--duration", "5"), 2, "write it with a unit"),
        (("run", "--rate", "1", "-o", "lookahaed=4"), 2, "'lookahaed' is not an option"),
        (("run", "--rate", "1", "--arrivals", "ramp"), 2, "it requires --ramp-to"),
        (
            ("run", "--rate", "1", "--openai", "localhost:8000"),
            2,
            "is not an http:// or https:// URL",
        ),
        (
            ("run", "--rate", "1", "--openai", "http://a", "--leave-out", "model"),
            *(2, "'model' is not one of seed, stream_options, max_tokens"),
        ),
        (
            ("run", "--rate", "1", "--openai", "http://a", "--rename", "seed"),
            *(2, "'seed' is not NAME=OTHER"),
        ),
        (
            ("run", "--rate", "1", "--openai", "http://a", "--rename", "max_tokens=seed"),
            *(2, "'seed' is the name of another parameter"),
        ),
        (
            ("run", "--rate", "1", "--openai", "http://a", "--rename", "seed=temperature"),
            *(2, "'temperature' is the name of another parameter"),
        ),
        (
            ("run", "--rate", "1", "--openai", "http://a", *TWICE, "max_tokens=a"),
            *(2, "'a' is the name of another parameter"),
        ),
        (
            ("run", "--rate", "1", "--openai", "http://a", *TWICE, "seed=b"),
            *(2, "'seed' is given two names"),
        ),
        (("run", "--rate", "1", "--mix", "1", "--strategy", "dsi"), 2, "it excludes --strategy"),
        (("search", "--from", "1"), 2, "a search requires the objectives"),
        (("sweep", "--rates", "a,b"), 2, "is not a list of positive rates: write 5,10,20"),
        (("sweep", "--rates", "1", "--over", "colour=red"), 2, "'colour' is not an option"),
        (("sweep", "--rates", "1", "--users", "2"), 2, "see 'specmesh load run'"),
        (
            ("run", "--rate", "1", "--json", "/no/such/f.json"),
            2,
            "the folder /no/such does not exist",
        ),
        (
            ("run", "--rate", "1", "--target", "127.0.0.1:1"),
            *(3, "specmesh: no orchestrator answers at 127.0.0.1:1 (connection refused)"),
        ),
        (("run", "--rate", "1", "--openai", "http://127.0.0.1:1"), 3, "[CONNECTION]"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_a_status(arguments, status, why):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert done.exit_code == status
    assert why in done.stderr
    assert "Traceback" not in done.stderr


A_FILE = str(Path(__file__))


@pytest.mark.parametrize(
    ("option", "beside"),
    [
        ("--burstiness 2", "--rate 1"),
        ("--ramp-to 2", "--rate 1"),
        ("--arrivals poisson", "--users 1"),
        ("--arrivals gamma", f"--trace {A_FILE}"),
        ("--speed 1", "--rate 1"),
        ("--think 1s", "--rate 1"),
        ("--think 1s", f"--trace {A_FILE}"),
        ("--prompt-tokens 9", f"--rate 1 --prompts {A_FILE}"),
        ("--prefix-groups 9", f"--trace {A_FILE}"),
        ("--prefix-tokens 9", "--rate 1"),
        ("--turns 2", f"--rate 1 --prompts {A_FILE}"),
        ("--output-tokens 9", f"--trace {A_FILE}"),
        ("--cancel-after 9", "--rate 1"),
        ("--cool-down 1s", "--rate 1 --requests 9"),
        ("--target a:1", "--rate 1 --openai http://a"),
        ("--leave-out seed", "--rate 1"),
        ("--rename max_tokens=max_completion_tokens", "--rate 1"),
        ("--retries 1", "--rate 1 --openai http://a"),
        ("--tls-ca " + A_FILE, "--rate 1 --openai http://a"),
        ("--tls-cert " + A_FILE, "--rate 1 --openai https://a"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused_by_its_name(option, beside):
    """Also with its default value: who writes it believes that it matters."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["run", *option.split(), *beside.split()])
    assert done.exit_code == 2
    assert f"Invalid value for {option.split()[0]}: " in done.stderr


def test_options_from_the_environment_may_be_for_other_commands():
    environment = {"SPECMESH_TARGET": "a:1", "SPECMESH_TLS_CERT": A_FILE}
    asked = ("run", "--rate", "1", "--openai", "http://127.0.0.1:1")
    assert CliRunner(env=environment).invoke(app, asked).exit_code == 3


def test_a_pause_between_turns_needs_a_conversation_that_has_some(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("one\ntwo\n")
    asked = ("run", "--rate", "1", "--think", "1s", "--prompts", str(file))
    done = CliRunner(env={"COLUMNS": "400"}).invoke(app, asked)
    assert done.exit_code == 2
    assert "Invalid value for --think: it requires --users: no conversation in" in done.stderr


def test_a_token_is_not_sent_in_clear_text():
    asked = ("run", "--rate", "1", "--openai", "http://192.0.2.1:8000")
    done = CliRunner(env={"SPECMESH_TOKEN": "s3cret", "COLUMNS": "200"}).invoke(app, asked)
    assert done.exit_code == 2
    assert "a token is never sent in clear text" in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.parametrize("server", [("--openai", "http://127.0.0.1:1"), ("-t", "127.0.0.1:1")])
def test_what_no_header_can_hold_is_no_token(server):
    environment = {"SPECMESH_TOKEN": "two\nlines", "COLUMNS": "200"}
    done = CliRunner(env=environment).invoke(app, ("run", "--rate", "1", *server))
    assert done.exit_code == 2
    assert "SPECMESH_TOKEN: a token must be printable ASCII" in done.stderr


def test_every_field_of_the_report_is_in_the_docs():
    text = (REPOSITORY / "docs" / "load.md").read_text()
    missing = [name for name in sorted(_fields(reports.RunReport)) if f"`{name}`" not in text]
    others = _fields(reports.SweepReport) | _fields(reports.SearchReport)
    missing += [name for name in sorted(others) if f"`{name}`" not in text]
    assert missing == []


def _fields(kind) -> set[str]:
    """The names of all fields of a dataclass and of those within."""
    found = set()
    hints = get_type_hints(kind)
    for field in fields(kind):
        found.add(field.name)
        for part in (hints[field.name], *get_args(hints[field.name])):
            if is_dataclass(part):
                found |= _fields(part)
    return found
