"""What the docs draw and name is there: RPCs in the picture of processes, files in the glossary."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOTS = (
    "",
    *(f"{part}/specmesh" for part in ("services", "orchestrator", "clients", "benchmarks")),
)
ARCHITECTURE = (REPOSITORY / "docs" / "architecture.md").read_text()
GLOSSARY = (REPOSITORY / "docs" / "glossary.md").read_text()

SERVICES_AT = {
    "orchestrator": {"GenerationService", "TokenizerService"},
    "verifier": {"VerifierService", "ModelService"},
    "drafter": {"DrafterService", "ModelService"},
    "confidence": {"ConfidenceService"},
}
EACH = {"Verify": "VerifyEach", "Draft": "DraftEach", "Assess": "AssessEach"}
"""RPCs that the orchestrator doesn't call, since it calls others that do the same."""

PATHS = {
    quoted
    for quoted in re.findall(r"`([^`\s]+)`", GLOSSARY)
    if "/" in quoted or quoted.endswith((".py", ".lua", ".proto"))
}
NAMES = re.findall(r"`(\w+)` in `([^`]+/[^`]+)`", GLOSSARY)
TERMS = re.findall(r"^- \*\*(.+?)\*\*", GLOSSARY, re.MULTILINE)


def found(path):
    return [at for root in ROOTS if (at := REPOSITORY / root / path).exists()]


def defined(name, path):
    definition = rf"\b(?:class|def|function|message) {name}\b|^ *{name} *[:=]"
    texts = [file.read_text() for file in found(path) if file.is_file()]
    return any(re.search(definition, text, re.MULTILINE) for text in texts)


def rpcs():
    """The RPCs of each service, from protos/."""
    texts = [file.read_text() for file in (REPOSITORY / "protos").rglob("*.proto")]
    services = re.findall(r"^service (\w+) \{(.*?)^\}", "".join(texts), re.MULTILINE | re.DOTALL)
    return {name: set(re.findall(r"^  rpc (\w+)\(", body, re.MULTILINE)) for name, body in services}


@pytest.mark.parametrize("process", SERVICES_AT)
def test_arrows_into_a_process_name_the_rpcs_that_it_serves(process):
    section = re.search(r"## Processes\n(.*?)\n## ", ARCHITECTURE, re.DOTALL)
    labels = re.findall(rf'-- "([^"]+)" --> {process}$', section[1], re.MULTILINE)
    served = set().union(*(rpcs()[service] for service in SERVICES_AT[process]))
    assert {rpc for label in labels for rpc in label.split(", ")} == served - EACH.keys()


def test_every_service_is_in_the_picture():
    assert set(rpcs()) == set().union(*SERVICES_AT.values())


def test_every_path_in_the_glossary_exists():
    assert len(PATHS) > 50
    assert [path for path in sorted(PATHS) if not found(path)] == []


def test_every_name_in_the_glossary_is_defined_in_its_file():
    assert len(NAMES) > 50
    assert [(name, path) for name, path in NAMES if not defined(name, path)] == []


def test_the_glossary_is_in_alphabetical_order():
    keys = [term.removeprefix("to ").replace("γ", "gamma").lower() for term in TERMS]
    assert keys == sorted(keys)
