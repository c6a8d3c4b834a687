"""What runs on this machine, as Linux tells it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process.

    Args:
        id: Its number.
        parent: That of the process it belongs to.
        name: Of its program, cut to 15 characters.
        cpu_s: Seconds that it and its children that have ended have run.
    """

    id: int
    parent: int
    name: str
    cpu_s: float


def processes() -> Iterator[Process]:
    """Yield all there are; one that ends meanwhile is left out."""
    ticks = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name stands in brackets and may have any in itself.
            before, _, after = entry.read_text("utf-8", "replace").rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = after.split()
        name = before.partition("(")[2]
        yield Process(int(entry.parent.name), int(fields[1]), name, sum(map(int, fields[11:15])) / ticks)
