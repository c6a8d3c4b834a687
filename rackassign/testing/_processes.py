"""Child processes that end with their owner, and the directories of clusters.

The client of the supervisor process starts it, sends commands and receives the ends of processes. Locks on directories
distinguish running clusters from the remains of a crash.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rackassign.errors import ClusterError
from rackassign.testing._machine import cache_dir, cache_errors
from rackassign.util.files import lock, try_lock


@dataclass(frozen=True, slots=True)
class ClusterDirectory:
    directory: Path
    # Lock file next to it; the cluster is running while a process holds the lock, by this or an inherited descriptor.
    lock: Path
    descriptor: int


def create_cluster_directory() -> ClusterDirectory:
    """Remove the directories of crashed clusters, and create one for a new cluster."""
    root = cache_dir() / "clusters"
    with cache_errors():
        root.mkdir(parents=True, exist_ok=True)
        return _create(root)


def _create(root: Path) -> ClusterDirectory:
    with _alone(root):
        _sweep(root)
        name = secrets.token_hex(6)
        lock_file = root / f"{name}.lock"
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        lock(descriptor)
        directory = root / name
        try:
            directory.mkdir()
        except OSError:
            # Without the lock, the start of the next cluster removes the file.
            os.close(descriptor)
            raise
    return ClusterDirectory(directory, lock_file, descriptor)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Prevent other processes from removing a directory whose lock is not held yet."""
    with (root / "lock").open("w") as held:
        lock(held)
        yield


def _sweep(root: Path) -> None:
    for path in root.glob("*.lock"):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # The supervisor of the cluster has just finished.
            continue
        try:
            if not try_lock(descriptor):
                # The cluster is running.
                continue
            abandoned = path.with_suffix("")
            if abandoned.exists():
                shutil.rmtree(abandoned)
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


_SCRIPT = Path(__file__).with_name("_supervisor.py")
_RESPONSE_TIMEOUT_S = 180.0
_CLOSE_TIMEOUT_S = 180.0


class ProcessSupervisor:
    """A child process that runs the processes of a cluster and outlives its owner only long enough to end them."""

    def __init__(self, cluster_dir: ClusterDirectory, inherit: Sequence[int] = ()) -> None:
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._responses: dict[int, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._running: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._ready = False
        self._ended = False
        self._stderr: IO[bytes] = tempfile.TemporaryFile(dir=cluster_dir.directory)  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            # Isolated from the user's environment and without site-packages: starts fast, and no module is shadowed.
            [
                sys.executable,
                "-I",
                "-S",
                str(_SCRIPT),
                str(self._owner),
                str(cluster_dir.directory),
                str(cluster_dir.lock),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            pass_fds=(cluster_dir.descriptor, *inherit),
            # Ctrl-C in a terminal must only reach the owner, which then closes the cluster in its own way.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="rackassign-supervisor", daemon=True)
        self._reader.start()
        try:
            self._await(lambda: self._ready, _RESPONSE_TIMEOUT_S, "did not start")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, name: str, argv: Sequence[str], log: Path) -> int:
        """Start a process under a name, and return its process ID."""
        response = self._request({"op": "start", "name": name, "argv": list(argv), "log": str(log)})
        return int(response["pid"])

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process; do nothing if it has already ended."""
        self._request({"op": "signal", "name": name, "signal": int(number)})

    def running(self) -> dict[str, int]:
        with self._changed:
            self._check_running()
            return dict(self._running)

    def exit_code(self, name: str) -> int | None:
        """Return the last exit code of a process (negative: the signal that ended it); None if it has not ended."""
        with self._changed:
            return None if name in self._running else self._codes.get(name)

    def wait_exit(self, names: Sequence[str], timeout_s: float) -> bool:
        """Wait until none of the processes runs; return whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended or not set(names) & set(self._running), timeout_s)

    def wait_change(self, timeout_s: float) -> None:
        """Wait until the supervisor process sends a message, or until the timeout expires."""
        with self._changed:
            self._changed.wait(timeout_s)

    def close(self) -> None:
        """End all processes, remove the directory of the cluster, and wait until that is done."""
        if os.getpid() != self._owner or self._stderr.closed:
            # A forked child of the owner owns no processes.
            return
        try:
            self._end()
            code = self._process.wait(_CLOSE_TIMEOUT_S)
            problem = self._last_error() if code else ""
        except subprocess.TimeoutExpired:
            # Its processes end with it; the start of the next cluster removes the directory.
            self._process.kill()
            self._process.wait()
            code, problem = -9, f"it did not finish within {_CLOSE_TIMEOUT_S:.0f} s"
        self._reader.join(_RESPONSE_TIMEOUT_S)
        if self._process.stdout:
            self._process.stdout.close()
        self._stderr.close()
        if code:
            raise ClusterError(f"the cluster's supervisor process ended with {code}: {problem}")

    def _end(self) -> None:
        try:
            if self._process.stdin:
                # A child that the owner has forked keeps its end of the pipe open, so the end of stdin may not come. No
                # signal, because a Python process that is about to end dies of it.
                self._process.stdin.write(b'{"op": "end"}\n')
                self._process.stdin.close()
        except (BrokenPipeError, ValueError):
            # The supervisor process has already ended; its exit code has the reason.
            return

    def _request(self, command: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        line = json.dumps({"n": number, **command}).encode() + b"\n"
        with self._changed:
            self._check_running()
            try:
                if self._process.stdin:
                    self._process.stdin.write(line)
                    self._process.stdin.flush()
            except (BrokenPipeError, ValueError):
                raise ClusterError(f"the cluster's supervisor process has ended: {self._last_error()}") from None
            self._await(lambda: number in self._responses, _RESPONSE_TIMEOUT_S, "did not respond")
            response = self._responses.pop(number)
            if "error" in response:
                raise ClusterError(f"broker process {command['name']}: {response['error']}")
            return response

    def _await(self, condition: Callable[[], bool], timeout_s: float, problem: str) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                self._check_running()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ClusterError(f"the cluster's supervisor process {problem} within {timeout_s:.0f} s")
                self._changed.wait(left)

    def _check_running(self) -> None:
        if self._ended:
            raise ClusterError(f"the cluster's supervisor process has ended: {self._last_error()}")

    def _last_error(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it wrote no error message"

    def _read(self) -> None:
        """Process the messages of the supervisor process until its output ends."""
        output = self._process.stdout
        for line in output or ():
            message = json.loads(line)
            with self._changed:
                self._handle(message)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _handle(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready = True
        elif "exit" in message:
            self._running.pop(message["exit"], None)
            self._codes[message["exit"]] = int(message["code"])
        else:
            # Recorded here and not by the caller, because the next line may already report the end of the process.
            if "pid" in message:
                self._running[message["name"]] = int(message["pid"])
            self._responses[int(message["n"])] = message
