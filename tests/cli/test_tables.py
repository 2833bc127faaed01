"""Tables at any width: no number is cut, nothing is left out."""

import ast
import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from specmesh.cli.tables import make_table

ROOTS = ("clients", "benchmarks", "services", "orchestrator")
REPOSITORY = Path(__file__).parents[2]
HEADINGS = ("node", "name", "count", "p50", "p90", "p99", "max", "queue p50", "forward p50")
NODE = "verifier specmesh-verifier-7d9f8b6c5d-xk2lp-1"


def printed(table, width):
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(table)
    return out.getvalue()


def example():
    table = make_table("spans, in ms", *HEADINGS, num_left=2, caption="as they were")
    for row in range(3):
        numbers = (f"{(row + 1) * 10 ** (column + 2):,.1f}" for column in range(7))
        table.add_row(NODE, "VerifierService/Verify", *numbers)
    return table


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 160, 300])
def test_every_number_is_whole_and_no_line_is_too_long(width):
    text = printed(example(), width)
    assert "…" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    for row in range(3):
        for column in range(7):
            assert f"{(row + 1) * 10 ** (column + 2):,.1f}" in text


def test_what_finds_no_room_follows_below_behind_the_first_columns():
    parts = printed(example(), 80).split("\n\n")
    assert len(parts) > 1
    assert [("spans, in ms" in part) for part in parts] == [True, *[False] * len(parts[1:])]
    assert [("as they were" in part) for part in parts] == [*[False] * len(parts[1:]), True]
    for part in parts:
        assert re.search("^node +name ", part, re.MULTILINE)
        assert "specmesh-ver" in part


@pytest.mark.parametrize("width", [40, 50])
def test_texts_move_below_before_their_words_are_broken(width):
    table = make_table("", "id", "began", "request", "outcome", "ms", "tokens", num_left=4)
    table.add_row("5b8efff7", "2018-12-13 14:51:00", "speculative", "cancelled", "52.1", "128")
    text = printed(table, width)
    for whole in ("5b8efff7", "14:51:00", "speculative", "cancelled", "52.1", "128"):
        assert whole in text.split(), text
    assert max(map(len, text.splitlines())) <= width


def test_a_caption_is_as_wide_as_the_terminal_and_not_as_the_last_part():
    table = make_table("", "name", *(["number"] * 8), caption="a caption of several words")
    table.add_row("n", *["123456.7"] * 8)
    assert printed(table, 40).splitlines()[-1].strip() == "a caption of several words"


def test_with_room_enough_a_table_is_one_and_names_are_whole():
    text = printed(example(), 200)
    assert "\n\n" not in text
    assert f"{NODE}  VerifierService/Verify" in text
    assert re.search("queue p50 +forward p50", text)


def test_names_are_broken_after_a_separator():
    table = make_table("", "name", *(["number"] * 8))
    table.add_row("GenerationService/Generate", *["123.4"] * 8)
    lines = printed(table, 84).splitlines()
    assert lines[-2].startswith("GenerationService/ ")
    assert lines[-1].startswith("Generate ")


def test_headings_are_broken_before_names_are():
    table = make_table("", "strategy", "tokens a second", "draft tokens wasted")
    table.add_row("heads-and-drafter", "31.2", "1048576")
    lines = printed(table, 36).splitlines()
    assert "heads-and-drafter" in lines[-1]
    assert "31.2" in lines[-1]


def test_words_beside_a_number_are_broken_at_spaces():
    table = make_table("", "metric", "before", "after", "difference")
    table.add_row("TTFT", "18.3 ms", "19.4 ms", "[red]slower by 3.25 to 7.75 % (of 4096)")
    text = printed(table, 44)
    for whole in ("18.3 ms", "19.4 ms", "3.25", "7.75", "4096"):
        assert whole in text


def test_cells_keep_their_styles_and_wide_letters_their_room():
    table = make_table("", "text", "count", num_left=1)
    table.add_row(Text("日本語" * 8, "red"), "12345")
    assert "12345" in printed(table, 24)


def test_all_tables_are_made_so():
    own = {"clients/specmesh/cli/tables.py"}
    # It has three narrow columns, and its package may not import the command line's.
    own.add("services/specmesh/training/__main__.py")
    found = {
        str(file.relative_to(REPOSITORY))
        for root in ROOTS
        for file in (REPOSITORY / root).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Table"
    }
    assert found - own == set()
