"""``specmesh profile`` or ``python -m specmesh.tools.profile``."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from specmesh import models
from specmesh.cli.connection import Credentials
from specmesh.cli.exit_status import ExitStatus
from specmesh.cli.local.cores import pinned_to
from specmesh.cli.local.mesh import LocalMesh, MeshOptions
from specmesh.cli.local.model_options import HeadsFolder, PairOptions
from specmesh.cli.local.options import Threads
from specmesh.cli.output_files import writable
from specmesh.cli.runner import run, until_signalled
from specmesh.cli.silence import lines
from specmesh.client import AsyncClient
from specmesh.decoding.errors import InvalidField
from specmesh.serving.identity.certificates import Certificate, TlsFiles, watched_certificate
from specmesh.serving.identity.watched import UnusableFile
from specmesh.serving.process.typer_app import App
from specmesh.tools.kit.experiment import SEED, TEMPERATURES
from specmesh.tools.kit.options import Json, Seed, Temperatures
from specmesh.tools.kit.progress import duration
from specmesh.tools.profile.choose import expectations
from specmesh.tools.profile.file import Profile, read_profile
from specmesh.tools.profile.measure.orchestrator import serving
from specmesh.tools.profile.measure.prompts import parted
from specmesh.tools.profile.measure.replicas import connected, connected_in
from specmesh.tools.profile.predict import CONTEXT
from specmesh.tools.profile.report import as_json, explanation, show
from specmesh.tools.profile.run import NUM_PROMPTS, NUM_TOKENS, SECONDS, ProfilePlan, measure
from specmesh.tools.simulate.options import finite

app = App(
    no_args_is_help=True,
    help="Measure the costs of a mesh's forwards and hops, and choose a strategy by them.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """The extent of the measurements, and the file for their profile."""

    seconds: Annotated[
        float, typer.Option(min=1, help="Approximate time to measure; a slow mesh takes longer.")
    ] = SECONDS
    prompts: Annotated[
        int, typer.Option(min=1, help="Maximum number of held-out prompts for acceptance.")
    ] = NUM_PROMPTS
    tokens: Annotated[int, typer.Option(min=8, help="Tokens of each answer to them.")] = NUM_TOKENS
    temperature: Temperatures = None
    seed: Seed = SEED
    output: Annotated[
        Path | None,
        typer.Option(
            help="File to write the profile to.",
            show_default="standard output",
            callback=writable,
        ),
    ] = None

    def plan(self) -> ProfilePlan:
        """Return what to measure."""
        texts, _ = parted(models.heldout_prompts(2 * NUM_PROMPTS), self.seed)
        return ProfilePlan(
            texts[: self.prompts],
            tuple(dict.fromkeys(self.temperature or TEMPERATURES)),
            self.tokens,
            self.seconds,
            self.seed,
        )


@app.command()
def local(
    *,
    pair: PairOptions,
    heads: HeadsFolder = None,
    threads: Threads = 1,
    measuring: MeasureOptions,
) -> None:
    """Start a mesh on this machine and measure its target, heads and drafter."""
    plan = measuring.plan()
    options = MeshOptions(models=pair.real_models(threads, heads), threads=threads, drain_s=1.0)
    mesh = LocalMesh(options, Path(mkdtemp(prefix="specmesh-")), _say)

    async def work() -> int:
        # Otherwise the client would sometimes compete with the target.
        with pinned_to(mesh.placement.rest):
            async with (
                mesh,
                connected_in(mesh.addresses) as replicas,
                AsyncClient(mesh.address) as client,
            ):
                placed = replace(plan, placement=mesh.placement)
                with _telling(measuring.seconds):
                    profile = await measure(replicas, client, placed, _say)
        return _write(profile, measuring.output)

    run(until_signalled(work(), mesh.kill))


@app.command()
def mesh(
    verifier: Annotated[str, typer.Option(help="Address of a replica of the target, host:port.")],
    drafter: Annotated[
        str | None, typer.Option(help="Address of a drafter, host:port.", show_default="none")
    ] = None,
    orchestrator: Annotated[
        str | None,
        typer.Option(help="Address of an orchestrator, host:port, to measure its time, too."),
    ] = None,
    *,
    credentials: Credentials,
    measuring: MeasureOptions,
) -> None:
    """Measure a running mesh, which should be idle otherwise.

    With TLS, verifier and drafter are called with an orchestrator's certificate, and the
    orchestrator with the token.
    """
    plan = measuring.plan()
    certificate = _certificate(credentials)

    async def work() -> int:
        async with connected(verifier, drafter, certificate) as replicas:
            if orchestrator is None:
                with _telling(measuring.seconds):
                    profile = await measure(replicas, None, plan, _say)
            else:
                without = replace(credentials, tls_cert=None, tls_key=None)
                called = without.client_options([orchestrator])
                async with (
                    AsyncClient(orchestrator, **called) as client,
                    serving(client, orchestrator, replicas.verifier),
                ):
                    with _telling(measuring.seconds):
                        profile = await measure(replicas, client, plan, _say)
        return _write(profile, measuring.output)

    run(work())


@app.command()
def choose(
    profile: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Profile to choose by.")
    ],
    streams: Annotated[int, typer.Option(min=1, max=64, help="Number of concurrent answers.")] = 1,
    temperature: Annotated[
        float, typer.Option(min=0, callback=finite, help="Temperature of the answers.")
    ] = 0.0,
    context: Annotated[
        int, typer.Option(min=1, help="Mean number of tokens before the next one.")
    ] = CONTEXT,
    explain: Annotated[bool, typer.Option("--explain", help="Print all candidates.")] = False,
    json_: Json = False,
) -> None:
    """Choose the strategy and options with the most expected tokens per second."""
    read = read_profile(profile, "PROFILE")
    if not read.acceptance and (read.costs.drafters or read.costs.heads):
        why = f"{profile}: acceptance: is empty, since measuring was stopped too early"
        raise typer.BadParameter(why, param_hint="PROFILE")
    if not read.complete:
        _say("Measuring was stopped early: some ways may not have been tried.")
    for role, error in read.inaccurate.items():
        _say(f"The times of {role} are off by {error:.0%} in the median: another may be faster.")
    expected = expectations(
        read.acceptance, read.costs, streams=streams, temperature=temperature, context=context
    )
    if json_:
        found = {
            "chosen": as_json(expected[:1])[0],
            "of": as_json(expected),
            "complete": read.complete,
            "inaccurate": read.inaccurate,
        }
        typer.echo(json.dumps(found))
        return
    if explain:
        Console().print(explanation(expected, streams, temperature))
    typer.echo(f"--strategy {expected[0].acceptance.way.text}")


def _certificate(given: Credentials) -> Certificate | None:
    ca, cert, key = given.tls_ca, given.tls_cert, given.tls_key
    if not (ca or cert or key):
        return None
    if not (ca and cert and key):
        raise typer.BadParameter("--tls-ca, --tls-cert and --tls-key must be given together")
    try:
        return watched_certificate(TlsFiles(cert, key, ca)).current()
    except UnusableFile as error:
        raise typer.BadParameter(str(error)) from error


def _telling(seconds: float) -> AbstractContextManager[None]:
    """Print now and then how far measuring has got."""
    return lines(
        lambda elapsed_s: f"{duration(elapsed_s)} of about {duration(seconds)}",
        Console(stderr=True),
    )


def _write(profile: Profile, output: Path | None) -> int:
    """Write the profile, unless readers would refuse it; return the exit status."""
    try:
        Profile.from_json(profile.to_json())
    except InvalidField as error:
        _say(f"specmesh: too little was measured for a profile ({error}): give more --seconds")
        return ExitStatus.FAILED
    if output is None:
        typer.echo(profile.to_json())
    else:
        output.write_text(profile.to_json() + "\n", encoding="utf-8")
        show(profile, Console())
        typer.echo(f"written to {output}; see: specmesh profile choose {output} --explain")
    if profile.complete:
        return ExitStatus.OK
    _say("stopped early: the profile has what was measured until then")
    return ExitStatus.INTERRUPTED


def _say(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    app(prog_name="specmesh profile")
