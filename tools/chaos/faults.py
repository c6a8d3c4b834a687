"""What disturbs a group and its cluster: an admin client that changes topics, and the faults."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from queue import Empty, Queue
from typing import Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as HostPartition
from kafka.errors import InvalidPartitionsError, KafkaError

from rackassign.testing import Cluster
from rackassign.testing._docker_cluster import DockerCluster
from rackassign.testing.harness import assigned
from tests.helpers.kafka.example_members import Members

from .history import Died, Journal, Moved, Played, Seen, now
from .schedule import ADMIN_KINDS, Event, Kind

_LEAVE_S = 30.0
_LOOK_EVERY_S = 0.25
_PATIENCE = {"request_timeout_ms": 5000, "bootstrap_timeout_ms": 5000}
_BROKER_FAULTS = frozenset({Kind.BROKER_KILL, Kind.BROKER_PAUSE, Kind.BROKER_CUT, Kind.RACK_DOWN})


class TopicOperator:
    """Changes topics, and looks at a group, with an admin client on a thread of its own."""

    def __init__(self, bootstrap: str, group: str, journal: Journal) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._journal = journal
        self._asked: Queue[tuple[Event, float]] = Queue()
        self._open: tuple[Event, float] | None = None
        self._moving = False

    def submit(self, event: Event) -> None:
        """Have a topic changed as soon as that can be done."""
        self._asked.put((event, now()))

    @property
    def idle(self) -> bool:
        """Whether all that was asked for is done, to the last replica."""
        return not self._asked.unfinished_tasks and not self._moving

    def run(self, over: threading.Event) -> None:
        """Work until it is over."""
        while not over.is_set():
            try:
                # One that has met a fault may go on asking whoever is gone; and kafka-python's takes its first
                # coordinator for the coordinator for ever, which says of a group that has moved that it is dead.
                with closing(KafkaAdminClient(bootstrap_servers=self._bootstrap, **_PATIENCE)) as client:
                    while not over.wait(_LOOK_EVERY_S) and self._serve(client):
                        pass
            except KafkaError:
                continue

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
        self._asked.task_done()


class FaultInjector:
    """Plays events on a cluster and a group."""

    def __init__(self, cluster: Cluster, members: Members, operator: TopicOperator, journal: Journal) -> None:
        self._cluster = cluster
        self.members = members
        self._left = set[str]()
        self.operator = operator
        self.journal = journal
        self._broker: Mapping[Kind, Callable[[int], None]] = {
            Kind.BROKER_KILL: cluster.kill,
            Kind.BROKER_START: cluster.start,
            Kind.BROKER_PAUSE: cluster.pause,
            Kind.BROKER_RESUME: cluster.resume,
        }
        if isinstance(cluster, DockerCluster):
            self._broker = {**self._broker, Kind.BROKER_CUT: cluster.disconnect, Kind.BROKER_MEND: cluster.reconnect}
        self._member: Mapping[Kind, Callable[[str], None]] = {
            Kind.MEMBER_START: members.start,
            Kind.MEMBER_JOIN: members.start,
            Kind.MEMBER_BACK: members.start,
            Kind.MEMBER_LEAVE: self._leave,
            Kind.MEMBER_KILL: members.kill,
            Kind.MEMBER_BLINK: partial(members.signal, signal.SIGSTOP),
            Kind.MEMBER_STOP: partial(members.signal, signal.SIGSTOP),
            Kind.MEMBER_WAKE: partial(members.signal, signal.SIGCONT),
        }

    @property
    def staying(self) -> tuple[str, ...]:
        """The processes that are members now, as their journals are called."""
        return tuple(f"{name}.{each.pid}" for name, each in self.members.running.items() if name not in self._left)

    def note_deaths(self) -> None:
        """Note processes that have ended uninvited, and those that have not left when they were told to."""
        for name, process in self.members.running.items():
            code = process.poll()
            if name in self._left:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(_LEAVE_S)
            if code != (0 if name in self._left else None):
                self.journal.note(Died(now(), f"{name}.{process.pid}", code))

    def _leave(self, name: str) -> None:
        self.members.terminate(name)
        self._left.add(name)

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
                self.operator.submit(event)
            else:
                began = now()
                self._do(event)
                self.journal.note(Played(event, began, now()))

    def _do(self, event: Event) -> None:
        if event.kind in self._broker:
            self._broker[event.kind](int(event.target))
        elif event.kind in self._member:
            self._member[event.kind](event.target)
        elif event.kind is Kind.RACK_DOWN:
            self._cluster.kill_rack(event.target)
            self.members.kill(*event.members)
        else:
            self._cluster.start_rack(event.target)
            self.members.start(*event.members)
