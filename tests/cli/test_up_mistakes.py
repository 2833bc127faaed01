"""``specmesh up`` finds what is wrong with its options before it starts a process."""

import socket
from pathlib import Path

import pytest
from tests.command import specmesh
from typer.testing import CliRunner

from specmesh.cli import up
from specmesh.cli.app import app
from specmesh.cli.local.checks import check_drafters, check_model
from specmesh.cli.local.models import EngineBackend


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch):
    """A mesh that is started nevertheless fails the test at once."""

    def start(*_, **__):
        raise AssertionError("a mesh was started")

    monkeypatch.setattr(up, "LocalMesh", start)


def refusal(*arguments):
    """The words with which the command line is refused, unbroken."""
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.replace("│", " ").split())


def test_a_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refusal("up", "--port", str(port))
    assert f"cannot listen on port {port}: address already in use" in said
    assert "--port" in said


def test_a_port_that_is_none():
    assert "--port" in refusal("up", "--port", "70000")


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("dsii", "there is no 'dsii': did you mean 'dsi'?"),
        ("best", "'best' is not one of: autoregressive, speculative"),
        ("filter", "'filter' may change the text, so only a request may choose it"),
    ],
)
def test_a_strategy_that_can_be_no_default(strategy, said):
    assert said in refusal("up", "--port", "0", "--strategy", strategy)


@pytest.mark.parametrize("option", ["--target", "--drafter", "--heads"])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no folder"),
        (lambda path: path.mkdir(), "is empty"),
        (lambda path: path.write_text("{}"), "is a file"),
        (lambda path: (path / "docs").mkdir(parents=True), "has no config.json"),
    ],
)
def test_a_folder_without_a_model(option, make, said, tmp_path):
    folder = tmp_path / "m"
    make(folder)
    refused = refusal("up", "--port", "0", option, str(folder))
    assert said in refused
    assert option in refused


@pytest.mark.parametrize(
    "name", ["/srv/models/absent", "./absent", "../absent", "~/absent", "absent/", "a/b/c"]
)
def test_what_can_only_be_a_folder_is_looked_for_on_this_machine_alone(name):
    assert f"there is no folder '{Path(name)}'" in refusal("up", "--target", name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ngrm", "ngram"), ("prompt_lookup", "prompt-lookup"), ("radnom", "random")],
)
def test_a_misspelt_drafter(name, meant):
    said = refusal("up", "--port", "0", "--drafter", name)
    assert f"there is no '{name}': did you mean '{meant}'?" in said


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_ids_of_hugging_face_pass(name):
    assert check_model(name) == name
    assert check_drafters([name]) == [name]


def test_a_calibration_that_is_not_there(tmp_path):
    assert "--calibration" in refusal("up", "--calibration", str(tmp_path / "absent"))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"nonsense", b"{}", b'{"version": 2}'])
def test_a_file_that_holds_no_calibration(content, tmp_path):
    (tmp_path / "calibration.json").write_bytes(content)
    given = ("--calibration", str(tmp_path / "calibration.json"))
    assert "--calibration" in refusal("up", "--port", "0", *given)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"nonsense", b"{}"])
def test_a_file_that_holds_no_trees(content, tmp_path):
    (tmp_path / "trees.json").write_bytes(content)
    assert "--trees" in refusal("up", "--port", "0", "--trees", str(tmp_path / "trees.json"))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{% if messages %}", b"{{ messages"])
def test_a_chat_template_that_is_none(content, tmp_path):
    (tmp_path / "chat.jinja").write_bytes(content)
    given = ("--chat-template", str(tmp_path / "chat.jinja"))
    assert "--chat-template" in refusal("up", "--port", "0", *given)


@pytest.mark.parametrize("url", ["http://h", "h:6379", "redis+cluster://h", "redis+sentinel://h"])
def test_a_url_that_no_redis_can_have(url):
    assert "--redis-url" in refusal("up", "--port", "0", "--redis-url", url)


def test_heads_as_a_default_where_there_are_none(target_model):
    said = refusal("up", "--port", "0", "--strategy", "heads", "--target", target_model)
    assert "'heads' needs a target with --heads" in said


def test_texts_for_traces_that_are_not_kept():
    said = refusal("up", "--port", "0", "--record-content", "--trace", "off")
    assert "can't be used with --trace off" in said


def test_vllm_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr("specmesh.cli.local.checks.find_spec", lambda _: None)
    for option in ("--backend", "--drafter-backend"):
        said = refusal("up", option, EngineBackend.VLLM.value)
        assert "vLLM is not installed in this environment" in said


@pytest.mark.parametrize("command", [("demo",), ("bench", "strategies"), ("profile", "local")])
def test_other_commands_that_start_a_mesh_check_models_likewise(command, tmp_path):
    done = specmesh(*command, "--target", str(tmp_path / "absent"))
    assert done.returncode == 2
    assert "there is no folder" in " ".join(done.stderr.replace("│", " ").split())
