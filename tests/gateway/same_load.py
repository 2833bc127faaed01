"""The same load by guidellm and by ``specmesh load``, in turns: do they measure the same?

Run by ``make outside`` with the ``bin`` of guidellm's environment. Prompts come from one source,
each of them once, so that no cache favours whoever asks last.

Whoever sends the load also takes processor time from the mesh on the same two cores, and not the
same. So each program's means are compared with what the gateway itself measured of the same
requests, and their ratios with each other.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

from tests.e2e.processes import Processes
from tests.scraping import scrape

from specmesh import models

RATE = 4
NUM_REQUESTS = 100
NUM_TURNS = 3
OUTPUT_TOKENS = 16
WITHIN = 0.05
WORDS = ("def", "return", "self", "import", "class", "value", "index", "name", "path", "read")

Figures = dict[str, float]
"""Mean TTFT and end-to-end latency in ms, and tokens a second."""
GATEWAY_METRICS = {
    "ttft_ms": "specmesh_gateway_time_to_first_tokens_seconds",
    "e2e_ms": "http_server_request_duration_seconds",
}
COMPLETIONS = "/v1/completions"
"""The route that both programs ask."""


def write_prompts(file: Path) -> None:
    """Prompts that were never asked, with both programs' names for how long answers are."""
    rng = random.SystemRandom()
    lines = [
        {
            "prompt": " ".join([f"{rng.getrandbits(40):x}", *rng.choices(WORDS, k=24)]),
            "output_tokens_count": OUTPUT_TOKENS,
            "max_tokens": OUTPUT_TOKENS,
        }
        for _ in range(NUM_REQUESTS)
    ]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


def by_guidellm(program: Path, url: str, prompts: Path) -> Figures:
    """What guidellm measures."""
    report = prompts.with_name("guidellm.json")
    backend = f"kind=openai_http,target={url},model={models.TARGET},request_format=/v1/completions"
    subprocess.run(
        [
            *(program, "run", "--disable-console"),
            *("--backend", f"{backend},stream=true"),
            *("--tokenizer", f"kind=hf_auto,model={models.path(models.TARGET)}"),
            *("--data", f"kind=json_file,path={prompts}"),
            *("--profile", f"kind=constant,rate={RATE}"),
            *("--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
            *("--output", f"kind=json,path={report}"),
        ],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    assert benchmark["metrics"]["request_totals"]["errored"] == 0
    requests = benchmark["requests"]["successful"]
    timings = [request["info"]["timings"] for request in requests]
    spans = [(each["request_start"], each["request_end"]) for each in timings]
    return figures(
        [request["time_to_first_token_ms"] for request in requests],
        [request["request_latency"] * 1e3 for request in requests],
        spans,
        sum(request["output_tokens"] for request in requests),
    )


def by_specmesh(url: str, prompts: Path) -> Figures:
    """What ``specmesh load`` measures."""
    report = prompts.with_name("specmesh.json")
    subprocess.run(
        [
            *(sys.executable, "-m", "specmesh.load", "run", "--openai", f"{url}/v1"),
            *("--model", models.TARGET, "--prompts", prompts, "--ignore-end"),
            *("--arrivals", "constant", "--rate", str(RATE)),
            *("--duration", f"{NUM_REQUESTS / RATE}s", "--warm-up", "0s", "--cool-down", "0s"),
            *("--json", report),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    result = json.loads(report.read_text())["result"]
    assert result["counts"]["failed"] == 0, result["errors"]
    requests = result["requests"]
    spans = [
        (due_s, due_s + e2e_ms / 1e3)
        for due_s, e2e_ms in zip(requests["due_s"], requests["e2e_ms"], strict=True)
    ]
    return figures(requests["ttft_ms"], requests["e2e_ms"], spans, sum(requests["output_tokens"]))


def figures(
    ttft_ms: list[float], e2e_ms: list[float], spans: list[tuple[float, float]], num_tokens: int
) -> Figures:
    """By one formula for both; ``spans`` are when requests began and ended, in seconds."""
    seconds = max(end for _, end in spans) - min(start for start, _ in spans)
    return {
        "ttft_ms": fmean(ttft_ms),
        "e2e_ms": fmean(e2e_ms),
        "tokens_per_s": num_tokens / seconds,
    }


class GatewayMeans:
    """The means of the requests between two readings, as the gateway measured them."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._totals = self._read()

    def since_last(self) -> Figures:
        """Return the mean times in ms, in the process, of the requests since the last call."""
        before, self._totals = self._totals, self._read()
        return {
            name: (seconds - before[name][0]) / (num - before[name][1]) * 1e3
            for name, (seconds, num) in self._totals.items()
        }

    def _read(self) -> dict[str, tuple[float, float]]:
        """Return the sum in seconds and the count of each time."""
        scraped = asyncio.run(scrape(self._address))
        totals = {}
        for name, metric in GATEWAY_METRICS.items():
            sums, counts = (
                scraped.all(f"{metric}_{each}", http_route=COMPLETIONS) for each in ("sum", "count")
            )
            totals[name] = sum(each.value for each in sums), sum(each.value for each in counts)
        return totals


def main(programs: Path) -> None:
    """Print both, and the ratio; exit with 1 if TTFT or throughput differ by more than 5 %."""
    with TemporaryDirectory() as name, Processes() as own:
        orchestrator = own.orchestrator([own.verifier()], [own.drafter()])
        flags = ("--orchestrators", orchestrator.address, "--metrics-address", "0")
        gateway = own.service("gateway", *flags)
        url, prompts = f"http://{gateway.address}", Path(name) / "prompts.jsonl"
        measure: dict[str, Callable[[], Figures]] = {
            "guidellm": lambda: by_guidellm(programs / "guidellm", url, prompts),
            "specmesh": lambda: by_specmesh(url, prompts),
        }
        found: dict[str, list[Figures]] = {tool: [] for tool in measure}
        means = GatewayMeans(gateway.wait_event("metrics")["address"])
        for turn in range(NUM_TURNS + 1):
            for tool in random.sample(list(measure), k=2):
                write_prompts(prompts)
                figures_of_tool, of_gateway = measure[tool](), means.since_last()
                if not turn:  # the mesh learns its latencies
                    continue
                for metric, ms in of_gateway.items():
                    figures_of_tool[f"gateway_{metric}"] = ms
                    figures_of_tool[f"{metric}_over_gateway"] = figures_of_tool[metric] / ms
                found[tool].append(figures_of_tool)
    medians = {
        tool: {name: median(each[name] for each in taken) for name in taken[0]}
        for tool, taken in found.items()
    }
    ratios = {
        name: medians["specmesh"][name] / value for name, value in medians["guidellm"].items()
    }
    print(json.dumps({**medians, "specmesh_over_guidellm": ratios}))  # noqa: T201
    if any(abs(ratios[name] - 1) > WITHIN for name in ("ttft_ms_over_gateway", "tokens_per_s")):
        sys.exit(f"they differ by more than {WITHIN:.0%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
