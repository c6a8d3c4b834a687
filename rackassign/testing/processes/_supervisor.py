"""The keeper: a process that holds one cluster's JVMs and ends them when their owner is gone.

Run by path, as a script of its own, by `supervisor.ProcessSupervisor`; only the standard library is at hand. It reads
commands as JSON lines from stdin and answers on stdout:

    {"n": 1, "op": "start", "name": "1", "argv": [...], "log": path}   ->  {"n": 1, "name": "1", "pid": 4711}
    {"n": 2, "op": "signal", "name": "1", "signal": 9}                 ->  {"n": 2}
    anything that cannot be done                                       ->  {"n": 2, "error": "..."}

and says {"exit": "1", "pid": 4711, "code": -9} whenever a child has ended. The end of stdin, the end of the owner,
and SIGTERM all mean the same: kill every child, remove the cluster's directory, exit. There is one thread, so that
preparing a child between fork and exec is safe, and so that children die with the keeper itself.

Arguments: the owner's process id, the cluster's directory, its lock file.
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


class ParentExited(Exception):  # noqa: N818 - it is the normal end, not an error
    """There is nobody left to keep a cluster for."""


class Children:
    """The JVMs, by name."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # Loaded before any fork: a child must not do it between fork and exec.
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def start(self, name: str, argv: list[str], log: str) -> int:
        """Start a process with its output appended to a log; return its process id."""
        if name in self._running:
            raise ValueError(f"{name} is running")
        keeper = os.getpid()

        def die_with_the_keeper() -> None:
            if self._libc is not None:
                self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != keeper:
                    os._exit(1)

        with open(log, "ab") as output:  # noqa: PTH123 - pathlib's open does no more
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=os.path.dirname(log),  # noqa: PTH120
                preexec_fn=die_with_the_keeper,  # noqa: PLW1509 - there are no threads here
            )
        self._running[name] = child
        return child.pid

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a child; that it has ended already is as good."""
        if name in self._running:
            self._running[name].send_signal(number)

    def reap(self) -> list[dict[str, object]]:
        """Forget the children that have ended; return what there is to say of them."""
        ended = [(name, child) for name, child in self._running.items() if child.poll() is not None]
        for name, _ in ended:
            del self._running[name]
        return [{"exit": name, "pid": child.pid, "code": child.returncode} for name, child in ended]

    def kill_all(self) -> None:
        """End every child, paused or not, and wait until it is gone."""
        for child in self._running.values():
            child.kill()
        for child in self._running.values():
            child.wait()


def send(message: dict[str, object]) -> None:
    """Write one line to the owner."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        raise ParentExited from None


def handle_command(children: Children, line: bytes) -> None:
    """Carry out one command and answer it."""
    command = json.loads(line)
    answer: dict[str, object] = {"n": command["n"]}
    try:
        if command["op"] == "start":
            answer["name"] = command["name"]
            answer["pid"] = children.start(command["name"], command["argv"], command["log"])
        else:
            children.signal(command["name"], command["signal"])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        answer["error"] = str(error)
    send(answer)


def serve(children: Children, owner: int) -> None:
    """Serve the owner until it is gone; the end is always `ParentExited`."""
    with selectors.DefaultSelector() as ready:
        wake = _wake_on_signals()
        ready.register(wake, selectors.EVENT_READ)
        ready.register(0, selectors.EVENT_READ)
        # Needed besides the end of stdin: a process forked by the owner may hold the other end of that pipe open.
        watched = _descriptor_of(owner)
        if watched is not None:
            ready.register(watched, selectors.EVENT_READ)
        if os.getppid() != owner:
            raise ParentExited
        send({"ready": os.getpid()})
        unread = b""
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
                *lines, unread = (unread + received).split(b"\n")
                for line in lines:
                    handle_command(children, line)
            elif watched in events:
                raise ParentExited


def _wake_on_signals() -> int:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    # A handler, and not SIG_IGN, because the latter would be handed on to the JVMs.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return read


def _descriptor_of(process: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, where the system has such a thing."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        raise ParentExited from None
    except OSError:
        # An old kernel: the end of stdin has to do.
        return None


def main() -> None:
    """Keep a cluster until its owner is gone, then leave nothing behind."""
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
        # Last, for it says that the directory is ours; the lock itself ends with this process.
        lock.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
