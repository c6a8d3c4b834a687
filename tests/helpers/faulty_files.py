"""SQLite files that fail when a test has them fail, and pages that are overwritten."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rackassign.stateful import _state_directory as state_directory
from rackassign.stateful._state_directory import parts

PAGE = 4096
FULL = "database or disk is full"

Fault = Callable[[str, str], BaseException | None]
"""Called with the name of a file and a statement, or `open` and `close`; returns the error, if there is to be one."""


class FaultyFiles:
    """What SQLite does with files of state."""

    def __init__(self) -> None:
        # `before`: what fails without an effect.
        self.full = False
        self.full_as = FULL
        self.before: Fault = lambda *_: None
        self.after: Fault = lambda *_: None

    def installed(self, patch: pytest.MonkeyPatch) -> FaultyFiles:
        """Use these files, each of which is tried again with the next poll after a failure."""
        patch.setattr(sqlite3, "connect", self.connect)
        patch.setattr(state_directory, "_RETRY_S", 0.0)
        patch.setattr(state_directory, "_DAMAGED_RETRY_S", 0.0)
        return self

    def connect(self, file: Path, **options: Any) -> Connection:
        self.run(self.before, file, "open")
        return Connection(self, file, REAL(file, **options))

    def run(self, fault: Fault, file: Path, statement: str) -> None:
        if self.full and statement.startswith(("INSERT", "DELETE", "BEGIN;")):
            raise sqlite3.OperationalError(self.full_as)
        error = fault(file.name, statement)
        if error is not None:
            raise error


REAL: Callable[..., sqlite3.Connection] = sqlite3.connect


class Connection:
    def __init__(self, files: FaultyFiles, file: Path, real: sqlite3.Connection) -> None:
        self._files, self._file, self._real = files, file, real

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name not in {"execute", "executemany", "executescript"}:
            return real

        def called(statement: str, *args: Any) -> Any:
            self._files.run(self._files.before, self._file, statement)
            found = real(statement, *args)
            try:
                self._files.run(self._files.after, self._file, statement)
            except BaseException:
                # A cursor that the traceback refers to would keep the file locked.
                found.close()
                raise
            return found

        return called

    def close(self) -> None:
        self._real.close()
        self._files.run(self._files.before, self._file, "close")


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyFiles]:
    """Return the files, which are tried again with the next poll."""
    made = FaultyFiles()
    with monkeypatch.context() as patch:
        yield made.installed(patch)


def overwrite(file: Path) -> None:
    """Overwrite the pages in the middle of a file, and of its log."""
    for part in (each for each in parts(file) if each.exists()):
        pages = part.stat().st_size // PAGE
        with part.open("r+b") as opened:
            for page in range(pages // 3, pages * 2 // 3):
                opened.seek(page * PAGE)
                opened.write(b"\xa5" * PAGE)
            opened.flush()
            os.fsync(opened.fileno())
