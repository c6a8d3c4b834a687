"""Which folder may import which, where tests and their helpers are, and which words the project no longer uses.

A word is retired because Kafka, its tools, Spark or optimisation have a better known one (see docs/glossary.md). Names
are split at underscores and capitals, so that `as_told` counts as "told".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = ("rackassign", "tests", "integration", "benchmarks", "tools", "examples")

MAY_IMPORT = {
    "rackassign": (),
    "examples": (),
    # Members with state, which tests of theirs start and look at.
    "tests/helpers": ("tests/simulation",),
    "tests/unit": ("tools", "examples"),
    # How assignments decay is a benchmark, which is tested there.
    "tests/property": ("benchmarks", "tests/simulation"),
    "tests/simulation": (),
    "integration": ("tools", "examples", "tests/simulation"),
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
def test_a_folder_imports_only_what_it_may_and_no_test_module(folder: str) -> None:
    shared = () if folder in {"rackassign", "examples"} else ("tests/helpers",)
    allowed = tuple(name.replace("/", ".") + "." for name in ("rackassign", folder, *shared, *MAY_IMPORT[folder]))
    wrong = [
        (str(file), name)
        for file in modules(folder)
        for name in imported(file)
        if not f"{name}.".startswith(allowed) or any(part.startswith("test_") for part in name.split(".")[:-1])
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


RETIRED = {
    "afar": "cross-rack",
    "anew": "again",
    "at home": "locally",
    "near home": "locally",
    "crowd(ed|s)?": "subscription class",
    "desks?": "coordinator endpoint, service",
    "doors?": "indexed group, entry",
    "doubts?": "note",
    "famil(y|ies)": "topic class",
    "foretold|foretells?": "predicted",
    "heal(s|ed|ing)?": "rewrite, recover",
    "mend(s|ed|ing)?": "fix",
    "nobody|somebody|whoever|whomever|anybody|everybody": "the component that acts, no member, any user",
    "remed(y|ies)": "patch",
    "say|says|said|saying": "report, response, message",
    "seats?": "member",
    "told|tell|tells|telling": "report, response, return whether",
    "wish(es)?": "request",
}
"""Regular expressions of words, each with what replaces it."""

ALLOWED = {
    "CONTRIBUTING.md": "quotes retired words in its rules for prose",
    "rackassign/monitoring/prometheus.py": "GaugeMetricFamily is a name of prometheus_client",
    "rackassign/monitoring/report_metrics.py": "the same, and address_family is a name of socketserver",
    "rackassign/bill/gauges.py": "GaugeMetricFamily is a name of prometheus_client",
    "rackassign/monitoring/metrics_text.py": "text_string_to_metric_families is a name of prometheus_client",
    "rackassign/monitoring/written_bytes.py": "text_string_to_metric_families is a name of prometheus_client",
    "rackassign/spark/_pull/server.py": "address_family is a name of socketserver",
    "rackassign/reassignment/request.py": "wish is a key in plan files, whose format stays",
}
"""Files in which all of them are allowed, each with the reason."""

_WORDS = {word: re.compile(rf"(?<![a-z])(?:{word})(?![a-z])") for word in RETIRED}
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _files() -> list[str]:
    # Not by git: the tests also run in an unpacked source distribution.
    named = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md", "Makefile")]
    below = [file for folder in ("rackassign", "docs") for file in (ROOT / folder).rglob("*")]
    listed = [file for file in [*named, *below] if file.name.endswith((".py", ".md", ".html", "Makefile"))]
    return sorted(file.relative_to(ROOT).as_posix() for file in listed)


def _retired(file: str) -> list[str]:
    """Return a line for each retired word of a file."""
    found = []
    for number, line in enumerate((ROOT / file).read_text("utf-8").splitlines(), 1):
        text = _CAPITALS.sub("_", line).lower()
        found += [
            f"{file}:{number}: {word!r} (use {RETIRED[word]}): {line.strip()}"
            for word, pattern in _WORDS.items()
            if pattern.search(text)
        ]
    return found


def test_retired_words_are_gone() -> None:
    found = [line for file in _files() if file not in ALLOWED for line in _retired(file)]
    assert not found, "\n".join(found)
