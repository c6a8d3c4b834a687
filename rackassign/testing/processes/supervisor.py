"""Client of the supervisor process: start it, send commands, receive the ends of processes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from rackassign.errors import ClusterError
from rackassign.testing.local.cluster_dir import ClusterDirectory

_SCRIPT = Path(__file__).with_name("_supervisor.py")
_ANSWER_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 60.0


class ProcessSupervisor:
    """A child process that runs the processes of a cluster and outlives its owner only long enough to end them.

    Args:
        home: Directory of the cluster, which the supervisor process removes at its end.
        inherit: Descriptors that the supervisor process keeps open until it ends.

    Raises:
        ClusterError: The supervisor process does not start.
    """

    def __init__(self, home: ClusterDirectory, inherit: Sequence[int] = ()) -> None:
        self._owner = os.getpid()
        self._changed = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._running: dict[str, int] = {}
        self._codes: dict[str, int] = {}
        self._up = False
        self._gone = False
        self._complaints: IO[bytes] = tempfile.TemporaryFile(dir=home.directory)  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            # Isolated from the user's environment and without site-packages: starts fast, and no module is shadowed.
            [sys.executable, "-I", "-S", str(_SCRIPT), str(self._owner), str(home.directory), str(home.lock)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            pass_fds=(home.descriptor, *inherit),
            # Ctrl-C in a terminal must only reach the owner, which then closes the cluster in its own way.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="rackassign-keeper", daemon=True)
        self._reader.start()
        try:
            self._await(lambda: self._up, _ANSWER_TIMEOUT_S, "did not start")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process ID of the supervisor process."""
        return self._process.pid

    def start(self, name: str, argv: Sequence[str], log: Path) -> int:
        """Start a process under a name, and return its process ID.

        Raises:
            ClusterError: The process cannot be started.
        """
        answer = self._ask({"op": "start", "name": name, "argv": list(argv), "log": str(log)})
        return int(answer["pid"])

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process; do nothing if it has already ended.

        Raises:
            ClusterError: The signal cannot be sent.
        """
        self._ask({"op": "signal", "name": name, "signal": int(number)})

    def running(self) -> dict[str, int]:
        """Return the process IDs of the running processes by name."""
        with self._changed:
            self._check_keeper()
            return dict(self._running)

    def exit_code(self, name: str) -> int | None:
        """Return the last exit code of a process (negative: the signal that ended it); None if it has not ended."""
        with self._changed:
            return None if name in self._running else self._codes.get(name)

    def wait_exit(self, names: Sequence[str], timeout_s: float) -> bool:
        """Wait until none of the processes runs; return whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._gone or not set(names) & set(self._running), timeout_s)

    def wait_change(self, timeout_s: float) -> None:
        """Wait until the supervisor process sends a message, or until the timeout expires."""
        with self._changed:
            self._changed.wait(timeout_s)

    def close(self) -> None:
        """End all processes, remove the directory of the cluster, and wait until that is done.

        Raises:
            ClusterError: The supervisor process failed or did not finish in time.
        """
        if os.getpid() != self._owner or self._complaints.closed:
            # A forked child of the owner owns no processes.
            return
        try:
            self._close_stdin()
            code = self._process.wait(_CLOSE_TIMEOUT_S)
            problem = self._complaint() if code else ""
        except subprocess.TimeoutExpired:
            # Its processes end with it; the start of the next cluster removes the directory.
            self._process.kill()
            self._process.wait()
            code, problem = -9, f"it did not finish within {_CLOSE_TIMEOUT_S:.0f} s"
        self._reader.join(_ANSWER_TIMEOUT_S)
        if self._process.stdout:
            self._process.stdout.close()
        self._complaints.close()
        if code:
            raise ClusterError(f"the cluster's keeper ended with {code}: {problem}")

    def _close_stdin(self) -> None:
        try:
            if self._process.stdin:
                self._process.stdin.close()
        except BrokenPipeError:
            # The supervisor process has already ended; its exit code has the reason.
            return

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        line = json.dumps({"n": number, **command}).encode() + b"\n"
        with self._changed:
            self._check_keeper()
            try:
                if self._process.stdin:
                    self._process.stdin.write(line)
                    self._process.stdin.flush()
            except (BrokenPipeError, ValueError):
                raise ClusterError(f"the cluster's keeper is gone: {self._complaint()}") from None
            self._await(lambda: number in self._answers, _ANSWER_TIMEOUT_S, "does not answer")
            answer = self._answers.pop(number)
            if "error" in answer:
                raise ClusterError(f"broker process {command['name']}: {answer['error']}")
            return answer

    def _await(self, condition: Callable[[], bool], timeout_s: float, problem: str) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                self._check_keeper()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ClusterError(f"the cluster's keeper {problem} within {timeout_s:.0f} s")
                self._changed.wait(left)

    def _check_keeper(self) -> None:
        if self._gone:
            raise ClusterError(f"the cluster's keeper is gone: {self._complaint()}")

    def _complaint(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it left no word why"

    def _read(self) -> None:
        """Process the messages of the supervisor process until its output ends."""
        output = self._process.stdout
        for line in output or ():
            message = json.loads(line)
            with self._changed:
                self._take(message)
                self._changed.notify_all()
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._up = True
        elif "exit" in message:
            self._running.pop(message["exit"], None)
            self._codes[message["exit"]] = int(message["code"])
        else:
            # Recorded here and not by the caller, because the next line may already report the end of the process.
            if "pid" in message:
                self._running[message["name"]] = int(message["pid"])
            self._answers[int(message["n"])] = message
