"""What the docs draw and name exists: RPCs in the picture of processes, folders in the pictures of
rooms, files in the glossary and in the pages about the code."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOTS = (
    "",
    *(f"{part}/specmesh" for part in ("services", "orchestrator", "clients", "benchmarks")),
)
PACKAGES = ("services/specmesh/inference", "orchestrator/specmesh/orchestrator")
"""Where paths in the pages about the code may begin, too."""
DOCS = REPOSITORY / "docs"
PAGES_ABOUT_CODE = ("architecture", "strategies", "replicas", "sessions", "failures", "inference")
ARCHITECTURE = (DOCS / "architecture.md").read_text()
GLOSSARY = (DOCS / "glossary.md").read_text()

SERVICES_AT = {
    "orchestrator": {"GenerationService", "TokenizerService"},
    "verifier": {"VerifierService", "ModelService"},
    "drafter": {"DrafterService", "ModelService"},
    "confidence": {"ConfidenceService"},
}
EACH = {"Verify": "VerifyEach", "Draft": "DraftEach", "Assess": "AssessEach"}
"""RPCs that the orchestrator doesn't call, since it calls others that do the same."""


def paths(text):
    """The files that ``text`` names."""
    ends = (".py", ".lua", ".proto")
    return {each for each in re.findall(r"`([^`\s]+)`", text) if each.endswith(ends)}


PATHS = paths(GLOSSARY) | {each for each in re.findall(r"`([^`\s]+)`", GLOSSARY) if "/" in each}
NAMES = re.findall(r"`(\w+)` in `([^`]+/[^`]+)`", GLOSSARY)
TERMS = re.findall(r"^- \*\*(.+?)\*\*", GLOSSARY, re.MULTILINE)


def found(path, roots=ROOTS):
    return [at for root in roots if (at := REPOSITORY / root / path).exists()]


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


def rooms_drawn(root):
    """The folders in the picture below the heading of ``root``."""
    heading = f"### `{root}/specmesh`"
    picture = re.search(rf"{heading}\n\n```mermaid\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert picture, f"no picture under the heading {heading}"
    arrows = [line.split("-->") for line in picture[1].splitlines() if "-->" in line]
    children = {}
    for parent, folders in arrows:
        for folder in folders.split("&"):
            assert folder.strip() not in children, f"{folder.strip()} is drawn twice"
            children[folder.strip()] = parent.strip()
    for folder, parent in children.items():
        assert parent == (folder.rpartition("/")[0] or root)
    return {*children, *children.values()} - ({root} - rooms(root))


def rooms(root):
    """The folders with Python files."""
    top = REPOSITORY / root / "specmesh"
    return {str(file.parent.relative_to(top)) for file in top.rglob("*.py")}


@pytest.mark.parametrize("root", ["services", "orchestrator", "clients", "benchmarks"])
def test_the_pictures_of_rooms_have_every_folder_and_no_other(root):
    assert sorted(rooms_drawn(root) - rooms(root)) == [], "drawn, but not there"
    assert sorted(rooms(root) - rooms_drawn(root)) == [], "there, but not drawn"


@pytest.mark.parametrize("page", PAGES_ABOUT_CODE)
def test_every_file_in_the_pages_about_the_code_exists(page):
    named = paths((DOCS / f"{page}.md").read_text())
    assert named
    assert [path for path in sorted(named) if not found(path, (*ROOTS, *PACKAGES))] == []


def test_every_path_in_the_glossary_exists():
    assert len(PATHS) > 50
    assert [path for path in sorted(PATHS) if not found(path)] == []


def test_every_name_in_the_glossary_is_defined_in_its_file():
    assert len(NAMES) > 50
    assert [(name, path) for name, path in NAMES if not defined(name, path)] == []


def test_the_glossary_is_in_alphabetical_order():
    keys = [term.removeprefix("to ").replace("γ", "gamma").lower() for term in TERMS]
    assert keys == sorted(keys)
