"""Changes topics, which may take a while when brokers are away, and looks at the group all the time."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as HostPartition
from kafka.errors import InvalidPartitionsError, KafkaError

from rackassign.testing.harness import assigned

from .history import Journal, Moved, Played, Seen, now
from .layout import Event, Kind

if TYPE_CHECKING:
    from typing_extensions import Self

_LOOK_EVERY_S = 0.25
_ANSWER_MS = 5000
_PATIENCE_S = 60.0


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
