"""The docs hang together: every page is in the index, every link leads somewhere, and README's
code runs."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specmesh.cli.app import app
from specmesh.client.testing import FakeMesh
from specmesh.decoding.predict.confidence import SCORERS
from specmesh.orchestrator.strategies import STRATEGIES

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
STRATEGY_PAGE = (DOCS / "strategies.md").read_text()
PAGES = [README, REPOSITORY / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def links(page):
    return [
        target for target in LINK.findall(FENCED.sub("", page.read_text())) if "://" not in target
    ]


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_every_page_is_in_the_index_once():
    listed = re.findall(
        r"^\| \[[^\]]+\]\(([^)#]+)\)", (DOCS / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(
        page.name for page in DOCS.glob("*.md") if page.name != "README.md"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    assert list(broken(page)) == []


def test_the_readme_and_the_architecture_stay_short():
    assert len(README.read_text().splitlines()) <= 130
    assert len((DOCS / "architecture.md").read_text().splitlines()) <= 350


@pytest.mark.parametrize("name", [*STRATEGIES, *SCORERS])
def test_the_tables_of_strategies_and_scorers_have_a_row_for_each(name):
    row = re.search(rf"^\| [^|]*`{name}`[^|]*\|", STRATEGY_PAGE, re.MULTILINE)
    assert row, f"docs/strategies.md has no table with a row for {name}"


@pytest.mark.parametrize("page", [README, DOCS / "sdk.md"], ids=lambda page: page.name)
def test_python_for_a_mesh_runs_as_it_stands(page, monkeypatch, capsys):
    with FakeMesh() as mesh:
        monkeypatch.setenv("SPECMESH_TARGET", mesh.address)
        programs = [each for each in blocks(page, "python") if "specmesh.client" in each]
        for program in programs:
            for _ in range(program.count(".complete(") + program.count("client.generate(") + 2):
                mesh.answer("text")
            exec(program.replace("127.0.0.1:50051", mesh.address), {"__name__": "__main__"})
    assert programs
    assert "text" in capsys.readouterr().out


def test_the_readme_s_commands_for_clients_run_as_they_stand():
    commands = [
        shlex.split(line.partition("  #")[0].removeprefix("$ specmesh "))
        for block in blocks(README, "console")
        for line in block.splitlines()
        if line.startswith(("$ specmesh generate", "$ specmesh models"))
    ]
    assert len(commands) >= 4
    with FakeMesh() as mesh:
        for arguments in commands:
            mesh.answer("text")
            done = CliRunner(env={"SPECMESH_TARGET": mesh.address}).invoke(app, arguments)
            assert done.exit_code == 0, done.output
