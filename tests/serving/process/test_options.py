"""Dataclasses of options in the signature of a command."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from specmesh.serving.process.options import is_typed
from specmesh.serving.process.typer_app import App


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    help_panel: ClassVar = "Size"

    width: Annotated[int, typer.Option(help="Width.")]
    height: Annotated[int, typer.Option(help="Height.", envvar="HEIGHT")] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    colours: Annotated[list[str], typer.Option(help="Colours.")] = field(
        default_factory=lambda: ["red", "blue"]
    )
    size: Size


@pytest.fixture
def drawn():
    """An app, and the arguments with which its command was called."""
    seen = {}
    app = App()

    @app.command()
    def draw(
        context: typer.Context,
        name: Annotated[str, typer.Argument(help="Name.")],
        *,
        drawing: Drawing,
        quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing.")] = False,
    ) -> None:
        """Draw."""
        typed = {each for each in context.params if is_typed(context, each)}
        seen.update(name=name, drawing=drawing, quiet=quiet, typed=typed)

    return seen, app


def test_a_command_is_given_the_dataclasses_made_of_its_options(drawn):
    seen, app = drawn
    done = CliRunner(env={"HEIGHT": "5"}).invoke(app, ["flag", "--width", "2", "--colours", "red"])
    assert done.exit_code == 0, done.output
    assert seen == {
        "name": "flag",
        "drawing": Drawing(colours=["red"], size=Size(width=2, height=5)),
        "quiet": False,
        "typed": {"name", "width", "colours"},
    }


def test_defaults_and_required_options_are_those_of_the_fields(drawn):
    seen, app = drawn
    assert CliRunner().invoke(app, ["flag"]).exit_code == 2
    assert CliRunner().invoke(app, ["flag", "--width", "2"]).exit_code == 0
    assert seen["drawing"] == Drawing(size=Size(width=2))


def test_help_lists_options_in_the_order_of_fields_under_the_panel_of_their_dataclass(drawn):
    _, app = drawn
    said = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["--help"]).output
    marks = ("─ Options", "--colours", "default: red, blue", "--quiet", "─ Size", "--width")
    places = [said.index(each) for each in (*marks, "--height")]
    assert places == sorted(places)


def test_two_options_of_one_name_are_a_mistake_of_the_program():
    def command(size: Size, width: Annotated[int, typer.Option()] = 1) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        App().command()(command)
