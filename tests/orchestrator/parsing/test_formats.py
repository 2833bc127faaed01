"""Formats are found by registration, those of other packages as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from specmesh.orchestrator.parsing.registry import (
    ENTRY_POINTS,
    reasoning_format,
    tool_format,
    tool_formats,
)
from specmesh.orchestrator.settings import OrchestratorSettings

ADDED = """
from specmesh.orchestrator.parsing.tool_format import ToolFormat
from specmesh.orchestrator.parsing.tool_parser import ToolParser

class BracketParser(ToolParser):
    def _parse(self):
        while (yield from self._content_up_to("<<")):
            yield from self._attempt(self._object(is_marked=True))

FORMAT = ToolFormat(
    name="brackets",
    markers=frozenset({"<<"}),
    is_of=lambda template: "<<{" in template,
    parser=BracketParser,
)
"""
PROGRAM = """
from specmesh.orchestrator.parsing.registry import tool_format
parser = tool_format("auto", "write <<{}").parser(())
print(parser.push('a <<{"name": "f", "arguments": {}} b'))
"""


def test_a_package_adds_a_format(tmp_path: Path):
    (tmp_path / "bracket_format.py").write_text(ADDED)
    described = tmp_path / "bracket_format-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: bracket-format\nVersion: 1\n")
    entry = f"[{ENTRY_POINTS}]\nbrackets = bracket_format:FORMAT\n"
    (described / "entry_points.txt").write_text(entry)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(*command: str) -> str:
        environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
        command = (sys.executable, *command)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert run("-c", PROGRAM) == (
        "[ContentPiece(text='a'), CallPiece(index=0, name='f', arguments='{}'), "
        "ContentPiece(text='b')]\n"
    )
    assert "deepseek_v3, pythonic, brackets" in run("-m", "specmesh.orchestrator", "--help")


def test_a_name_says_more_than_the_template():
    assert tool_format("mistral", "<tool_call>") is tool_formats()["mistral"]
    assert tool_format("none", "<tool_call>") is None
    assert tool_format("auto", "<tool_call>") is tool_formats()["hermes"]
    assert tool_format("auto", "") is None
    assert reasoning_format("auto", "{{ '</think>' }}").name == "think"
    assert reasoning_format("none", "{{ '</think>' }}") is None


@pytest.mark.parametrize("setting", ["tool_format", "reasoning_format"])
def test_a_setting_names_a_format_that_there_is(setting):
    with pytest.raises(ValidationError, match="must be one of: auto, none, "):
        OrchestratorSettings(verifiers="a:1", **{setting: "latin"})
