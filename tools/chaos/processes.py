"""The members' processes: started, stopped, killed and asked to leave by the names of the members."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from .history import MEMBER_FILE, Died, Journal, now
from .layout import TOPICS, WORK_S
from .member import KAFKA_PYTHON, Settings

if TYPE_CHECKING:
    from typing_extensions import Self

_LEAVE_S = 30.0
_ROOT = Path(__file__).parents[2]


class Processes:
    """All processes of a run, ended with the `with` block.

    Args:
        bootstrap: Of the cluster.
        group: The group's name.
        directory: Where they write.
        life_s: None lives longer.
        client: What the members are made of.
    """

    def __init__(self, bootstrap: str, group: str, directory: Path, life_s: float, client: str = KAFKA_PYTHON) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._directory = directory
        self._life_s = life_s
        self._client = client
        self._starts = Counter[str]()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._leaving: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)
        for process in self._leaving.values():
            process.kill()
            process.wait(_LEAVE_S)

    @property
    def names(self) -> tuple[str, ...]:
        """The processes that are members now, as their journals are called."""
        return tuple(sorted(map(self._process_name, self._running)))

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run, by the names of the members."""
        return {name: process.pid for name, process in self._running.items()}

    def start(self, name: str) -> None:
        """Start a process; only from the main thread, since it is killed when the thread that started it ends."""
        self._starts[name] += 1
        process_name = self._process_name(name)
        settings = Settings(
            bootstrap=self._bootstrap,
            group=self._group,
            topics=tuple(TOPICS),
            rack=name[0],
            work_s=WORK_S[name[0]],
            journal=str(self._directory / MEMBER_FILE.format(process_name)),
            life_s=self._life_s,
            client=self._client,
        )
        with (self._directory / f"member-{process_name}.log").open("wb") as said:
            self._running[name] = subprocess.Popen(
                settings.command(), stdin=subprocess.PIPE, stdout=said, stderr=said, cwd=_ROOT
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait(_LEAVE_S)
        _close(process)

    def stop(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGSTOP)

    def wake(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    def leave(self, name: str) -> None:
        process = self._leaving[self._process_name(name)] = self._running.pop(name)
        _close(process)

    def note_deaths(self, journal: Journal) -> None:
        """Note those that have ended uninvited, and those that have not left when they were told to."""
        for name, process in self._running.items():
            if process.poll() is not None:
                journal.note(Died(now(), self._process_name(name), process.returncode))
        for name, process in self._leaving.items():
            try:
                code: int | None = process.wait(_LEAVE_S)
            except subprocess.TimeoutExpired:
                code = None
            if code != 0:
                journal.note(Died(now(), name, code))

    def _process_name(self, name: str) -> str:
        return f"{name}.{self._starts[name]}"


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
