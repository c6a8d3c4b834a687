"""One word per concept: words that the project no longer uses, in code, comments, docs and messages.

A word is retired because Kafka, its tools, Spark or optimisation have a better known one (see docs/glossary.md). Names
are split at underscores and capitals, so that `as_told` counts as "told".
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

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
    "rackassign/stateful/prometheus.py": "the same",
    "rackassign/reassignment/plan.py": "wish is a key in plan files, whose format stays",
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


@pytest.mark.parametrize("file", [f for f in _files() if f not in ALLOWED])
def test_retired_words_are_gone(file: str) -> None:
    found = _retired(file)
    assert not found, "\n".join(found)
