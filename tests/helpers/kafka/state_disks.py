"""Faults of the disks on which members keep their state: damaged pages, and no space left.

A disk is a tmpfs of limited size, which Linux lets everyone mount in a user namespace of their own (`in_namespace`),
where that is not forbidden. A limit of the size of files (RLIMIT_FSIZE) is no full disk: SQLite reports it as an I/O
error, which is damage.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PAGE = 4096
_FRAME = 24 + PAGE
_LOG_HEADER = 32
_SPANS = 16
_REMOUNT = 32
_DETACH = 2
_INSIDE = "RACKASSIGN_OWN_MOUNTS"
ENTER = ("unshare", "--user", "--map-root-user", "--mount")
"""Begins a command that may mount what nothing else sees."""


def can_mount() -> bool:
    """Return whether this process can mount disks, or could in a namespace of its own."""
    if _INSIDE in os.environ:
        return True
    return shutil.which(ENTER[0]) is not None and (
        subprocess.run([*ENTER, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode
        == 0
    )


def in_namespace(module: str, arguments: Sequence[str]) -> None:
    """Run a module again in a namespace where it can mount; return there, and never here."""
    if _INSIDE not in os.environ:
        os.environ[_INSIDE] = "1"
        sys.stdout.flush()
        os.execvp(ENTER[0], [*ENTER, sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is meant


class Disk:
    """A disk in memory, which can be full."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size
        self.full = False
        folder.mkdir(mode=0o700)
        self._mount(size, 0)

    def _mount(self, size: int, flags: int) -> None:
        # mount(8) passes user IDs of the system on, which a namespace does not have.
        options = f"size={size},mode=0700".encode()
        self._check(_libc().mount(b"none", os.fsencode(self._folder), b"tmpfs", flags, options))

    def _check(self, result: int) -> None:
        if result:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(self._folder))

    def fill(self) -> None:
        """Leave no space for another page."""
        while not self.full:
            used = os.statvfs(self._folder)
            try:
                # No size at all would be no limit.
                self._mount(max(PAGE, (used.f_blocks - used.f_bfree) * used.f_frsize), _REMOUNT)
                self.full = True
            except OSError as error:
                # The member has written since, so there is more on it than it would take.
                if error.errno != errno.EINVAL:
                    raise

    def free(self) -> None:
        """Have space again."""
        self._mount(self._size, _REMOUNT)
        self.full = False

    def close(self) -> None:
        """Unmount it."""
        self._check(_libc().umount2(os.fsencode(self._folder), _DETACH))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def damage_page(file: Path, dice: random.Random) -> bool:
    """Overwrite random bytes of a random page; return whether there is one."""
    size = file.stat().st_size if file.exists() else 0
    frame, header = (_FRAME, _LOG_HEADER) if file.name.endswith("-wal") else (PAGE, 0)
    pages = (size - header) // frame
    if pages < 1:
        return False
    begin = header + dice.randrange(pages) * frame + frame - PAGE
    with file.open("r+b") as opened:
        for _ in range(_SPANS):
            at = dice.randrange(PAGE - _SPANS)
            opened.seek(begin + at)
            opened.write(dice.randbytes(_SPANS))
    return True
