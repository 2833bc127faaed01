"""``specmesh trace open``, as a command."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx2
from tests.cli.page.made import EVENTFUL
from typer.testing import CliRunner

from specmesh.cli.app import app

SCRIPT = "from specmesh.cli.main import main; main()"


@contextmanager
def running(*arguments, **environment):
    """The command, and the first line that it prints."""
    command = (sys.executable, "-c", SCRIPT, "trace", "open", *map(str, arguments))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **environment}, **pipes) as it:
        try:
            line = it.stdout.readline().strip()
            assert line, it.communicate()
            yield it, line
        finally:
            it.kill()


def run(*arguments):
    return CliRunner().invoke(app, ["trace", "open", *map(str, arguments)])


def test_it_serves_the_page_until_ctrl_c(store):
    with running(EVENTFUL, "--no-browser", "--store", store) as (process, url):
        key = r"[\w-]{22}"
        assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/{key}/#/trace/{EVENTFUL}0{{30}}", url)
        with httpx2.Client(base_url=url.partition("#")[0]) as http:
            assert "<title>specmesh traces</title>" in http.get("/").text
            assert http.get("/api/traces/last").json()["spans"]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert said == "press Ctrl-C to stop\n"


def test_the_browser_of_the_user_is_opened(store, tmp_path):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    os.mkfifo(opened)
    # Both ends, so that it opens at once.
    with (
        os.fdopen(os.open(opened, os.O_RDWR)) as told,
        running("--store", store, BROWSER=str(browser)) as (_, url),
    ):
        assert select.select([told], [], [], 20)[0]
        given = told.readline().strip()
        # Others can read what the browser was started with: it leads to the page once.
        assert given != url
        with httpx2.Client(follow_redirects=True) as http:
            came = http.get(given)
            assert str(came.url) == url
            assert "<title>specmesh traces</title>" in came.text
            assert http.get(given).status_code == 403


def test_a_port_in_use_is_said(store):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--no-browser", "--port", port, "--store", store)
    assert done.exit_code == 1
    assert done.stderr == f"specmesh: cannot listen on port {port}: Address already in use\n"


def test_what_is_wrong_is_said_before_anything_is_served(store, tmp_path):
    done = run("ff", "--store", store)
    assert (done.exit_code, done.stderr) == (
        5,
        "specmesh: no trace has an id that begins with 'ff'\n",
    )
    assert run("--store", tmp_path / "none.sqlite").exit_code == 1
    done = run("--export", tmp_path / "t.html", "--store", store)
    assert done.exit_code == 2
    assert "--export needs the ID of a trace" in done.output
    done = run(EVENTFUL, "--export", tmp_path / "none" / "t.html", "--store", store)
    assert done.exit_code == 1
    assert "No such file or directory" in done.stderr
