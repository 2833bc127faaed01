"""Every command that the docs show has the options that they give it."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from tests.cli.test_help import APPS, options

REPOSITORY = Path(__file__).parents[2]
PAGES = [*REPOSITORY.glob("*.md"), *sorted((REPOSITORY / "docs").glob("*.md"))]
ENDS = {"&", "|", ";", "&&", ">", "<<<"}


def commands(page):
    """The words after ``specmesh`` of each command in a console block."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if not line.startswith("$ ") or "specmesh " not in line:
                continue
            words = shlex.split(line[2:].replace("...", ""), comments=True)
            for start, word in enumerate(words):
                if not re.fullmatch(r"(.*/)?specmesh", word) or words[start - 1 : start] == ["-n"]:
                    continue
                rest = words[start + 1 :]
                ended = [at for at, word in enumerate(rest) if word in ENDS or word.endswith(";")]
                yield tuple(rest[: ended[0]] if ended else rest)


def resolved(words):
    """The click command that ``words`` name, and the words after its name."""
    known = [n for n in range(len(words), -1, -1) if " ".join(("specmesh", *words[:n])) in APPS]
    command = typer.main.get_command(APPS[" ".join(("specmesh", *words[: known[0]]))]())
    rest = list(words[known[0] :])
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return command, rest


SHOWN = sorted({command for page in PAGES for command in commands(page)})


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_documented_command_has_its_options(words):
    command, rest = resolved(words)
    assert not getattr(command, "commands", {}) or not rest or rest[0].startswith("-")
    given = [word.partition("=")[0] for word in rest if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", word)]
    assert [each for each in given if each not in {*options(command), "--help"}] == []
