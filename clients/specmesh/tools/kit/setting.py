"""The models, options and cores of a benchmark."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from specmesh.tools.kit.bench import Bench
from specmesh.tools.kit.experiment import Experiment


def describe_setting(bench: Bench) -> str:
    """Describe the models, replicas and their cores, which are known once the mesh runs."""
    options, placement = bench.options, bench.mesh.placement
    verifiers = frozenset[int]().union(*placement.verifiers)
    drafters = ", ".join(Path(name).name for name in bench.models.drafter_names)
    return (
        f"Target {Path(bench.models.target).name} x {options.num_verifiers} on "
        f"{_cores(verifiers)}, drafter {drafters} on {_cores(placement.drafter)};\n"
        f"{options.threads} {'thread' if options.threads == 1 else 'threads'} each"
    )


def setting_json(bench: Bench, experiment: Experiment) -> dict[str, Any]:
    """Return the same and the experiment's parameters as a JSON object."""
    options, placement = bench.options, bench.mesh.placement
    return {
        "prompts": len(experiment.prompts),
        "tokens": experiment.num_tokens,
        "seed": experiment.seed,
        "speculation": {each.strategy: asdict(each) for each in experiment.speculations},
        "verifiers": options.num_verifiers,
        "threads": options.threads,
        "cores": {
            "verifiers": [sorted(cores) for cores in placement.verifiers],
            "drafter": sorted(placement.drafter),
            "rest": sorted(placement.rest),
        },
        "models": {
            "target": Path(bench.models.target).name,
            "drafters": [Path(name).name for name in bench.models.drafter_names],
        },
    }


def _cores(cores: frozenset[int]) -> str:
    return f"core {', '.join(map(str, sorted(cores)))}" if cores else "any core"
