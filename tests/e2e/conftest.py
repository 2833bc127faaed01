"""One mesh for all tests that break nothing; for the others, processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import openai
import pytest
import pytest_asyncio
from tests.e2e.processes import Process, Processes
from tests.install.conftest import shared_folder  # noqa: F401 - a fixture

from specmesh import models
from specmesh.client import AsyncClient

NUM_TAIL_LINES = 30
CHAT_TEMPLATE = """
{%- for message in messages %}
    {{- '# ' + message.role + '\\n' + message.content + eos_token + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '# assistant\\n' }}{% endif %}
"""


@dataclass(frozen=True, slots=True)
class Mesh:
    """Two replicas of the target with heads, a drafter, Redis and an orchestrator."""

    processes: Processes
    redis_url: str
    verifiers: Sequence[Process]
    drafter: Process
    orchestrator: Process


@pytest.fixture(scope="session")
def mesh() -> Iterator[Mesh]:
    """Shared by the whole session: a test that kills or drains brings its own victim."""
    with Processes() as processes:
        _, redis_url = processes.redis()
        flags = ("--redis-url", redis_url)
        heads = ("--heads", str(models.path(models.HEADS)))
        verifiers = [processes.verifier(*flags, *heads) for _ in range(2)]
        drafter = processes.drafter(*flags)
        orchestrator = processes.orchestrator(verifiers, [drafter], *flags)
        assert orchestrator.address
        yield Mesh(processes, redis_url, verifiers, drafter, orchestrator)


@pytest.fixture
def processes() -> Iterator[Processes]:
    """What a test starts for itself."""
    with Processes() as own:
        yield own


@pytest_asyncio.fixture
async def client(mesh: Mesh) -> AsyncIterator[AsyncClient]:
    """Talks to the shared mesh."""
    async with AsyncClient(mesh.orchestrator.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def chat_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The orchestrator of a mesh whose model has a chat template."""
    file = tmp_path_factory.mktemp("chat") / "template.jinja"
    file.write_text(CHAT_TEMPLATE, encoding="utf-8")
    with Processes() as own:
        verifier = own.verifier("--chat-template", str(file))
        yield own.orchestrator([verifier], [own.drafter()])


@pytest.fixture(scope="session")
def chat_gateway(chat_mesh: Process) -> Iterator[Process]:
    """A gateway before ``chat_mesh``."""
    with Processes() as own:
        yield own.service("gateway", "--orchestrators", chat_mesh.address)


@pytest.fixture(scope="module")
def url(orchestrator: Process) -> Iterator[str]:
    """The address of a gateway before the module's own ``orchestrator``."""
    with Processes() as own:
        gateway = own.service("gateway", "--orchestrators", orchestrator.address)
        yield f"http://{gateway.address}/v1"


@pytest_asyncio.fixture
async def gateway(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's own client of that gateway."""
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    """The beginnings of code that neither model has seen."""
    return [prompt.text for prompt in models.heldout_prompts()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the end of every log below a failed test."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {}).values()
        for owner in (getattr(value, "processes", value) for value in used):
            for process in owner.started if isinstance(owner, Processes) else ():
                tail = process.output.splitlines()[-NUM_TAIL_LINES:]
                report.sections.append((f"log of {process.name}", "\n".join(tail)))
    return report
