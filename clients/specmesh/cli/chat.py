"""``specmesh chat``: a conversation, by the model's own template."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console

from specmesh.cli.connection import (
    Targets,
    TlsCa,
    TlsCert,
    TlsKey,
    TokenPath,
    client_options,
)
from specmesh.cli.exit_status import ExitStatus, status_of
from specmesh.cli.input import input_lines
from specmesh.cli.output import in_words
from specmesh.cli.request import (
    MaxTokens,
    Mode,
    ModelName,
    Seed,
    Stops,
    StrategyName,
    StrategyOptions,
    Temperature,
    Timeout,
    TopK,
    TopP,
    strategy_options,
)
from specmesh.cli.runner import explain
from specmesh.client import ChatMessage, Client, SpecmeshError
from specmesh.client.addresses import DEFAULT_TARGET

HELP = "/reset begins anew, /exit or Ctrl-D ends, Ctrl-C stops an answer"


def chat(
    target: Targets = [DEFAULT_TARGET],  # noqa: B006 - typer copies it
    system: Annotated[str, typer.Option(help="What the model is told at first.")] = "",
    model: ModelName = "",
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    mode: Mode = None,
    stop: Stops = None,
    strategy: StrategyName = "",
    option: StrategyOptions = None,
    timeout: Timeout = None,
    content_as_text: Annotated[
        bool,
        typer.Option(
            "--content-as-text",
            help="Take special tokens that a message spells, such as <|im_end|>, as text.",
        ),
    ] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Say what each answer took.")] = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: TokenPath = None,
) -> None:
    """Talk with a model that has a chat template; a message a line."""
    options: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "acceptance_mode": mode,
        "stop_strings": stop or (),
        "strategy": strategy,
        "timeout_s": timeout,
        "content_as_text": content_as_text,
        **strategy_options(option or ()),
    }
    connection = client_options(target, tls_ca, tls_cert, tls_key, token_file)
    with Client(*target, **connection) as client:
        status = Conversation(client, system, options, stats=stats).run()
    raise typer.Exit(status)


class Conversation:
    """Reads messages from standard input and prints the answers, until either ends."""

    def __init__(
        self, client: Client, system: str, options: Mapping[str, Any], *, stats: bool = False
    ) -> None:
        self._client = client
        self._options = options
        self._stats = stats
        self._beginning = [ChatMessage("system", system)] if system else []
        self._messages = list(self._beginning)
        self._is_watched = sys.stdin.isatty()

    def run(self) -> ExitStatus:
        """Talk to the end of the input. Where nobody watches, the first error ends it."""
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
        with suppress(ImportError):  # not on every system; gives input() a history
            import readline  # noqa: F401
        with suppress(EOFError):
            while True:
                try:
                    yield input("> ")
                except KeyboardInterrupt:
                    typer.echo()
                except UnicodeDecodeError:
                    typer.echo("specmesh: that is not UTF-8", err=True)

    def _exchange(self, line: str) -> ExitStatus:
        """Say ``line`` and print the answer. A message that got none is taken back."""
        messages = [*self._messages, ChatMessage("user", line)]
        stream = self._client.chat(messages, **self._options)
        try:
            for chunk in stream:
                typer.echo(chunk.text, nl=False)
            typer.echo()
        except KeyboardInterrupt:
            typer.echo()  # what was said stays part of the conversation
        except SpecmeshError as error:
            typer.echo(f"specmesh: {explain(error)}", err=True)
            return status_of(error)
        else:
            if self._stats:
                Console(stderr=True, highlight=False).print(in_words(stream.result), style="dim")
        self._messages = [*messages, ChatMessage("assistant", stream.text)]
        return ExitStatus.OK
