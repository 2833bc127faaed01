"""``make k8s-smoke``: k8s/overlays/podman on real containers, broken and rolled out under load.

As root on Debian 12. Prints each step with its outcome, ends with status 1 at the first that fails,
and removes all pods, networks, volumes and files that it made; images and downloaded wheels stay.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exc

import yaml
from tests.k8s.tools import K8S, kustomize
from tests.k8s_smoke import certs, clients, images
from tests.k8s_smoke.cut import cut_off
from tests.k8s_smoke.load import PROMPTS, STRATEGIES, Answers, Load, write_prompts
from tests.k8s_smoke.playable import NAME, Object, workloads
from tests.k8s_smoke.podman import logs, podman, quietly
from tests.k8s_smoke.pods import Mesh, wait_until
from tests.k8s_smoke.steps import say, step

ROLES = ("verifier", "drafter", "confidence", "orchestrator", "gateway")
PROMPT = "def read_config(path):"
CUT_S = 10.0


class Wrong(Exception):
    """The mesh did what it must not."""


def rendered(overlay: str) -> list[Object]:
    """The objects of an overlay."""
    return list(yaml.safe_load_all(kustomize(K8S / "overlays" / overlay)))


class Smoke:
    """The mesh of the overlay ``podman``, and what is done to it."""

    def __init__(self, mesh: Mesh, folder: Path) -> None:
        self.mesh = mesh
        self.certs = folder / "certs"
        self.folder = folder / "load"
        self.folder.mkdir()
        os.chown(self.folder, certs.USER, certs.USER)
        write_prompts(self.folder / "prompts.txt")
        self.undisturbed: Answers
        self.load: Load
        self.text = ""

    def start(self) -> str:
        """All pods, each ready."""
        self.mesh.start("redis", *ROLES)
        pods = [pod for each in self.mesh.pods.values() for pod in each]
        return ", ".join(f"{pod.name} {pod.address}" for pod in pods)

    def answer_over_mtls(self) -> str:
        """The SDK gets one text by every strategy; who has no certificate gets nothing."""
        options = ("--max-tokens", "32", "--strategy")
        answers = {
            each: clients.generate(
                self.mesh.network, self.certs, "dns:///orchestrator:50051", PROMPT, *options, each
            )
            for each in (*STRATEGIES, "filter")
        }
        texts = {answers[each]["text"] for each in STRATEGIES}
        if len(texts) != 1 or not answers["filter"]["text"]:
            raise Wrong(f"strategies say different things: {texts}")
        for orchestrator in self.mesh.pods["orchestrator"]:
            if not clients.refuses_strangers(orchestrator, self.certs):
                raise Wrong(f"{orchestrator.name} answers callers without a certificate")
        (self.text,) = texts
        return f"{len(answers)} strategies, {len(self.text)} characters; strangers are refused"

    def answer_by_gateway(self) -> str:
        """OpenAI's API over HTTPS says the same."""
        asked = {"model": "simulated-target", "prompt": PROMPT, "max_tokens": 32, "temperature": 0}
        url = "https://gateway:8080/v1/completions"
        told = clients.post(self.mesh.network, self.certs, url, asked)
        text = told["choices"][0]["text"]
        if text != self.text:
            raise Wrong(f"the gateway says {text!r}, not {self.text!r}")
        return "the same text"

    def learn_answers(self) -> str:
        """What is said to each prompt while nothing happens."""
        load = Load(self.mesh.network, self.certs, self.folder, "calm", "--requests", "80")
        self.undisturbed = answers = load.end(180)
        several = [n for n, said in answers.texts.items() if len(said) != 1]
        if several or len(answers.texts) != PROMPTS or answers.counts.get("failed"):
            raise Wrong(f"{answers.counts}, {answers.errors}, unequal answers to {several}")
        return f"{answers.counts['answered']} answers to {PROMPTS} prompts, equal to equal ones"

    def begin_load(self) -> str:
        """20 users, from here on until the end."""
        network = self.mesh.network
        self.load = Load(network, self.certs, self.folder, "storm", "--duration", "1h")
        seconds = wait_until("20 answers under way", lambda: self.num_running() >= 15, 60)
        return f"{self.num_running():.0f} answers under way after {seconds:.0f} s"

    def kill_verifier(self) -> str:
        """SIGKILL, amid its calls; podman starts it again, as the kubelet would."""
        victim = self.mesh.pods["verifier"][0]
        os.kill(victim.process, signal.SIGKILL)
        wait_until("a restart", lambda: victim.num_restarts > 0, 30)
        seconds = wait_until(f"{victim.name} ready", victim.is_ready, 60)
        self.await_verifiers(3)
        self.load.check_running()
        return f"{victim.name} ready again after {seconds:.1f} s"

    def cut_off_verifier(self) -> str:
        """Its packets are dropped for ten seconds, then no more."""
        victim = self.mesh.pods["verifier"][1]
        began = time.monotonic()
        with cut_off(victim):
            noticed_s = self.await_verifiers(2)
            time.sleep(max(0.0, CUT_S - (time.monotonic() - began)))
        healed_s = self.await_verifiers(3)
        self.load.check_running()
        return (
            f"{victim.name} dropped all: both orchestrators noticed after {noticed_s:.1f} s, "
            f"and call it again {healed_s:.1f} s after it was healed"
        )

    def roll(self, role: str) -> str:
        """New pods come before old ones go."""
        before = [pod.name for pod in self.mesh.pods[role]]
        took = self.mesh.roll(role)
        after = [pod.name for pod in self.mesh.pods[role]]
        self.await_verifiers(3)
        self.load.check_running()
        ends = ", ".join(f"{each:.1f} s" for each in took)
        return f"{', '.join(before)} -> {', '.join(after)}; old ones ended after {ends}"

    def judge(self) -> str:
        """No answer failed, none is another than in calm."""
        answers = self.load.stop()
        altered = answers.altered(self.undisturbed)
        if answers.counts.get("failed") or answers.errors or altered:
            raise Wrong(f"{answers.counts}, {answers.errors}, altered answers to {altered}")
        latency = answers.report["result"]["latency"]
        return (
            f"{answers.counts['answered']} answers, 0 failed, 0 altered, "
            f"{answers.counts['resumed']} carried on by another orchestrator; TTFT p50 "
            f"{latency['ttft_ms']['p50']:.0f} ms, p99 {latency['ttft_ms']['p99']:.0f} ms; end to "
            f"end p50 {latency['e2e_ms']['p50']:.0f} ms, p99 {latency['e2e_ms']['p99']:.0f} ms"
        )

    def num_running(self) -> float:
        """Answers at work in all orchestrators."""
        pods = self.mesh.pods["orchestrator"]
        return sum(clients.metric(each, "specmesh_requests_running") for each in pods)

    def await_verifiers(self, count: int) -> float:
        """Wait until every orchestrator would call so many; returns for how long."""

        def seen() -> bool:
            labels = {"specmesh_role": "verifier", "specmesh_state": "ready"}
            pods = self.mesh.pods["orchestrator"]
            return all(clients.metric(p, "specmesh_replicas", **labels) == count for p in pods)

        return wait_until(f"{count} verifiers ready", seen, 60)


def play_demo(mesh: Mesh) -> str:
    """The overlay ``local``: the models that ship, on a network of its own."""
    mesh.start("redis", "verifier", "drafter", "orchestrator")
    options = ("--max-tokens", "48", "--strategy")
    target = "dns:///orchestrator:50051"
    texts = {
        clients.generate(mesh.network, None, target, PROMPT, *options, each)["text"]
        for each in ("autoregressive", "speculative", "heads")
    }
    if len(texts) != 1:
        raise Wrong(f"drafting alters the text: {texts}")
    return f"the target alone, speculative and heads say {texts.pop()[:60]!r}..."


def build() -> None:
    """The steps to the images."""
    step("base image", images.make_base)
    wheels = images.cache()
    step("wheels", lambda: images.download_wheels(wheels))
    step("images", lambda: "\n" + images.build(wheels).rstrip())
    step("what is in them", images.check)


def smoke(reuse_images: bool) -> None:
    """All steps. Raises what the first that fails raises."""
    step("programs", images.install_programs)
    if not reuse_images:
        build()
    with ExitStack() as undo:
        folder = Path(undo.enter_context(TemporaryDirectory(prefix=NAME)))
        secrets = certs.make(folder / "certs")
        undo.callback(remove_rest)
        simulated = workloads(rendered("podman"), secrets)
        with Mesh(NAME, simulated) as mesh, shown(mesh):
            break_and_roll(Smoke(mesh, folder))
        # There Redis is a StatefulSet.
        local = {**workloads(rendered("local")), "redis": simulated["redis"]}
        with Mesh(f"{NAME}-demo", local) as mesh, shown(mesh):
            step("the shipped models by the overlay local", lambda: play_demo(mesh))


def break_and_roll(test: Smoke) -> None:
    """The steps with the simulated mesh."""
    step("a pod for each replica, over mTLS", test.start)
    step("answers over mTLS", test.answer_over_mtls)
    step("answers by the gateway", test.answer_by_gateway)
    step("answers in calm", test.learn_answers)
    step("load", test.begin_load)
    step("a verifier is killed", test.kill_verifier)
    step("a verifier is cut off, and healed", test.cut_off_verifier)
    for role in ROLES:
        step(f"roll {role}", partial(test.roll, role))
    step("no answer failed, none was altered", test.judge)


@contextmanager
def shown(mesh: Mesh) -> Iterator[None]:
    """What its pods wrote, if the block fails."""
    try:
        yield
    except BaseException:
        show_logs(mesh)
        raise


def show_logs(mesh: Mesh) -> None:
    """The last lines of every pod."""
    for pod in [pod for each in mesh.pods.values() for pod in each]:
        say(f"---- {pod.name}")
        say(logs(pod.container))


def remove_rest() -> None:
    """Containers of clients that are left, whatever became of them."""
    left = podman("ps", "--all", "--quiet", "--filter", f"label={NAME}").split()
    if left:
        quietly("rm", "--force", "--time", "0", *left)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.k8s_smoke", description=__doc__)
    parser.add_argument("--reuse-images", action="store_true", help="those of the run before")
    reuse_images = parser.parse_args().reuse_images
    began = time.monotonic()
    try:
        smoke(reuse_images)
    except (Exception, KeyboardInterrupt):
        say(format_exc())
        say(f"FAILED after {time.monotonic() - began:.0f} s")
        return 1
    say(f"passed in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
