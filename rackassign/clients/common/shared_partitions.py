"""The partitions of a topology, one object for all that have equal replicas."""

from __future__ import annotations

from collections.abc import Iterable

from rackassign.model import Partition

MISSING = (-1,)
"""Leader and replicas of a partition that the client's metadata skips."""


class SharedPartitions(dict[tuple[int, ...], Partition]):
    """Partitions by their leader and their replicas, created when they are first asked for.

    A group has tens of thousands of partitions, and only as many different ones as there are lists of replicas. In the
    metadata -1 is a leader that is not known, and a replica that does not exist.
    """

    def __missing__(self, leader_and_replicas: tuple[int, ...]) -> Partition:
        leader, *replicas = leader_and_replicas
        made = Partition(
            replicas=tuple(replica for replica in replicas if replica >= 0), leader=leader if leader >= 0 else None
        )
        self[leader_and_replicas] = made
        return made

    def of_topic(self, leaders_and_replicas: Iterable[tuple[int, ...]]) -> tuple[Partition, ...]:
        """Return the partitions of a topic.

        Args:
            leaders_and_replicas: Of each partition, from 0: the broker ID of its leader, and those of its replicas.
                Brokers list all partitions of a topic. If one were missing, it would still have to be assigned, with
                `MISSING` here.
        """
        return tuple(map(self.__getitem__, leaders_and_replicas))
