"""Imports point one way (docs/architecture.md): who may import what, read from the sources."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SOURCE_ROOTS = ("services", "orchestrator", "clients", "benchmarks")

MODEL_SIDE = {
    "torch",
    "transformers",
    *(f"specmesh.{part}" for part in ("inference", "drafter", "verifier", "training")),
}
"""What a process without a model must do without."""


INFERENCE = ("inference.engine", "inference.model", "inference.reasons")


def sources(package):
    """The files of ``specmesh.PACKAGE``."""
    name = package.replace(".", "/")
    files = [
        file
        for root in SOURCE_ROOTS
        for file in sorted((REPOSITORY / root / "specmesh" / name).rglob("*.py"))
    ]
    assert files, package
    return files


def imports(package):
    """Every module that ``specmesh.PACKAGE`` imports anywhere, with the file that does so."""
    found = []
    for file in sources(package):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found += [(alias.name, file) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{file}: a relative import"
                found += [(f"{node.module}.{alias.name}", file) for alias in node.names]
    return found


def is_below(module, packages):
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def own(*parts):
    return {f"specmesh.{part}" for part in parts}


MAY_IMPORT = {
    "decoding": own("decoding"),
    "models": own("models"),
    "serving": own("serving", "decoding", "mesh", "v1"),
    "inference": own("inference", "serving", "models", "decoding", "mesh", "v1"),
    "inference.engine": own(*INFERENCE, "serving", "decoding"),
    "inference.models": own(
        *(*INFERENCE, "inference.models", "inference.team", "serving", "decoding"),
    ),
    "inference.grammar": own("inference.grammar", "inference.model", "serving", "decoding"),
    "inference.backends": own(
        *(*INFERENCE, "inference.backends", "inference.models"),
        *("serving", "models", "decoding"),
    ),
    "inference.service": own(
        *(*INFERENCE, "inference.backends.registry", "inference.grammar", "inference.service"),
        *("serving", "decoding", "mesh", "v1"),
    ),
    "verifier": own("verifier", "inference", "serving", "decoding", "mesh"),
    "drafter": own("drafter", "inference", "serving", "decoding", "mesh"),
    "confidence": own("confidence", "serving", "decoding", "mesh"),
    "gateway": own("gateway", "client", "serving", "v1"),
    "training": own("training", "inference", "serving", "models", "decoding"),
    "orchestrator": own("orchestrator", "serving", "decoding", "mesh", "v1"),
    "orchestrator.strategies": own("orchestrator.strategies", "decoding"),
    "client": own("client", "v1"),
    "traces": own("traces", "serving"),
    "cli": own("cli", "client", "simulation", "orchestrator", "traces", "serving", "models"),
    "simulation": own("simulation", "traces", "orchestrator", "serving", "decoding"),
    "load": own("load", "cli", "client", "serving"),
    "tools": own(
        *("tools", "load", "cli", "client", "simulation", "traces", "orchestrator"),
        *("inference", "models", "serving", "decoding", "mesh", "v1"),
    ),
    "bench": own(
        *("bench", "tools", "load", "cli", "client", "simulation", "traces", "orchestrator"),
        *("inference", "models", "serving", "decoding", "mesh", "v1"),
    ),
}
"""By package; ``v1`` (what clients call) and ``mesh`` (what the mesh says to itself) are the stubs
built from protos/."""


def edges_of(imported):
    """Pairs of different packages, from a package's modules to the modules it imports."""
    return {
        (package, parts[1])
        for package, modules in imported.items()
        for parts in (module.split(".") for module in modules)
        if parts[0] == "specmesh" and parts[1] != package
    }


ALLOWED_EDGES = edges_of({name: rule for name, rule in MAY_IMPORT.items() if "." not in name})


def drawn_edges():
    """The arrows of the picture of imports in docs/architecture.md."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    picture = re.search(r"## Imports\n.*?```mermaid\n(.*?)```", text, re.DOTALL)
    assert picture, "no picture under the heading Imports"
    arrows = [line.split("-->") for line in picture[1].splitlines() if "-->" in line]
    edges = [(left.strip(), to.strip()) for left, right in arrows for to in right.split("&")]
    assert len(edges) == len(set(edges)), "an arrow is drawn twice"
    return set(edges)


@pytest.mark.parametrize(("package", "allowed"), MAY_IMPORT.items())
def test_a_package_imports_only_those_below_it(package, allowed):
    ours = [(module, file) for module, file in imports(package) if is_below(module, {"specmesh"})]
    assert [(m, str(file)) for m, file in ours if not is_below(m, allowed)] == []


def test_every_package_has_a_rule():
    folders = {
        file.relative_to(REPOSITORY / root / "specmesh").parts[0]
        for root in SOURCE_ROOTS
        for file in (REPOSITORY / root / "specmesh").rglob("*.py")
    }
    assert folders == {name for name in MAY_IMPORT if "." not in name}


def test_no_rule_allows_an_import_between_packages_that_there_is_not():
    packages = [name for name in MAY_IMPORT if "." not in name]
    found = edges_of({name: [module for module, _ in imports(name)] for name in packages})
    assert sorted(ALLOWED_EDGES - found) == []


def test_the_picture_in_the_docs_has_an_arrow_for_every_import_and_no_other():
    drawn = drawn_edges()
    assert sorted(drawn - ALLOWED_EDGES) == [], "drawn, but not allowed"
    assert sorted(ALLOWED_EDGES - drawn) == [], "allowed, but not drawn"


def test_nothing_imports_what_measures():
    measuring = REPOSITORY / "benchmarks"
    importers = [str(file) for module, file in imports("") if is_below(module, own("bench"))]
    assert [file for file in importers if not file.startswith(str(measuring))] == []


@pytest.mark.parametrize(
    "package",
    ["orchestrator", "confidence", "gateway", "serving", "client", "cli", "load", "traces"],
)
def test_a_process_without_a_model_imports_nothing_of_the_model_side(package):
    assert [(m, str(file)) for m, file in imports(package) if is_below(m, MODEL_SIDE)] == []


COMPILES = "specmesh.decoding.compiled.functions"


def test_decoding_needs_numpy_alone_but_for_what_is_compiled_where_that_is_wanted():
    known = {"numpy", "specmesh", *sys.stdlib_module_names}
    found = imports("decoding")
    others = [(m.partition(".")[0], file) for m, file in found]
    others = [(name, file) for name, file in others if name not in known]
    assert {name for name, _ in others} == {"llvmlite", "numba"}
    assert {file.parent.name for _, file in others} == {"compiled"}
    importers = {file.name for m, file in found if f"{m}.".startswith(f"{COMPILES}.")}
    assert importers == {"choice.py"}, "which imports it when it is asked to prepare"


@pytest.mark.parametrize("package", ["decoding", "orchestrator.strategies"])
def test_pure_code_does_no_io_reads_no_clock_and_draws_nothing(package):
    impure = {"asyncio", "grpc", "logging", "os", "random", "socket", "threading", "time"}
    assert [(m, str(file)) for m, file in imports(package) if is_below(m, impure)] == []


@pytest.mark.parametrize(
    "module",
    [
        "specmesh.orchestrator.__main__",
        "specmesh.confidence.__main__",
        "specmesh.gateway.__main__",
        "specmesh.client",
        "specmesh.cli.main",
        "specmesh.load.generators.worker",
    ],
)
def test_importing_it_leaves_torch_alone(module):
    loaded = loaded_with(module)
    assert module in loaded
    assert [name for name in loaded if is_below(name, MODEL_SIDE)] == []


def test_processes_of_ours_import_nothing_from_the_current_folder():
    """``python -m`` looks there first, unless ``-P`` forbids it."""
    careless = re.compile(r'(?<!"-P", )"-m"')
    assert [str(file) for file in sources("") if careless.search(file.read_text())] == []


@pytest.mark.parametrize("module", ["specmesh.verifier.__main__", "specmesh.inference.team"])
def test_importing_it_leaves_numba_to_later(module):
    """Where numba is there already, vLLM cannot load a model."""
    loaded = loaded_with(module)
    assert module in loaded
    assert "numba" not in loaded


def loaded_with(module: str) -> list[str]:
    """Return the names of all modules of a process that imports ``module``."""
    code = f"import {module}, json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True, env=os.environ
    )
    names: list[str] = json.loads(done.stdout)
    return names
