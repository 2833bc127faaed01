"""The commands that write pages."""

import json
import re

import pytest
from tests.load.reports import MIXED, mixed_run, point, run_report, setting, sweep_report
from typer.testing import CliRunner

from specmesh.load.__main__ import app
from specmesh.load.commands.options import ResultOptions
from specmesh.load.commands.session import RunSession
from specmesh.load.results.report import RunReport


def written(tmp_path, name, report):
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps(report))
    return str(file)


def call(*arguments):
    return CliRunner().invoke(app, arguments, terminal_width=200)


def data(file):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read_text())
    return json.loads(found[1])


def test_a_finished_run_writes_its_page_beside_its_json(tmp_path):
    json_file, html = tmp_path / "run.json", tmp_path / "run.html"
    results = ResultOptions(json_=json_file, html=html)
    RunSession(results).write(RunReport(setting=setting(MIXED), result=mixed_run()))
    assert json.loads(json_file.read_text())["kind"] == "run"
    assert data(html)["runs"][0]["counts"]["due"] == 200


def test_earlier_runs_become_a_page(tmp_path):
    html = tmp_path / "page.html"
    named = [written(tmp_path, name, run_report()) for name in ("monday", "tuesday")]
    done = call("report", *named, "--html", str(html))
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(html)
    assert data(html)["names"] == ["monday", "tuesday"]
    assert data(html)["title"] == "monday and tuesday"


def test_sweeps_of_two_servers_are_told_apart(tmp_path):
    html = tmp_path / "page.html"
    sweep = sweep_report([point(1.0, strategy="dsi")])
    named = [written(tmp_path, name, sweep) for name in ("mesh", "other")]
    assert call("report", *named, "--html", str(html)).exit_code == 0
    assert [run["group"] for run in data(html)["runs"]] == ["mesh dsi", "other dsi"]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    html = tmp_path / "page.html"
    for folder in ("mesh", "other"):
        (tmp_path / folder).mkdir()
    sweep = sweep_report([point(1.0, strategy="dsi")])
    named = [written(tmp_path, name, sweep) for name in ("mesh/sweep", "other/sweep", "third")]
    assert call("report", *named, "--html", str(html)).exit_code == 0
    groups = ["mesh/sweep.json dsi", "other/sweep.json dsi", "third dsi"]
    assert [run["group"] for run in data(html)["runs"]] == groups
    runs = [written(tmp_path, name, run_report()) for name in ("mesh/run", "other/run")]
    assert call("compare", *runs, "--html", str(html)).exit_code == 0
    assert data(html)["title"] == "other/run.json against mesh/run.json"


def test_a_file_named_twice_is_refused(tmp_path):
    named = written(tmp_path, "run", run_report())
    done = call("report", named, named, "--html", str(tmp_path / "page.html"))
    assert done.exit_code == 2
    assert "is named 2 times" in " ".join(re.sub("[│╭╮╰╯─]", " ", done.output).split())


def test_a_comparison_writes_a_page_as_well(tmp_path):
    html = tmp_path / "page.html"
    before = written(tmp_path, "before", run_report())
    after = written(tmp_path, "after", run_report(seed=9))
    done = call("compare", before, after, "--json", "--html", str(html))
    assert done.exit_code == 0, done.output
    found, listed = data(html)["differences"], json.loads(done.output)["differences"]
    assert [each["in_words"] for each in found] == [each["in_words"] for each in listed]


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({"schema": "other/1"}, "is not a report with schema specmesh.load/1"),
        ({"schema": "specmesh.load/1", "kind": "run"}, "the field 'setting' is missing"),
        ([], "is not a report"),
    ],
)
def test_other_files_are_refused_in_one_message(tmp_path, report, why):
    html = tmp_path / "page.html"
    done = call("report", written(tmp_path, "x", report), "--html", str(html))
    assert done.exit_code == 2
    assert why in " ".join(re.sub("[│╭╮╰╯─]", " ", done.output).split())
    assert not html.exists()


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        ("latency.ttft_ms.p50", float("nan"), "result.latency.ttft_ms.p50 is not a finite number"),
        ("timeline.3.due", float("inf"), "result.timeline.3.due is not a finite number"),
        ("errors", [], "result.errors: Input should be an object"),
        ("counts.due", "many", "result.counts.due: Input should be a valid integer"),
    ],
)
def test_a_value_of_another_type_is_named_by_both_commands(tmp_path, place, value, why):
    wrong = run_report()
    *above, last = place.split(".")
    at = wrong["result"]
    for key in above:
        at = at[int(key) if key.isdigit() else key]
    at[last] = value
    bad, good = written(tmp_path, "bad", wrong), written(tmp_path, "good", run_report())
    for arguments in (("report", bad, "--html", str(tmp_path / "p")), ("compare", good, bad)):
        done = call(*arguments)
        assert done.exit_code == 2, done.output
        assert why in " ".join(re.sub("[│╭╮╰╯─]", " ", done.output).split())


def test_chunks_of_which_there_are_none_are_left_out(tmp_path):
    report = run_report()
    report["result"]["tokens_per_chunk"] = {"1": 0}
    html = tmp_path / "page.html"
    assert call("report", written(tmp_path, "x", report), "--html", str(html)).exit_code == 0
    shown = data(html)["runs"][0]["percentiles"]
    assert "tokens_per_chunk" not in {each["metric"] for each in shown}


def test_a_comparison_whose_page_cannot_be_written_says_so(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("specmesh.load.commands.compare.write_page", full)
    run = written(tmp_path, "run", run_report())
    done = call("compare", run, run, "--html", str(tmp_path / "page.html"))
    assert done.exit_code == 2
    assert "Invalid value for --html: No space left on device" in done.output


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    html = tmp_path / "missing" / "page.html"
    done = call("report", written(tmp_path, "x", run_report()), "--html", str(html))
    assert done.exit_code == 2
    why = f"Invalid value for --html: the folder {html.parent} does not exist"
    # A long path goes on in the next line.
    assert why.replace(" ", "") in re.sub(r"[│╭╮╰╯─\s]", "", done.output)
