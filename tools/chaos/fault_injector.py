"""Does to a group and its cluster what a schedule says, and notes when each thing really took place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rackassign.testing import Cluster
from rackassign.testing._docker_cluster import DockerCluster

from .history import Journal, Played, now
from .layout import ADMIN_KINDS, Event, Kind
from .processes import Processes
from .topic_operator import TopicOperator

_BROKER_FAULTS = frozenset({Kind.BROKER_KILL, Kind.BROKER_PAUSE, Kind.BROKER_CUT, Kind.RACK_DOWN})


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
