"""The numbers that docs/engines.md gives to begin with."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.numbers import lines


def test_the_docs_have_the_numbers_that_the_command_prints():
    text = (Path(__file__).parents[2] / "docs/engines.md").read_text()
    assert "\n".join(lines()) in text
