"""List of the processes on this machine, from `/proc` of Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process.

    Args:
        id: Process ID.
        parent: Process ID of the parent.
        name: Name of the program, truncated to 15 characters.
        cpu_s: CPU time in seconds of the process and of its children that have ended.
    """

    id: int
    parent: int
    name: str
    cpu_s: float


def processes() -> Iterator[Process]:
    """Yield all processes, except those that end meanwhile."""
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses and may contain parentheses itself.
            before, _, after = entry.read_text("utf-8", "replace").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = after.split()
        name = before.partition("(")[2]
        yield Process(int(entry.parent.name), int(fields[1]), name, sum(map(int, fields[11:15])) / ticks)
