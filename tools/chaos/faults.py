"""What disturbs a group and its cluster: processes of members, an admin client that changes topics, and the faults."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as HostPartition
from kafka.errors import InvalidPartitionsError, KafkaError

from rackassign.testing import Cluster
from rackassign.testing._docker_cluster import DockerCluster
from rackassign.testing.harness import assigned

from .history import MEMBER_FILE, Died, Journal, Moved, Played, Seen, now
from .member import KAFKA_PYTHON, Settings
from .schedule import ADMIN_KINDS, TOPICS, WORK_S, Event, Kind

if TYPE_CHECKING:
    from typing_extensions import Self


_LEAVE_S = 30.0
_ROOT = Path(__file__).parents[2]
_LOOK_EVERY_S = 0.25
_ANSWER_MS = 5000
_PATIENCE_S = 60.0
_BROKER_FAULTS = frozenset({Kind.BROKER_KILL, Kind.BROKER_PAUSE, Kind.BROKER_CUT, Kind.RACK_DOWN})


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


class TopicOperator:
    """An admin client in a thread of its own, as long as the `with` block lasts.

    Args:
        bootstrap: Of the cluster.
        group: The group's name.
        journal: Told of what is done and seen.
    """

    def __init__(self, bootstrap: str, group: str, journal: Journal) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._journal = journal
        self._asked: SimpleQueue[tuple[Event, float]] = SimpleQueue()
        self._open: tuple[Event, float] | None = None
        self._moving = False
        # Each of the two is counted by one thread only.
        self._wanted = 0
        self._changed = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic operator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "an admin client that does not close"

    def submit(self, event: Event) -> None:
        """Have a topic changed as soon as that can be done."""
        self._wanted += 1
        self._asked.put((event, now()))

    @property
    def idle(self) -> bool:
        """Whether all that was asked for is done, to the last replica."""
        return self._changed == self._wanted and not self._moving

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                # One that has met a fault may go on asking whoever is gone; and kafka-python's takes its first
                # coordinator for the coordinator for ever, which says of a group that has moved that it is dead.
                with closing(self._client()) as client:
                    while not self._ended.wait(_LOOK_EVERY_S) and self._serve(client):
                        pass
            except KafkaError:
                continue

    def _client(self) -> Any:
        return KafkaAdminClient(
            bootstrap_servers=self._bootstrap, request_timeout_ms=_ANSWER_MS, bootstrap_timeout_ms=_ANSWER_MS
        )

    def _serve(self, client: Any) -> bool:
        """Do what there is to do; return whether the client is still good for more."""
        self._change(client)
        if self._moving and not client.list_partition_reassignments():
            self._moving = False
            self._journal.note(Moved(now()))
        began = now()
        owned = assigned(client, self._group)
        # As of the time before the question: what came after is not in the answer.
        self._journal.note(Seen(began, None if owned is None else {m: tuple(sorted(o)) for m, o in owned.items()}))
        return owned is not None

    def _change(self, client: Any) -> None:
        if self._open is None:
            try:
                self._open = self._asked.get_nowait()
            except Empty:
                return
        event, began = self._open
        if event.kind is Kind.PARTITION_ADD:
            wanted = {"count": event.partition + 1, "assignments": [list(event.replicas)]}
            # It is there already if the answer to an earlier attempt was lost.
            with suppress(InvalidPartitionsError):
                client.create_partitions({event.target: wanted})
        else:
            place = HostPartition(event.target, event.partition)
            problem = client.alter_partition_reassignments({place: list(event.replicas)})[place]
            if problem is not None:
                raise problem
            self._moving = True
        self._journal.note(Played(event, began, now()))
        self._open = None
        self._changed += 1


class FaultInjector:
    """Plays events on a cluster and a group.

    Args:
        cluster: To be disturbed.
        processes: The members.
        operator: Where changes of topics are asked for.
        journal: Told of what is done.
    """

    def __init__(self, cluster: Cluster, processes: Processes, operator: TopicOperator, journal: Journal) -> None:
        self._cluster = cluster
        self._processes = processes
        self._operator = operator
        self._journal = journal
        self._broker: Mapping[Kind, Callable[[int], None]] = {
            Kind.BROKER_KILL: cluster.kill,
            Kind.BROKER_START: cluster.start,
            Kind.BROKER_PAUSE: cluster.pause,
            Kind.BROKER_RESUME: cluster.resume,
        }
        if isinstance(cluster, DockerCluster):
            self._broker = {**self._broker, Kind.BROKER_CUT: cluster.disconnect, Kind.BROKER_MEND: cluster.reconnect}
        self._member: Mapping[Kind, Callable[[str], None]] = {
            Kind.MEMBER_START: processes.start,
            Kind.MEMBER_JOIN: processes.start,
            Kind.MEMBER_BACK: processes.start,
            Kind.MEMBER_LEAVE: processes.leave,
            Kind.MEMBER_KILL: processes.kill,
            Kind.MEMBER_BLINK: processes.stop,
            Kind.MEMBER_STOP: processes.stop,
            Kind.MEMBER_WAKE: processes.wake,
        }

    def play(self, events: Sequence[Event]) -> None:
        """Play all events in their order, each at its time or later: those behind a late one are late as well."""
        begin = now()
        for event in events:
            time.sleep(max(0.0, begin + event.at - now()))
            if event.kind in _BROKER_FAULTS:
                waited = now()
                # However long a broker took to come back: never two away at once.
                self._cluster.wait_ready()
                begin += now() - waited
            if event.kind in ADMIN_KINDS:
                self._operator.submit(event)
            else:
                began = now()
                self._do(event)
                self._journal.note(Played(event, began, now()))

    def _do(self, event: Event) -> None:
        if event.kind in self._broker:
            self._broker[event.kind](int(event.target))
        elif event.kind in self._member:
            self._member[event.kind](event.target)
        elif event.kind is Kind.RACK_DOWN:
            self._cluster.kill_rack(event.target)
            for name in event.members:
                self._processes.kill(name)
        else:
            self._cluster.start_rack(event.target)
            for name in event.members:
                self._processes.start(name)
