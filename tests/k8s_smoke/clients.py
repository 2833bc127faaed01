"""Clients in containers beside the mesh: the SDK by ``specmesh generate``, and plain HTTPS."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
from tests.k8s_smoke.playable import IMAGES, NAME
from tests.k8s_smoke.podman import podman
from tests.k8s_smoke.pods import Pod

TLS = "/etc/specmesh/tls"
_HTTPS = """
import json, ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[1])
request = urllib.request.Request(
    sys.argv[2], sys.argv[3].encode(), {"content-type": "application/json"}
)
print(urllib.request.urlopen(request, timeout=60, context=context).read().decode())
"""


def generate(
    network: str, certs: Path | None, target: str, prompt: str, *options: str
) -> dict[str, Any]:
    """The answer to ``prompt``, at temperature 0, with all that the SDK tells of it."""
    mounted: Sequence[str] = ()
    shown: Sequence[str] = ()
    if certs is not None:
        mounted = ("--volume", f"{certs}:{TLS}:ro")
        shown = ("--tls-ca", f"{TLS}/ca.pem", "--tls-cert", f"{TLS}/client.pem")
        shown = (*shown, "--tls-key", f"{TLS}/client-key.pem")
    said = podman(
        *("run", "--rm", "--read-only", "--label", NAME, "--network", network, *mounted),
        *(IMAGES.format("specmesh-tools"), "generate", "--json", "--target", target, *shown),
        *("--temperature", "0", *options, prompt),
        timeout_s=120,
    )
    return json.loads(said)  # type: ignore[no-any-return]


def post(network: str, certs: Path, url: str, body: object) -> Any:
    """The JSON that comes back for a JSON that is sent over HTTPS."""
    said = podman(
        *("run", "--rm", "--read-only", "--label", NAME, "--network", network),
        *("--volume", f"{certs}:{TLS}:ro", "--entrypoint", "python3"),
        *(IMAGES.format("specmesh-tools"), "-c", _HTTPS, f"{TLS}/ca.pem", url, json.dumps(body)),
        timeout_s=120,
    )
    return json.loads(said)


def refuses_strangers(pod: Pod, certs: Path) -> bool:
    """Whether nobody without a certificate of the mesh gets through to ``pod``."""
    believed = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes())
    options = [("grpc.ssl_target_name_override", "localhost")]
    with grpc.secure_channel(f"{pod.address}:50051", believed, options) as channel:
        call = channel.unary_unary("/specmesh.v1.GenerationService/ListModels")
        try:
            call(b"", timeout=5)
        except grpc.RpcError as error:
            return bool(error.code() == grpc.StatusCode.UNAVAILABLE)
    return False


def metric(pod: Pod, name: str, **labels: str) -> float:
    """The sum of a metric's series with these labels, as Prometheus would scrape it."""
    with urlopen(f"http://{pod.address}:9464/metrics", timeout=5) as scraped:
        text = scraped.read().decode()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{name}{{", f"{name} ")) and all(each in line for each in wanted)
    )
