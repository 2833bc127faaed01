"""The house: folders are rooms of one idea each, and a name stands for one thing."""

import ast
import os
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests.test_import_rules import REPOSITORY, SOURCE_ROOTS

SOURCES = {
    file: ast.parse(file.read_text())
    for root in SOURCE_ROOTS
    for file in sorted((REPOSITORY / root / "specmesh").rglob("*.py"))
}
MAX_FILES = 15
ON_BOTH_SIDES = {"AcceptanceMode", "Grammar", "Strategy", "TokenKind"}
"""The SDK has these classes, and so has the code of the mesh: neither imports the other."""


def room(file):
    return Path(*file.relative_to(REPOSITORY).parts[1:-1])


def test_no_folder_has_more_files_than_one_can_look_over():
    files = Counter(room(file) for file in SOURCES if file.name != "__init__.py")
    assert {str(folder): number for folder, number in files.items() if number > MAX_FILES} == {}


def test_no_two_classes_have_one_name():
    places = defaultdict(set)
    for file, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(str(file.relative_to(REPOSITORY)))
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: twice[name] for name in twice.keys() - ON_BOTH_SIDES} == {}
    assert twice.keys() == ON_BOTH_SIDES


def imported(file, tree):
    """The files that ``file`` imports of ``specmesh``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("specmesh."):
            for alias in node.names:
                yield from modules(f"{node.module}.{alias.name}") or modules(node.module)


def modules(name):
    places = [REPOSITORY / root / Path(*name.split(".")) for root in SOURCE_ROOTS]
    return [file for place in places if (file := place.with_suffix(".py")) in SOURCES]


def siblings():
    """Return for each folder which of its rooms import which."""
    found = defaultdict(lambda: defaultdict(set))
    for file, tree in SOURCES.items():
        for other in imported(file, tree):
            ours, theirs = room(file).parts, room(other).parts
            shared = Path(os.path.commonpath([Path(*ours), Path(*theirs)])).parts
            if len(shared) < min(len(ours), len(theirs)):
                depth = len(shared)
                found[Path(*shared)][ours[depth]].add(theirs[depth])
    return {folder: dict(rooms) for folder, rooms in found.items() if folder.parts}


ROOMS = siblings()


@pytest.mark.parametrize("folder", ROOMS, ids=str)
def test_rooms_of_a_folder_import_one_way(folder):
    left = {name: set(others) for name, others in ROOMS[folder].items()}
    for others in ROOMS[folder].values():
        for other in others:
            left.setdefault(other, set())
    while free := [name for name, others in left.items() if not others]:
        for name in free:
            del left[name]
        for others in left.values():
            others.difference_update(free)
    assert left == {}, "these import each other in a circle"
