"""The supervisor process, which runs the JVMs of one cluster and ends them when their owner has ended.

`supervisor.ProcessSupervisor` runs this file by path as a separate script, with only the standard library available.
The script reads commands as JSON lines from stdin and writes responses to stdout:

    {"n": 1, "op": "start", "name": "1", "argv": [...], "log": path}   ->  {"n": 1, "name": "1", "pid": 4711}
    {"n": 2, "op": "signal", "name": "1", "signal": 9}                 ->  {"n": 2}
    {"op": "end"}                                                      ->  no response
    any command that fails                                             ->  {"n": 2, "error": "..."}

It writes {"exit": "1", "pid": 4711, "code": -9} whenever a child has ended. On `end`, on the end of stdin, on the end
of the owner and on SIGTERM, it kills every child, removes the directory of the cluster, and exits. The script has one
thread, so that code can safely run in a child between fork and exec, and so that children end with the supervisor
process.

Arguments: process ID of the owner, directory of the cluster, lock file of the cluster.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


class ParentExited(Exception):  # noqa: N818 - the normal end, not an error
    """The owner of the cluster has ended, or a signal has stopped the supervisor process."""


class Children:
    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # Loaded before any fork, because a child must not load it between fork and exec.
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def start(self, name: str, argv: list[str], log: str) -> int:
        """Start a process with its output appended to a log, and return its process ID."""
        if name in self._running:
            raise ValueError(f"{name} is already running")
        supervisor = os.getpid()

        def die_with_the_supervisor() -> None:
            if self._libc is not None:
                self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != supervisor:
                    os._exit(1)

        with open(log, "ab") as output:  # noqa: PTH123 - pathlib's open has no advantage
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=os.path.dirname(log),  # noqa: PTH120
                preexec_fn=die_with_the_supervisor,  # noqa: PLW1509 - this process has one thread
            )
        self._running[name] = child
        return child.pid

    def signal(self, name: str, number: int) -> None:
        if name in self._running:
            self._running[name].send_signal(number)

    def reap(self) -> list[dict[str, object]]:
        """Remove the children that have ended, and return a message for each."""
        ended = [(name, child) for name, child in self._running.items() if child.poll() is not None]
        for name, _ in ended:
            del self._running[name]
        return [{"exit": name, "pid": child.pid, "code": child.returncode} for name, child in ended]

    def kill_all(self) -> None:
        """Kill every child, including paused ones, and wait until all have ended."""
        for child in self._running.values():
            child.kill()
        for child in self._running.values():
            child.wait()


def send(message: dict[str, object]) -> None:
    """Write a message to the owner as one line."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        raise ParentExited from None


def handle_command(children: Children, line: bytes) -> None:
    """Execute one command and send the response; raise ParentExited if the owner closes the cluster."""
    command = json.loads(line)
    if command["op"] == "end":
        raise ParentExited
    response: dict[str, object] = {"n": command["n"]}
    try:
        if command["op"] == "start":
            response["name"] = command["name"]
            response["pid"] = children.start(command["name"], command["argv"], command["log"])
        else:
            children.signal(command["name"], command["signal"])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        response["error"] = str(error)
    send(response)


def serve(children: Children, owner: int) -> None:
    """Serve the owner until it has ended, or a signal has come: then raise ParentExited."""
    with selectors.DefaultSelector() as ready:
        wake = _wake_on_signals()
        ready.register(wake, selectors.EVENT_READ)
        ready.register(0, selectors.EVENT_READ)
        # Needed in addition to the end of stdin: a process forked by the owner may keep the other end of the pipe open.
        owner_descriptor = _descriptor_of(owner)
        if owner_descriptor is not None:
            ready.register(owner_descriptor, selectors.EVENT_READ)
        if os.getppid() != owner:
            raise ParentExited
        send({"ready": os.getpid()})
        incomplete = b""
        while True:
            events = {key.fd for key, _ in ready.select()}
            if wake in events and set(os.read(wake, 4096)) - {signal.SIGCHLD}:
                raise ParentExited
            for message in children.reap():
                send(message)
            if 0 in events:
                received = os.read(0, 65_536)
                if not received:
                    raise ParentExited
                *lines, incomplete = (incomplete + received).split(b"\n")
                for line in lines:
                    handle_command(children, line)
            elif owner_descriptor in events:
                raise ParentExited


def _wake_on_signals() -> int:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    # A handler and not SIG_IGN, because the JVMs would inherit the latter.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return read


def _descriptor_of(process: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None if the system does not support that."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        raise ParentExited from None
    except OSError:
        # An old kernel: only the end of stdin is detected.
        return None


def main() -> None:
    """Run a cluster until its owner has ended, then remove all of its processes and files."""
    owner, directory, lock = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    children = Children()
    try:
        serve(children, owner)
    except ParentExited:
        pass
    finally:
        children.kill_all()
        if directory.exists():
            shutil.rmtree(directory)
        # Last, because it marks the directory as in use; the lock itself is released when this process ends.
        lock.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
