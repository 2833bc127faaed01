"""Programs that speak OpenAI's API, against a gateway over a real mesh.

``make outside`` makes them environments of their own, since guidellm and vLLM bring 2 GB each, and
runs this with the ``bin`` of each. Further arguments name the programs to run, of all of them.
``docs/clients.md`` lists what was tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.conftest import CHAT_TEMPLATE
from tests.e2e.processes import Processes
from tests.gateway.outside import by_guidellm, by_lm_eval, by_vllm
from tests.orchestrator.tool_templates import HERMES

from specmesh import models

PROGRAMS = Path(__file__).parent / "programs"


def main(programs: Path, instructor: Path, vllm: Path, *chosen: str) -> None:
    """Run those that are chosen, or all, from the environments with these ``bin``."""
    with TemporaryDirectory() as name, Processes() as own:
        folder = Path(name)
        template = folder / "template.jinja"
        template.write_text(CHAT_TEMPLATE, encoding="utf-8")
        verifier = own.verifier("--chat-template", str(template))
        orchestrator = own.orchestrator([verifier], [own.drafter()])
        gateway = own.service("gateway", "--orchestrators", orchestrator.address)
        url = f"http://{gateway.address}"

        alone = ("--strategy", "autoregressive")
        calling = own.orchestrator([own.scripted_verifier(HERMES)], [], *alone)
        caller = own.service("gateway", "--orchestrators", calling.address)

        tools = folder / "tools.jinja"
        tools.write_text(HERMES, encoding="utf-8")
        forced = own.orchestrator([own.verifier("--chat-template", str(tools))], [own.drafter()])
        forcing = own.service("gateway", "--orchestrators", forced.address)

        def asking(program: str, *server: str, by: Path = programs) -> None:
            asked = server or (url, models.TARGET)
            command = [by / "python", PROGRAMS / f"ask_{program}.py", *asked]
            # LiteLLM's list of prices is no use here, and would be fetched.
            offline = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            subprocess.run(command, env=offline, check=True)

        runs: dict[str, Callable[[], None]] = {
            "langchain": lambda: asking("by_langchain"),
            "litellm": lambda: asking("by_litellm"),
            "langgraph": lambda: asking("by_langgraph"),
            "responses": lambda: asking("by_responses"),
            "tools": lambda: asking("with_tools", f"http://{caller.address}", "scripted"),
            "agents": lambda: asking("by_agents", f"http://{caller.address}", "scripted"),
            "structures": lambda: asking(
                *("for_structures", f"http://{forcing.address}", models.TARGET), by=instructor
            ),
            "lm-eval": lambda: by_lm_eval.run(programs / "lm_eval", url, folder),
            "vllm": lambda: by_vllm.run(vllm / "python", url, folder),
            "guidellm": lambda: by_guidellm.run(programs / "guidellm", url, folder),
        }
        for each in chosen or runs:
            runs[each]()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), *sys.argv[4:])
