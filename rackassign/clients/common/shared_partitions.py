"""The partitions of a topology, one object for all that have equal replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from rackassign.model import Partition


class SharedPartitions(dict[tuple[int, tuple[int, ...]], Partition]):
    """Partitions by their leader and their replicas, created when they are first asked for.

    A group has tens of thousands of partitions, and only as many different ones as there are lists of replicas. In the
    metadata -1 is a leader that is not known, and a replica that does not exist.

    Args:
        leader: Attribute of a client's metadata of a partition: the broker ID of its leader.
        replicas: The same for those of its replicas.
    """

    def __init__(self, leader: str, replicas: str) -> None:
        super().__init__()
        self._leader: Callable[[Any], int] = attrgetter(leader)
        self._replicas: Callable[[Any], Iterable[int]] = attrgetter(replicas)

    def __missing__(self, key: tuple[int, tuple[int, ...]]) -> Partition:
        leader, replicas = key
        made = Partition(
            replicas=tuple(replica for replica in replicas if replica >= 0), leader=leader if leader >= 0 else None
        )
        self[key] = made
        return made

    def of_topic(self, metadata: Mapping[int, Any]) -> tuple[Partition, ...]:
        """Return the partitions of a topic.

        Args:
            metadata: A client's metadata of each partition, by its ID; not empty. Brokers list all partitions of a
                topic. If one were missing, it would still have to be assigned, without leader and replicas here.
        """
        count = max(metadata) + 1
        # Tens of thousands on a leader, so nothing is done for each of them in Python.
        wires = [*map(metadata.get, range(count))]
        if len(metadata) < count:
            return tuple(self[(-1, ()) if wire is None else self._key(wire)] for wire in wires)
        keys = zip(map(self._leader, wires), map(tuple, map(self._replicas, wires)), strict=True)
        return tuple(map(self.__getitem__, keys))

    def _key(self, wire: Any) -> tuple[int, tuple[int, ...]]:  # noqa: ANN401 - the clients are untyped
        return self._leader(wire), tuple(self._replicas(wire))
