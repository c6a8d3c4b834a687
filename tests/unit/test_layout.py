"""Which folder may import which, and that unit tests lie as the package does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = ("rackassign", "tests", "integration", "benchmarks", "tools", "examples")

MAY_IMPORT = {
    "rackassign": (),
    "examples": (),
    "tests/helpers": (),
    "tests/unit": ("tools", "examples"),
    # How assignments decay is a benchmark, which is tested there.
    "tests/property": ("benchmarks",),
    "integration": ("tools", "examples"),
    "benchmarks": (),
    "tools": ("benchmarks",),
}
"""What modules of a folder may import beside the package, the same folder and, if they are no helpers, the helpers."""


def modules(folder: str) -> Iterator[Path]:
    return (file.relative_to(ROOT) for file in sorted((ROOT / folder).rglob("*.py")))


def imported(file: Path) -> Iterator[str]:
    """Yield what a module imports of this repository, as `module` or `module.name`."""
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = [*file.parts[: -node.level]] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in found if name.partition(".")[0] in FOLDERS)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_folder_imports_only_what_it_may(folder: str) -> None:
    shared = () if folder in {"rackassign", "examples"} else ("tests/helpers",)
    allowed = tuple(name.replace("/", ".") + "." for name in ("rackassign", folder, *shared, *MAY_IMPORT[folder]))
    wrong = [
        (str(file), name) for file in modules(folder) for name in imported(file) if not f"{name}.".startswith(allowed)
    ]
    assert wrong == []


def test_no_module_imports_a_test_module() -> None:
    wrong = [
        (str(file), name)
        for folder in FOLDERS
        for file in modules(folder)
        for name in imported(file)
        if any(part.startswith("test_") for part in name.split(".")[:-1])
    ]
    assert wrong == []


def test_tests_and_their_helpers_lie_in_different_folders() -> None:
    for folder in ("tests/unit", "tests/property", "integration"):
        others = {file.name for file in modules(folder) if not file.name.startswith("test_")}
        assert others <= {"conftest.py"}
    for folder in ("tests/helpers", "tools", "benchmarks", "examples"):
        tests = [file for file in modules(folder) if file.name.startswith("test_")]
        # A project of tests, for users to copy.
        assert {file.parent.as_posix() for file in tests} <= {"examples/tests_on_brokers"}


def test_folders_of_unit_tests_are_those_of_the_package() -> None:
    for file in modules("tests/unit"):
        folder = file.parent.relative_to("tests/unit")
        if folder.parts[:1] not in {("tools",), ("examples",)}:
            assert (ROOT / "rackassign" / folder / "__init__.py").is_file(), folder
