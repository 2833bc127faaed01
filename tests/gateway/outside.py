"""Programs that speak OpenAI's API, against a mesh: LangChain, and guidellm as a load generator.

``make outside`` makes them an environment of their own, since guidellm brings two gigabytes, and
runs this. Their commands are given by the paths of their interpreters' folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.processes import Processes
from tests.e2e.test_gateway_chat import TEMPLATE

from specmesh import models

LANGCHAIN = """
import json, sys
from langchain_openai import ChatOpenAI, OpenAI

url, model = sys.argv[1:]
chat = ChatOpenAI(model=model, base_url=url, api_key="any", temperature=0.8, seed=7, max_tokens=16)
whole = chat.invoke([("system", "Write Python."), ("user", "def f(x):")])
parts = list(chat.stream([("system", "Write Python."), ("user", "def f(x):")]))
text = OpenAI(model=model, base_url=url, api_key="any", temperature=0, max_tokens=16).invoke("def ")
assert "".join(part.content for part in parts) == whole.content != ""
assert whole.usage_metadata["output_tokens"] > 0
assert whole.response_metadata["finish_reason"] in {"stop", "length"}
assert text
print("LangChain:", json.dumps([whole.content, whole.usage_metadata["total_tokens"], text]))
"""
NUM_REQUESTS = 16


def langchain(python: Path, url: str) -> None:
    """Its chat and completion models, streaming and not."""
    subprocess.run([python, "-c", LANGCHAIN, f"{url}/v1", models.TARGET], check=True)


def guidellm(program: Path, url: str, folder: Path) -> None:
    """Some requests at once, all of which must succeed."""
    report = folder / "report.json"
    backend = f"kind=openai_http,target={url},model={models.TARGET}"
    subprocess.run(
        [
            *(program, "run", "--disable-progress"),
            *("--backend", f"{backend},request_format=/v1/completions"),
            *("--tokenizer", f"kind=hf_auto,model={models.path(models.TARGET)}"),
            *("--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=16"),
            *("--profile", "kind=concurrent,streams=4"),
            *("--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
            *("--output", f"kind=json,path={report}"),
        ],
        check=True,
    )
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (NUM_REQUESTS, 0), totals
    print("guidellm:", json.dumps(totals))  # noqa: T201


def main(programs: Path) -> None:
    """Run both, of the environment whose ``bin`` is ``programs``."""
    with TemporaryDirectory() as name, Processes() as own:
        template = Path(name) / "template.jinja"
        template.write_text(TEMPLATE, encoding="utf-8")
        verifier = own.verifier("--chat-template", str(template))
        orchestrator = own.orchestrator([verifier], [own.drafter()])
        gateway = own.service("gateway", "--orchestrators", orchestrator.address)
        url = f"http://{gateway.address}"
        langchain(programs / "python", url)
        guidellm(programs / "guidellm", url, Path(name))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
