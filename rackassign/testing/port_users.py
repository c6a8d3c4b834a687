"""Which processes use a loopback port, from `/proc` of Linux."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_LONGEST = 120


def port_users(port: int, proc: Path = Path("/proc")) -> str:
    """Return the processes with a socket that has this local port, for messages.

    Args:
        port: The port.
        proc: Where the system has its processes.

    Returns:
        "process 4711 (python -m http.server) listens on it", for example, or why there is nothing to name.
    """
    sockets = {inode: listens for inode, listens in _sockets(port, proc) if inode != "0"}
    if not sockets:
        return "no socket has it any more"
    users = {_describe(process, listens=listens) for process, listens in _open_sockets(proc, sockets)}
    return "; ".join(sorted(users)) or "a process of another user has it"


def _sockets(port: int, proc: Path) -> Iterator[tuple[str, bool]]:
    """Yield the inode of each socket with this local port, and whether it listens."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text("ascii").splitlines()[1:]
        except OSError:
            # No Linux, or a kernel without IPv6.
            continue
        for line in lines:
            # Number, local address, remote address, state, and further down the inode: see proc(5).
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9], fields[3] == _LISTEN


def _open_sockets(proc: Path, sockets: dict[str, bool]) -> Iterator[tuple[Path, bool]]:
    """Yield the directory of each process that has one of these sockets open, and whether that socket listens."""
    for process in proc.glob("[0-9]*"):
        # It may have ended, or belong to another user.
        with suppress(OSError):
            for link in list((process / "fd").iterdir()):
                # One of its descriptors may be closed by now.
                with suppress(OSError):
                    found = _SOCKET.fullmatch(str(link.readlink()))
                    if found and found[1] in sockets:
                        yield process, sockets[found[1]]


def _describe(process: Path, *, listens: bool) -> str:
    try:
        words = (process / "cmdline").read_text("utf-8", "replace").split("\0")
    except OSError:
        words = []
    command = " ".join(words).strip()[:_LONGEST] or "unknown command"
    return f"process {process.name} ({command}) {'listens on it' if listens else 'has a connection from it'}"
