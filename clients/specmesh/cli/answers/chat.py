"""``specmesh chat``, a conversation through the model's own template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import typer
from grpc import StatusCode
from rich.console import Console

from specmesh.cli.answers.input import input_lines, standard_input
from specmesh.cli.answers.options import RequestOptions
from specmesh.cli.answers.output import cut_off, in_words, is_cut_off
from specmesh.cli.answers.request import named
from specmesh.cli.answers.waiting import Waiting
from specmesh.cli.connection import Credentials, Targets
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.runner import explain
from specmesh.client import ChatMessage, Client, FailedPrecondition, ServedModel, SpecmeshError
from specmesh.client.connections.addresses import DEFAULT_TARGET

HELP = "/reset starts over, /exit or Ctrl-D quits, Ctrl-C stops an answer"


def chat(
    target: Targets = [DEFAULT_TARGET],  # noqa: B006 - typer copies it
    system: Annotated[str, typer.Option(help="Begin with this system message.")] = "",
    *,
    request: RequestOptions,
    content_as_text: Annotated[
        bool,
        typer.Option(
            "--content-as-text",
            help="Treat special tokens spelled out in a message, such as <|im_end|>, as text.",
        ),
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Print the statistics of each answer.")
    ] = False,
    credentials: Credentials,
) -> None:
    """Chat with a model that has a chat template, one line per message."""
    standard_input()  # If it is closed, no call is made.
    options = {**request.arguments, "content_as_text": content_as_text}
    connection = credentials.client_options(target)
    waiting, explained = Waiting(), partial(explain, targets=target, tls=connection["tls"])
    with Client(*target, hooks=waiting.hooks, **connection) as client:
        try:
            served = client.list_models()
            request.check(served)
            model = named(served, request.model)
            _check_template(model)
        except SpecmeshError as error:
            status, message = explained(error)
            typer.echo(f"specmesh: {message}", err=True)
            raise typer.Exit(status) from None
        status = ChatLoop(client, model, system, options, waiting, explained, stats=stats).run()
    raise typer.Exit(status)


def _check_template(model: ServedModel | None) -> None:
    """Raise FailedPrecondition, as the first message would, if ``model`` has no chat template."""
    if model is not None and not model.has_chat_template:
        name = model.target.name
        raise FailedPrecondition(
            f"the model {name!r} has no chat template",
            code=StatusCode.FAILED_PRECONDITION,
            reason="NO_CHAT_TEMPLATE",
            metadata={"model": name},
        )


class ChatLoop:
    """A conversation: messages from standard input, answers on standard output."""

    def __init__(
        self,
        client: Client,
        model: ServedModel | None,
        system: str,
        options: Mapping[str, Any],
        waiting: Waiting,
        explained: Callable[[SpecmeshError], tuple[ExitStatus, str]],
        *,
        stats: bool = False,
    ) -> None:
        self._client = client
        self._model = model
        self._options = options
        self._waiting = waiting
        self._explained = explained
        self._stats = stats
        self._beginning = [ChatMessage("system", system)] if system else []
        self._messages = list(self._beginning)
        self._is_watched = standard_input().isatty()

    def run(self) -> ExitStatus:
        """Answer messages until the input ends or, if it is not a terminal, at the first error."""
        if self._is_watched:
            typer.echo(HELP, err=True)
        for line in self._lines():
            match line.strip():
                case "":
                    continue
                case "/exit":
                    break
                case "/reset":
                    self._messages = list(self._beginning)
                    continue
            status = self._exchange(line)
            if status is not ExitStatus.OK and not self._is_watched:
                return status
        return ExitStatus.OK

    def _lines(self) -> Iterator[str]:
        if not self._is_watched:
            yield from input_lines()
            return
        with suppress(ImportError):  # gives input() a history; not every system has it
            import readline  # noqa: F401
        with suppress(EOFError):
            while True:
                try:
                    yield input("> ")
                except KeyboardInterrupt:
                    typer.echo()
                except UnicodeDecodeError:
                    typer.echo("specmesh: the line is not UTF-8", err=True)

    def _exchange(self, line: str) -> ExitStatus:
        """Send ``line`` and print the answer; a message whose answer fails is dropped again."""
        messages = [*self._messages, ChatMessage("user", line)]
        stream = self._client.chat(messages, **self._options)
        self._waiting.begin()
        try:
            for chunk in stream:
                typer.echo(chunk.text, nl=False)
                self._waiting.came(chunk.text)
            typer.echo()
        except KeyboardInterrupt:
            typer.echo()
            if not self._is_watched:
                raise
            # The partial answer stays part of the conversation.
        except SpecmeshError as error:
            self._waiting.end_line()
            if stream.text:
                error.add_note("the answer is incomplete")
            status, message = self._explained(error)
            typer.echo(f"specmesh: {message}", err=True)
            return status
        else:
            if is_cut_off(stream.result, self._options["max_tokens"]):
                typer.echo(cut_off(stream.result, self._model), err=True)
            if self._stats:
                Console(stderr=True, highlight=False).print(in_words(stream.result), style="dim")
        self._messages = [*messages, stream.message]
        return ExitStatus.OK
