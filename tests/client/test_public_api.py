"""What users may rely on."""

import ast
from pathlib import Path

import pytest

import specmesh.cli
import specmesh.client
import specmesh.traces
from specmesh.client.requests.sampling import (
    SAMPLING_FIELDS,
    STOPPING_FIELDS,
    SamplingOptions,
    StoppingOptions,
)
from specmesh.client.requests.speculation import STRATEGY_OPTIONS

PACKAGES = [
    Path(package.__path__[0]) for package in (specmesh.client, specmesh.cli, specmesh.traces)
]


def test_exports_are_exactly_these():
    assert specmesh.client.__all__ == [
        "Aborted",
        "AcceptanceMode",
        "AlreadyExists",
        "AsyncClient",
        "BlockingStream",
        "BrokenCall",
        "Cancelled",
        "ChatMessage",
        "ChatOptions",
        "ChatPrompt",
        "Chunk",
        "Client",
        "ClientOptions",
        "DataLoss",
        "DeadlineExceeded",
        "Ended",
        "FailedPrecondition",
        "FieldViolation",
        "Filter",
        "FinishReason",
        "GenerateOptions",
        "GenerationResult",
        "GenerationStats",
        "GenerationStream",
        "Grammar",
        "Hooks",
        "Internal",
        "InvalidRequest",
        "LimitReached",
        "MessageDelta",
        "Model",
        "NotFound",
        "OutOfRange",
        "Overloaded",
        "PermissionDenied",
        "ResourceExhausted",
        "SavedSession",
        "ServedModel",
        "Session",
        "SessionCancelled",
        "SessionState",
        "SessionTaken",
        "SpecmeshError",
        "Strategy",
        "TemplateOptions",
        "TextScore",
        "Timeouts",
        "Tls",
        "TokenFile",
        "TokenKind",
        "TokenLogprob",
        "TokenLogprobs",
        "ToolCall",
        "ToolCallDelta",
        "ToolChoice",
        "Unauthenticated",
        "Unavailable",
        "Unimplemented",
        "Unknown",
    ]
    assert all(hasattr(specmesh.client, name) for name in specmesh.client.__all__)


def test_the_keywords_that_editors_show_have_every_option_of_strategies():
    assert set(STRATEGY_OPTIONS) <= set(specmesh.client.GenerateOptions.__annotations__)


@pytest.mark.parametrize(
    ("options", "fields"), [(SamplingOptions, SAMPLING_FIELDS), (StoppingOptions, STOPPING_FIELDS)]
)
def test_the_fields_of_the_protocol_are_the_keywords(options, fields):
    assert options.__annotations__.keys() == fields.keys()


def test_packages_are_marked_as_typed():
    assert all((package / "py.typed").is_file() for package in PACKAGES)


COMMANDS_TAKE = (
    *("specmesh.models", "specmesh.simulation", "specmesh.serving.conventions"),
    *(
        "specmesh.serving.end_signals",
        "specmesh.serving.process.options",
        "specmesh.serving.process.typer_app",
        "specmesh.serving.store.redis_url",
        "specmesh.serving.templates.model_names",
    ),
)
"""Where the shipped models lie, what spans are called, what ends a process, how commands are made
and addresses read; `trace show` simulates what would have been quicker where the simulation is
there."""
CHECKS_BEFORE_A_START = {
    "specmesh.orchestrator",
    "specmesh.serving.calibration_file",
    "specmesh.serving.startup",
    "specmesh.serving.templates.template_language",
}
"""`up` reads them before it starts what they belong to."""


def test_clients_import_no_part_of_a_server():
    """Nor torch: whoever calls the mesh, or starts it, must not carry what serves it. The collector
    of traces serves itself."""
    own = ("specmesh.client", "specmesh.cli", "specmesh.traces", "specmesh.v1")
    files = (file for package in PACKAGES for file in package.rglob("*.py"))
    for file in (file for file in files if "collector" not in file.parts):
        if file.is_relative_to(PACKAGES[0]):
            allowed = ("specmesh.client", "specmesh.v1")
        elif file.match("cli/local/checks.py"):
            allowed = (*own, *COMMANDS_TAKE, *CHECKS_BEFORE_A_START)
        else:
            allowed = (*own, *COMMANDS_TAKE)
        for name in imported_names(file):
            assert not name.startswith(("torch", "transformers")), file
            assert not name.startswith("specmesh.") or name.startswith(allowed), (file, name)


def imported_names(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
