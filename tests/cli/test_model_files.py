"""A model's files are fetched whole and as listed, or not at all."""

import hashlib
import io
import os
import resource
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.cli.model_files import fetching
from specmesh.cli.model_files.sources import BrokenTransfer, Transfer, source_of
from specmesh.cli.model_files.sums import FILE, BadModelFiles, Sums

WEIGHTS = bytes(range(256)) * 40_000
"""Ten megabytes: several pieces."""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    (folder / "parts").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "parts" / "1.safetensors").write_bytes(WEIGHTS)
    (folder / FILE).write_text(Sums.of(folder).text)
    return folder


class Server(ThreadingHTTPServer):
    """Serves a folder, and breaks off where a test says."""

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.break_after = {}
        """By path: after how many octets the connection is cut, once each."""
        self.asked = []
        self.token = ""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Range"]))
        try:
            content = (self.server.folder / self.path.lstrip("/")).read_bytes()
        except FileNotFoundError:
            self.send_error(404)
            return
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if start >= len(content) and start:
            self.send_error(416)
            return
        rest = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        limits = self.server.break_after.get(self.path, [])
        self.wfile.write(rest[: limits.pop(0)] if limits else rest)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(model):
    with Server(model) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(fetching, "FIRST_PAUSE_S", 0.001)


def models(*arguments):
    return CliRunner().invoke(app, ["models", *map(str, arguments)])


def digest_of(folder):
    return Sums.parse((folder / FILE).read_text()).digest


def contents(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_a_model_is_listed_fetched_and_verified(model, server, tmp_path):
    listed = models("sums", model)
    digest = listed.stdout.strip()
    assert listed.exit_code == 0
    assert digest == digest_of(model)
    assert listed.stderr.startswith(f"wrote {model / FILE}; digest for 'models verify'")
    copy = tmp_path / "copy"
    fetched = models("fetch", server.url, copy, "--digest", digest)
    assert fetched.exit_code == 0, fetched.output
    assert contents(copy) == contents(model)
    verified = models("verify", copy, "--digest", digest)
    assert (verified.exit_code, verified.output) == (0, f"{copy}: 2 files as listed\n")


def test_sha256sum_reads_and_writes_the_same_list(model):
    subprocess.run(["sha256sum", "--check", FILE], cwd=model, check=True)
    names = ["config.json", "parts/1.safetensors"]
    written = subprocess.run(
        ["sha256sum", *names], cwd=model, check=True, capture_output=True, text=True
    )
    assert Sums.parse(written.stdout) == Sums.of(model)


def test_what_is_there_is_not_fetched_again(model, server, tmp_path):
    copy = tmp_path / "copy"
    for _ in range(2):
        fetched = models("fetch", server.url, copy, "--digest", digest_of(model))
        assert fetched.exit_code == 0
    assert fetched.output.count("already present") == 2
    assert sorted(server.asked).count(("/config.json", None)) == 1


def test_what_is_complete_needs_no_source(model, server, tmp_path):
    copy, digest = tmp_path / "copy", digest_of(model)
    assert models("fetch", server.url, copy, "--digest", digest).exit_code == 0
    num_asked = len(server.asked)
    assert models("fetch", server.url, copy, "--digest", digest).exit_code == 0
    assert len(server.asked) == num_asked


def test_a_file_for_which_there_is_no_room_is_named(model, tmp_path):
    (model / "config.json").write_bytes(bytes(5000))
    models("sums", model)
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        fetched = models("fetch", model, tmp_path / "copy", "--digest", digest_of(model))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert fetched.exit_code == 1
    assert "File too large" in fetched.output
    assert ".config.json.part" in fetched.output


def test_a_broken_transfer_goes_on_where_it_broke(model, server, tmp_path):
    path = "/parts/1.safetensors"
    server.break_after[path] = [5_000_000, 1_000_000]
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", digest_of(model))
    assert fetched.exit_code == 0, fetched.output
    ranges = [asked for where, asked in server.asked if where == path]
    assert ranges == [None, "bytes=5000000-", "bytes=6000000-"]
    assert contents(tmp_path / "copy") == contents(model)


def test_a_transfer_that_gets_further_each_time_may_break_as_often_as_it_will(
    model, server, tmp_path
):
    path = "/parts/1.safetensors"
    server.break_after[path] = [300_000] * 3 * fetching.TRIES
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", digest_of(model))
    assert fetched.exit_code == 0, fetched.output
    assert contents(tmp_path / "copy") == contents(model)


def test_a_transfer_that_gets_no_further_ends_with_how_much_of_the_file_there_is(
    model, server, tmp_path
):
    path = "/parts/1.safetensors"
    server.break_after[path] = [300_000, *[0] * fetching.TRIES]
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", digest_of(model))
    assert fetched.exit_code == 1
    told = f"ended after 300000 of {len(WEIGHTS)} bytes; tried {fetching.TRIES} times in vain"
    assert told in fetched.output
    assert [where for where, _ in server.asked].count(path) == fetching.TRIES


def test_processes_with_the_same_number_write_one_list(model, tmp_path):
    """As the containers do that share a volume: in each the first process has the number 1."""
    sums, copy = Sums.of(model), tmp_path / "copy"
    copy.mkdir()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: fetching._write(copy / FILE, sums.text.encode()), range(400)))
    assert contents(copy) == {FILE: sums.text.encode()}


@pytest.mark.parametrize("left", [WEIGHTS[:1000], b"of another file", WEIGHTS + b"too much"])
def test_what_an_earlier_process_left_is_used_or_thrown_away(model, server, tmp_path, left):
    parts = tmp_path / "copy" / "parts"
    parts.mkdir(parents=True)
    (parts / ".1.safetensors.part").write_bytes(left)
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", digest_of(model))
    assert fetched.exit_code == 0, fetched.output
    assert contents(tmp_path / "copy") == contents(model)


def test_a_whole_part_needs_no_fetching(model, server, tmp_path):
    parts = tmp_path / "copy" / "parts"
    parts.mkdir(parents=True)
    (parts / ".1.safetensors.part").write_bytes(WEIGHTS)
    models("fetch", server.url, tmp_path / "copy", "--digest", digest_of(model))
    assert contents(tmp_path / "copy") == contents(model)
    assert {path for path, _ in server.asked} == {f"/{FILE}", "/config.json"}


def test_an_altered_file_is_refused_by_name_and_gets_no_name(model, server, tmp_path):
    digest = digest_of(model)
    (model / "parts" / "1.safetensors").write_bytes(WEIGHTS[:-1] + b"!")
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", digest)
    assert fetched.exit_code == 1
    assert "parts/1.safetensors does not match its digest" in fetched.output
    assert not (tmp_path / "copy" / "parts" / "1.safetensors").exists()
    assert not (tmp_path / "copy" / FILE).exists()


def test_another_list_than_the_digest_names_is_refused(model, server, tmp_path):
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", "0" * 64)
    assert fetched.exit_code == 1
    assert f"the digest of {FILE} is {digest_of(model)}" in fetched.output
    assert not (tmp_path / "copy").exists()


def test_a_digest_may_be_written_in_capitals(model):
    assert models("verify", model, "--digest", digest_of(model).upper()).exit_code == 0


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 63 + "g", "0" * 64 + "\n"])
@pytest.mark.parametrize("arguments", [("verify", "model"), ("fetch", "source", "folder")])
def test_a_digest_that_is_none_is_refused_before_anything_is_read(arguments, digest):
    refused = models(*arguments, "--digest", digest)
    assert refused.exit_code == 2
    assert "must be 64 hexadecimal digits" in refused.output


def test_a_file_that_is_nowhere_is_named(model, server, tmp_path):
    digest = digest_of(model)
    (model / "config.json").unlink()
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", digest)
    assert fetched.exit_code == 1
    assert "/config.json: status 404" in fetched.output


def test_a_folder_is_a_source_and_the_list_may_come_from_elsewhere(model, tmp_path):
    sums = tmp_path / "sums"
    (model / FILE).rename(sums)
    digest = Sums.parse(sums.read_text()).digest
    fetched = models("fetch", model, tmp_path / "copy", "--digest", digest, "--sums", sums)
    assert fetched.exit_code == 0, fetched.output
    assert models("verify", tmp_path / "copy", "--digest", digest).exit_code == 0


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json is altered"),
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "more.py").write_text(""), "more.py is not listed"),
    ],
)
def test_what_differs_from_the_list_is_found(model, spoil, problem):
    digest = digest_of(model)
    spoil(model)
    verified = models("verify", model, "--digest", digest)
    assert verified.exit_code == 1
    assert problem in verified.output


@pytest.mark.parametrize("command", ["sums", "verify"])
def test_a_link_to_a_folder_is_refused_since_its_files_are_not_seen(model, tmp_path, command):
    (model / "more").symlink_to(tmp_path)
    digest = () if command == "sums" else ("--digest", digest_of(model))
    refused = models(command, model, *digest)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"{model}: more is a link to a folder" in refused.output


def test_links_to_files_and_hidden_folders_are_no_hindrance(model, tmp_path):
    """As in the cache of Hugging Face, and in volumes of Kubernetes."""
    (model / "config.json").rename(tmp_path / "blob")
    (model / "config.json").symlink_to(tmp_path / "blob")
    (model / "..data").symlink_to(tmp_path)
    assert models("verify", model, "--digest", digest_of(model)).exit_code == 0


@pytest.mark.parametrize("path", ["../config.json", "/etc/passwd", "a/../../b", ".hidden", FILE])
def test_a_list_names_files_of_its_folder_alone(path):
    with pytest.raises(BadModelFiles, match="is not a valid path"):
        Sums.parse(f"{'0' * 64}  {path}\n")


def test_who_fetch_into_one_folder_at_once_bring_each_file_once(model, server, tmp_path):
    def fetch():
        source = source_of(server.url)
        fetching.fetch(source, Sums.of(model), tmp_path / "copy", lambda _: None)

    with ThreadPoolExecutor(3) as threads:
        for task in [threads.submit(fetch) for _ in range(3)]:
            task.result()
    assert [path for path, _ in server.asked].count("/parts/1.safetensors") == 1
    assert contents(tmp_path / "copy") == contents(model)


class Interrupted:
    """A source of a file whose arrival is interrupted once the transfer of another has begun."""

    def __init__(self, other):
        self.begun = threading.Event()
        self.other = other

    @contextmanager
    def open(self, path, start):
        if path == "a":
            assert self.begun.wait(20)
            yield Transfer(io.BytesIO(b"a"), 0)
        else:
            self.begun.set()
            yield Transfer(self.other(), 0)

    def fetch(self, folder):
        def interrupt(told):
            raise KeyboardInterrupt

        sums = Sums("", {"a": hashlib.sha256(b"a").hexdigest(), "b": "0" * 64})
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            fetching.fetch(self, sums, folder, interrupt)
        return time.monotonic() - began


class Trickle:
    """Octets that come one by one, for half a minute."""

    def __init__(self):
        self.until = time.monotonic() + 30

    def read(self, _):
        return b"b" if time.monotonic() < self.until else b""


def test_an_interrupt_stops_the_transfers_and_keeps_what_has_arrived(tmp_path):
    assert Interrupted(Trickle).fetch(tmp_path) < 20
    assert set((tmp_path / ".b.part").read_bytes()) == {ord("b")}
    assert sorted(file.name for file in tmp_path.iterdir()) == [".b.part", "a"]


def test_an_interrupt_is_not_kept_waiting_by_a_pause_between_tries(tmp_path, monkeypatch):
    def breaks():
        raise BrokenTransfer

    monkeypatch.setattr(fetching, "FIRST_PAUSE_S", 30)
    monkeypatch.setattr(fetching, "TRIES", 2)
    assert Interrupted(breaks).fetch(tmp_path) < 20


def test_a_token_is_not_sent_in_clear_text(model, server, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECMESH_MODELS_TOKEN", "secret")
    fetched = models("fetch", server.url, tmp_path / "copy", "--digest", digest_of(model))
    assert fetched.exit_code == 1
    assert "a token is not sent in clear text" in fetched.output
    assert server.asked == []


@pytest.mark.parametrize("token", ["secret\nsecond", "sécret", "secret\x7f"])
@pytest.mark.parametrize("from_file", [True, False])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(
    tmp_path, monkeypatch, token, from_file
):
    (tmp_path / "token").write_text(token)
    if not from_file:
        monkeypatch.setenv("SPECMESH_MODELS_TOKEN", token)
    flags = ("--token-file", tmp_path / "token") if from_file else ()
    refused = models(
        *("fetch", "https://127.0.0.1:9", tmp_path / "copy", "--digest", "0" * 64, *flags)
    )
    assert refused.exit_code == 1
    assert refused.output == "specmesh: the token must be one line of printable ASCII characters\n"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://127.0.0.1:99999/x", "Port out of range"),
        ("https:///model", "names no host"),
        ("http://127.0.0.1:9/größe", "must be escaped"),
        ("http://127.0.0.1:9/a model", "must be escaped"),
    ],
)
def test_what_is_no_url_is_refused_in_a_sentence(tmp_path, url, problem):
    refused = models("fetch", url, tmp_path / "copy", "--digest", "0" * 64)
    assert refused.exit_code == 1
    assert refused.output.startswith(f"specmesh: {url!r} is not a URL: ")
    assert problem in refused.output


def test_a_file_whose_name_is_not_utf8_is_refused_by_name(model):
    (model / os.fsdecode(b"caf\xe9")).touch()
    refused = models("sums", model)
    assert refused.exit_code == 1
    assert refused.output == "specmesh: the name of the file b'caf\\xe9' is not UTF-8\n"


@pytest.mark.parametrize(
    ("flags", "revision"),
    [((), "main"), (("--revision", "v1"), "v1"), (("--revision", "refs/pr/1"), "refs%2Fpr%2F1")],
)
def test_a_revision_of_a_hugging_face_id_is_fetched(
    server, model, tmp_path, monkeypatch, flags, revision
):
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    there = server.folder / "somebody/tiny/resolve" / revision
    shutil.copytree(model, there)
    (there / FILE).unlink()  # a hub has none
    arguments = ("--digest", digest_of(model), "--sums", model / FILE, *flags)
    found = models("fetch", "somebody/tiny", tmp_path / "here", *arguments)
    assert found.exit_code == 0, found.output
    assert (tmp_path / "here/parts/1.safetensors").read_bytes() == WEIGHTS
    assert {path for path, _ in server.asked} == {
        f"/somebody/tiny/resolve/{revision}/{name}"
        for name in ("config.json", "parts/1.safetensors")
    }


@pytest.mark.parametrize("source", ["https://models.example.org/tiny", "{folder}"])
def test_a_revision_of_what_has_none_is_refused(model, tmp_path, source):
    where = (source.format(folder=model), tmp_path / "here")
    found = models("fetch", *where, "--digest", digest_of(model), "--revision", "v1")
    assert found.exit_code == 1
    assert "has no revisions" in found.output
