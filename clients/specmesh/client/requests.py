"""From keyword arguments to a request on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from specmesh.v1 import generation_pb2 as pb
from specmesh.v1 import sampling_pb2


class AcceptanceMode(StrEnum):
    """The exact meaning of "lossless" for a sampled answer."""

    COUPLED = "coupled"
    """The very text that the target alone gives with the same seed."""
    REJECTION = "rejection"
    """Equal to the target in distribution, with the highest acceptance."""


_ACCEPTANCE_MODES = {
    AcceptanceMode.COUPLED: sampling_pb2.ACCEPTANCE_MODE_COUPLED,
    AcceptanceMode.REJECTION: sampling_pb2.ACCEPTANCE_MODE_REJECTION,
}


def sampling_parameters(
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
    acceptance_mode: AcceptanceMode | str | None,
) -> sampling_pb2.SamplingParameters:
    """None leaves a field to the server's default. Raises ValueError for an unknown mode."""
    return sampling_pb2.SamplingParameters(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        acceptance_mode=(
            sampling_pb2.ACCEPTANCE_MODE_UNSPECIFIED
            if acceptance_mode is None
            else _ACCEPTANCE_MODES[AcceptanceMode(acceptance_mode)]
        ),
    )


def generate_request(
    prompt: str | Sequence[int],
    *,
    model: str,
    sampling: sampling_pb2.SamplingParameters,
    stopping: sampling_pb2.StoppingCriteria,
    speculation: pb.SpeculationOptions,
) -> pb.GenerateRequest:
    """A prompt of text is tokenized by the orchestrator, one of ids is taken as it is."""
    request = pb.GenerateRequest(
        model=model, sampling=sampling, stopping=stopping, speculation=speculation
    )
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.tokens.ids.extend(prompt)
        request.tokens.SetInParent()
    return request
