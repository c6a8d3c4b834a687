"""Clusters that a process keeps running under a name, for other processes of the user.

The owner of a cluster holds a lock on a file with its process ID and, once the cluster is up, with the address of its
control socket. The lock ends with the process, however it ends, so a file without a lock is the remains of a crash and
counts as no file.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from rackassign.errors import ConfigError
from rackassign.testing.paths import cache_dir
from rackassign.util.file_lock import lock, try_lock
from rackassign.util.text import truncate


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Where the owner of a cluster takes requests.

    Args:
        port: TCP port on 127.0.0.1.
        token: Secret that a request must have; only the user can read it.
    """

    port: int
    token: str


class Registration:
    """The file of a running cluster, open and locked by its owner.

    Args:
        file: The open file, to which everything is appended.

    Raises:
        ConfigError: It cannot be written.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._write({"pid": os.getpid()})

    def announce(self, address: ControlAddress) -> None:
        """Add the address of the control socket, once the cluster is up.

        Raises:
            ConfigError: It cannot be written.
        """
        self._write({"pid": os.getpid(), **asdict(address)})

    def _write(self, content: dict[str, object]) -> None:
        try:
            os.ftruncate(self._file.fileno(), 0)
            # Without a buffer: what a full disk refuses would be written, and refused, again when the file is closed.
            os.write(self._file.fileno(), json.dumps(content).encode("ascii"))
        except OSError as error:
            raise _unusable(Path(self._file.name), error) from None


class RegisteredCluster:
    """A cluster that another process keeps running.

    Args:
        file: The open file, whose lock the owner holds.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @property
    def address(self) -> ControlAddress | None:
        """The address of the control socket; None while the cluster is starting."""
        content = self._read()
        return ControlAddress(content["port"], content["token"]) if "port" in content else None

    def end(self) -> None:
        """Ask the owner to end the cluster and wait until it has.

        Raises:
            ConfigError: The owner has not written its process ID yet.
        """
        pid = self._read().get("pid")
        if pid is None:
            raise ConfigError("the cluster is only just starting; try again")
        # It can end by itself at this moment.
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
        lock(self._file)

    def _read(self) -> dict[str, Any]:
        self._file.seek(0)
        try:
            content = json.loads(self._file.read())
        except ValueError:
            # The owner is writing at this moment.
            return {}
        return content if isinstance(content, dict) else {}


@contextmanager
def register(name: str) -> Iterator[Registration]:
    """Register this process as the owner of a cluster while the block lasts.

    Raises:
        ConfigError: The name is invalid, a cluster of that name is running, or the file cannot be written.
    """
    file = _file(name)
    while True:
        with _created(file) as opened:
            if not try_lock(opened):
                raise ConfigError(
                    f"a cluster {name!r} is up already; end it with: rackassign cluster down --name {name}"
                )
            if os.fstat(opened.fileno()).st_nlink == 0:
                # Another process has just removed it as the remains of a crash.
                continue
            try:
                yield Registration(opened)
            finally:
                file.unlink(missing_ok=True)
            return


@contextmanager
def find_registered(name: str) -> Iterator[RegisteredCluster | None]:
    """Yield the running cluster of a name; None if there is none. Remove what a crash has left of it.

    Raises:
        ConfigError: The name is invalid.
    """
    file = _file(name)
    try:
        opened = file.open("r+", encoding="ascii")
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _unusable(file, error) from None
    with opened:
        if not try_lock(opened):
            yield RegisteredCluster(opened)
            return
        if os.fstat(opened.fileno()).st_nlink:
            file.unlink(missing_ok=True)
    yield None


def _created(file: Path) -> IO[str]:
    """Open a file, which is created with its folder if it is missing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Only the user may read the token.
        return open(file, "a+", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600))
    except OSError as error:
        raise _unusable(file, error) from None


def _unusable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the file of the cluster, {truncate(str(file))}, cannot be used: {error.strerror}")


def _file(name: str) -> Path:
    if not name.isidentifier():
        raise ConfigError(f"name must be letters, digits and _, and begin with no digit, got {name!r}")
    return cache_dir() / "up" / f"{name}.json"
