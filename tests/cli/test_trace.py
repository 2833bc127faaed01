"""``specmesh trace``, on traces from files."""

import json
import re
import sqlite3
import unicodedata
from datetime import datetime
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from tests.cli.page.made import listed
from tests.traces.otlp import ANSWER, answer, attribute, group, make_span
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.cli.trace import tables
from specmesh.cli.trace.drawing.waterfall import waterfall
from specmesh.traces.formats.otlp import to_line
from specmesh.traces.spans import spans_from
from specmesh.traces.store.schema import default_path
from specmesh.traces.trace import Trace

SAMPLES = Path(__file__).parents[1] / "traces" / "samples"
SAMPLE = "5b8efff798038103d269b633813fc60c"


def run(*arguments, typed=None):
    return CliRunner().invoke(app, ["trace", *map(str, arguments)], input=typed)


def said(*arguments):
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def told(*arguments):
    return json.loads(said(*arguments, "--json"))


@pytest.fixture(autouse=True)
def imported(tmp_path, monkeypatch, _state_of_its_own):
    """A store with the sample and two answers: one quick, one slow without its verifier's spans."""
    monkeypatch.delenv("SPECMESH_TRACES__STORE", raising=False)
    file = tmp_path / "answers.jsonl"
    quick = answer(0xAA << 120, duration_ms=20.0, num_rounds=3, session="s-1")
    slow = answer(0xBB << 120, duration_ms=50.0, num_rounds=3, failed=True)
    file.write_text(f"{to_line(quick)}\n{to_line(slow[:1])}\n")
    assert "3 traces with 20 spans" in said("import", file, SAMPLES / "jaeger.json")


def test_list_shows_the_newest_first_and_says_what_is_incomplete():
    heading, _, *lines = said("list").splitlines()
    assert {line.split()[0] for line in lines} == {"aa000000", "bb000000", SAMPLE[:8]}
    assert lines[-1].startswith(SAMPLE[:8])
    (slow,) = [line for line in lines if line.startswith("bb")]
    assert "failed" in slow
    assert slow.split()[-1] == "3"
    assert "missing" in heading


def test_list_tells_the_time_alone_of_what_began_today(tmp_path, monkeypatch):
    today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    monkeypatch.setattr("tests.traces.otlp.START_NS", int(today.timestamp()) * 10**9)
    file = tmp_path / "today.jsonl"
    file.write_text(f"{to_line(answer(0xCC << 120))}\n")
    said("import", file)
    (line,) = [line for line in said("list").splitlines() if line.startswith("cc")]
    assert line.split()[1] == "00:00:00"


def test_list_filters():
    def listed(*flags):
        return [each["trace_id"][:2] for each in told("list", *flags)["traces"]]

    assert listed("--slowest") == ["5b", "bb", "aa"]
    assert listed("--outcome", "failed") == ["bb"]
    assert listed("--session", "s-1") == ["aa"]
    assert listed("--slower-than", "60") == ["5b"]
    assert listed("--acceptance-below", "0.6") == ["5b"]
    assert listed("--node", "verifier-0") == ["5b"]
    assert listed("--incomplete") == ["bb"]
    assert listed("--since", "1h") == []
    done = run("list", "--since", "yesterday")
    assert done.exit_code == 2
    assert "--since" in done.output


def test_list_takes_any_time_and_bounds_its_length():
    assert len(told("list", "--since", "99999999999d")["traces"]) == 3
    for command in ("list", "stats"):
        done = run(command, "--limit", "99999999999999999999")
        assert done.exit_code == 2
        assert "1000000" in done.output


def test_show_marks_what_is_missing():
    text = said("show", "bb", "--spans", "--path")
    assert "incomplete: 3 spans missing below specmesh.verify: its server's" in text
    assert "spans are missing: this is the critical path" in text
    assert text.count("incomplete: its server's span is missing") == 3
    found = told("show", "bb")
    assert [each["loss"] for each in found["incomplete"]] == ["server"] * 3
    assert "incomplete" not in said("show", "aa")


def test_show_divides_the_time_of_an_answer():
    found = told("show", "aa")
    assert found["summary"]["sessions"] == ["s-1"]
    assert sum(part["ms"] for part in found["critical_path_parts"]) == pytest.approx(20.0)
    assert sum(each["ms"] for each in found["critical_path"]) == pytest.approx(20.0)
    assert sum(node["path_share"] for node in found["nodes"]) == pytest.approx(1)
    assert {part["part"] for part in found["critical_path_parts"]} == {"queue", "own"}
    assert len(found["spans"]) == 10
    text = said("show", "aa")
    for heading in ("time by node", "critical path", "on the critical path", "orchestrator"):
        assert heading in text


def test_names_of_spans_and_processes_are_shown_as_they_are(tmp_path):
    file = tmp_path / "odd.jsonl"
    for number in (1, 2):
        span = make_span(number << 124, "x/[bold]", duration_ms=number * 1000)
        file.write_text(f"{to_line([group('[/node]', span)])}\n")
        said("import", file)
    assert "[bold]  " in said("list", "--internal")
    for command in (("show", "1"), ("stats",)):
        assert "[/node]  " in said(*command)
        assert "x/[bold]  " in said(*command)
    assert "[/node]  " in said("diff", "1", "2")


def test_a_trace_of_deeply_nested_spans_and_odd_numbers_is_shown(tmp_path):
    odd = {"specmesh__queue_ms": float("nan"), "specmesh__forward_ms": float("inf")}
    spans = [make_span(0xDD << 120, "top", 0, 5000)]
    for n in range(1, 2000):
        spans.append(make_span(0xDD << 120, f"s{n}", 0, 5000 - n, parent=spans[-1].span_id, **odd))
    file = tmp_path / "deep.jsonl"
    file.write_text(f"{to_line([group('deep', *spans)])}\n")
    said("import", file)
    *_, last = said("show", "dd", "--spans", "--no-what-if").splitlines()
    assert last.split()[:2] == ["0.00", "3001.00"]
    spans = told("show", "dd")["spans"]
    assert len(spans) == 2000
    values = {"specmesh.queue_ms": "nan", "specmesh.forward_ms": "inf"}
    assert next(each for each in spans if each["name"] == "s1")["attributes"] == values


def test_no_text_of_a_trace_controls_the_terminal(tmp_path):
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e\u2067"
    root = make_span(0xDD << 120, ANSWER, 0, 10, specmesh__strategy=evil)
    attribute(root, "gen_ai.response.id", evil)
    root.status.code, root.status.message = Status.STATUS_CODE_ERROR, evil
    below = make_span(0xDD << 120, evil, 1, 8, parent=root.span_id)
    for key, values in {"nodes": [1], "kinds": ["bonus"], "texts": [evil]}.items():
        listed(below, f"specmesh.committed.{key}", values)
    file = tmp_path / "evil.jsonl"
    file.write_text(f"{to_line([group(evil, root, below)])}\n")
    said("import", file)
    shown = said("show", "dd", "--spans", "--path", "--no-what-if")
    assert "␛]0;owned" in shown
    for text in (shown, said("list"), said("stats"), said("diff", "dd", "bb")):
        controls = {each for each in text if unicodedata.category(each) in {"Cc", "Cf"}}
        assert controls == {"\n"}


def test_damaged_traces_are_left_out_and_counted():
    with sqlite3.connect(default_path()) as connection:
        connection.execute("UPDATE spans SET otlp = x'00112233' WHERE id = 1")
        connection.execute("UPDATE traces SET outcome = 'odd' WHERE id = 2")
    connection.close()
    listed, stats, shown = (run(*words) for words in (("list",), ("stats",), ("show", "aa")))
    assert (listed.exit_code, listed.stderr) == (0, "specmesh: left out: 1 trace is damaged\n")
    assert (stats.exit_code, stats.stderr) == (0, "specmesh: left out: 2 traces are damaged\n")
    assert stats.stdout.startswith("1 trace: ")
    assert shown.exit_code == 1
    assert shown.stderr.startswith(f"specmesh: trace {0xAA << 120:032x} is damaged: ")
    assert len(shown.stderr.splitlines()) == 1


def test_words_stand_for_ids():
    assert told("show", "slowest")["summary"]["trace_id"] == SAMPLE
    assert told("show", "last")["summary"]["trace_id"][:2] in {"aa", "bb"}


def test_what_is_not_there_has_a_status_of_its_own(tmp_path):
    done = run("show", "cc")
    assert (done.exit_code, done.stderr) == (
        5,
        "specmesh: no trace has an id that begins with 'cc'\n",
    )
    done = run("list", "--store", tmp_path / "none.sqlite")
    assert done.exit_code == 1
    assert "no trace store at" in done.stderr
    done = run("import", "-", typed="{}")
    assert done.exit_code == 2
    assert done.stderr.startswith("specmesh: standard input: the document has none of")


def test_stats_leave_out_incomplete_traces_from_the_path():
    found = told("stats")
    assert (found["answers"]["count"], found["num_incomplete"]) == (3, 1)
    text = said("stats")
    assert "1 of them lack spans" in text
    assert "Verifier/Verify" in text


def test_diff_says_where_the_second_lost_its_time():
    found = told("diff", "aa", "5b")
    assert found["lost_ms"] == pytest.approx(80.0)
    assert sum(each["lost_ms"] for each in found["changes"]) == pytest.approx(80.0)
    assert "the second took 80.0 ms more" in said("diff", "aa", "5b")
    assert "the second took 80.0 ms less" in said("diff", "5b", "aa")


def test_diff_says_that_both_are_the_same_trace():
    assert said("diff", "slowest", SAMPLE[:4]) == f"both are trace {SAMPLE}\n"


def test_export_writes_what_import_reads(tmp_path):
    file, other = tmp_path / "out.json", tmp_path / "other.sqlite"
    said("export", "aa", "5b", "aa", "--output", file)
    assert "2 traces with 13 spans" in said("import", file, "--store", other)
    assert told("show", "aa", "--store", other) == told("show", "aa")
    events = json.loads(said("export", "aa", "--format", "chrome"))["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    assert run("export", "aa", "bb", "--format", "chrome").exit_code == 2


def test_an_export_for_perfetto_has_no_numbers_that_json_lacks(tmp_path):
    span = make_span(0xDD << 120, "odd", specmesh__queue_ms=float("nan"))
    file = tmp_path / "odd.jsonl"
    file.write_text(f"{to_line([group('v', span)])}\n")
    said("import", file)
    (event,) = [
        event
        for event in json.loads(said("export", "dd", "--format", "chrome"))["traceEvents"]
        if event["ph"] == "X"
    ]
    assert event["args"]["specmesh.queue_ms"] == "nan"


def test_show_says_what_would_have_shortened_an_answer_or_why_that_is_not_known():
    assert told("show", "bb")["what_if"] == {"unknown": "not known: spans are missing"}
    assert "what would have shortened it: not known: spans are missing" in said("show", "bb")
    assert "what_if" not in told("show", "bb", "--no-what-if")
    assert "shortened" not in said("show", "bb", "--no-what-if")


WHY = "speculation.width: must be in [1, 64]"


@pytest.fixture
def refused(tmp_path):
    """A request that was refused, newer than all else."""
    own, *_ = answer(0xCC << 120, duration_ms=1.0, failed=WHY)
    spans = own.scope_spans[0].spans
    del spans[1:]
    for time in ("start_time_unix_nano", "end_time_unix_nano"):
        setattr(spans[0], time, getattr(spans[0], time) + 10**12)
    file = tmp_path / "refused.jsonl"
    file.write_text(f"{to_line([own])}\n")
    said("import", file)


def test_a_failed_request_says_what_its_caller_was_told(refused):
    assert f"failed: {WHY}" in said("show", "cc")
    assert told("show", "cc")["failure"] == WHY
    assert told("show", "aa")["failure"] == ""
    assert "failed: " not in said("show", "aa")


def test_the_last_answer_is_no_request_that_was_refused_and_no_list_of_models(refused, tmp_path):
    listed = make_span(0xDD << 120, "specmesh.v1.GenerationService/ListModels", 2e6)
    file = tmp_path / "listed.jsonl"
    file.write_text(f"{to_line([group('orchestrator', listed)])}\n")
    said("import", file)
    done = run("show", "last")
    assert done.stdout.startswith("aa")
    assert "a newer request failed (failed): specmesh trace show cc000000" in done.stderr


def test_a_long_name_is_cut_in_the_list(tmp_path):
    long = make_span(
        0xEE << 120, ANSWER, specmesh__strategy="s" * 3000, specmesh__reason="r" * 3000
    )
    long.status.code = Status.STATUS_CODE_ERROR
    file = tmp_path / "long.jsonl"
    file.write_text(f"{to_line([group('orchestrator', long)])}\n")
    said("import", file)
    (line,) = [line for line in said("list").splitlines() if line.startswith("ee")]
    assert f"{'s' * 29}…  failed {'r' * 22}…" in line


@pytest.mark.parametrize("width", range(20, 120, 7))
def test_no_time_on_the_axis_runs_into_another(width):
    spans = list(spans_from([group("orchestrator", make_span(1, ANSWER, 0.0, 3001.0))]))
    axis, *_ = waterfall(Trace.of(spans), width)
    times = re.sub(" ms$", "", axis.plain).split()
    assert times[-1] == "3001"
    assert set(times) <= {"0", "750", "1500", "2251", "3001"}
    assert re.search(r"\S \S", axis.plain.removesuffix(" ms")) is None


def test_no_number_is_cut_at_80_columns(monkeypatch):
    monkeypatch.setattr(tables, "_FILE_WIDTH", 80)
    for command, numbers in (
        (("list",), ("20.0", "50.0", "100.0")),
        (("show", SAMPLE), ("70.0", "20.0", "10.0", "100 ms")),
        (("stats",), ("100.0", "58%", "16.7", "99.0")),
        (("diff", "aa", "5b"), ("18.5", "70.0", "+51.5")),
    ):
        text = said(*command)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 80
        for number in numbers:
            assert number in text, (command, number, text)
