"""Bytes that the kernel has moved on each TCP connection of a process, whatever its client counts itself."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

_BYTES_ACKED, _BYTES_RECEIVED = 120, 128
"""Offsets of tcpi_bytes_acked and tcpi_bytes_received, of 64 bits, in the kernel's struct tcp_info (Linux 4.1)."""

_PIDFD_GETFD = 438
"""Number of the system call, on all architectures (Linux 5.6)."""


class ConnectionBytes:
    """Bytes received from each port by a process, or sent to it, also on connections that are closed by now.

    A connection that is opened and closed between two looks is missed.
    """

    def __init__(self, pid: int | None = None, *, sent: bool = False) -> None:
        # `pid`: a process of the same user; None for this one.
        # `sent`: whether bytes are counted that were sent and have arrived, and not those received.
        self._pid = pid
        self._offset = _BYTES_ACKED if sent else _BYTES_RECEIVED
        self._process = None if pid is None else os.pidfd_open(pid)
        self._seen: dict[str, tuple[int, int]] = {}

    def look(self) -> dict[int, int]:
        """Return the bytes by port, as of now."""
        for descriptor in Path(f"/proc/{self._pid or 'self'}/fd").iterdir():
            # One that is closed meanwhile, or not connected, has nothing to count.
            with suppress(OSError):
                link = str(descriptor.readlink())
                if link.startswith("socket:"):
                    self._count(link, int(descriptor.name))
        return self.by_port()

    def by_port(self) -> dict[int, int]:
        """Return the bytes by port, as of the last look."""
        sums: dict[int, int] = {}
        for port, size in self._seen.values():
            sums[port] = sums.get(port, 0) + size
        return sums

    def close(self) -> None:
        """Release the process."""
        if self._process is not None:
            os.close(self._process)

    def _count(self, link: str, descriptor: int) -> None:
        with socket.socket(fileno=self._duplicate(descriptor)) as connection:
            if connection.family not in {socket.AF_INET, socket.AF_INET6}:
                return
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            (size,) = struct.unpack_from("Q", info, self._offset)
            self._seen[link] = (connection.getpeername()[1], size)

    def _duplicate(self, descriptor: int) -> int:
        if self._process is None:
            return os.dup(descriptor)
        copied: int = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, self._process, descriptor, 0)
        if copied < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return copied
