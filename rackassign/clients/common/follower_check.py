"""Whether local is local: a partition with a replica in the reader's rack, read from elsewhere all the same.

A plan with locality `any-replica` counts a partition as local if any replica is in the member's rack. That is true of
the bytes only if the brokers name that replica when asked: with a rack-aware replica selector the leader answers the
first fetch of a consumer that sends its rack with the follower to go to, and with no records. So a leader in another
rack that keeps sending records, of a partition with an in-sync replica here, has no such selector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from rackassign.clients.common.fetch_metrics import FetchedPartition
from rackassign.model import TopicPartition

log = logging.getLogger(__name__)

ENOUGH = 20
"""Responses with records from afar until it is said. One could be by chance: a follower may lag for a moment."""


class FollowerFetchCheck:
    """Watches the fetch responses of one consumer and warns once if it cannot read at home.

    That is: no broker is in its rack, which the first response is the time to look for, or near replicas are never
    named.

    Args:
        rack: The consumer's `client_rack`.
        racks: Tells the racks of the brokers there are now.
        near_elsewhere: Tells of a broker and a partition whether the broker is in another rack while a replica in
            this one is in sync.
    """

    __slots__ = ("_afar", "_done", "_looked", "_near_elsewhere", "_rack", "_racks")

    def __init__(
        self, rack: str, racks: Callable[[], Collection[str]], near_elsewhere: Callable[[int, TopicPartition], bool]
    ) -> None:
        self._rack = rack
        self._racks = racks
        self._looked = False
        self._near_elsewhere = near_elsewhere
        self._afar = 0
        self._done = False

    def __call__(self, broker: int, fetched: Iterable[FetchedPartition]) -> None:
        """Take note of one response."""
        if not self._looked:
            self._looked = True
            self._look_for_rack()
        if self._done:
            return
        for partition in fetched:
            if partition.preferred_replica is not None:
                # The brokers do name followers: all is well, for good.
                self._done = True
                return
            if partition.size and self._near_elsewhere(broker, partition.partition):
                self._afar += 1
                if self._afar >= ENOUGH:
                    self._warn(broker, partition.partition)
                    return

    def _look_for_rack(self) -> None:
        racks = sorted(self._racks())
        if self._rack not in racks:
            self._done = True
            log.warning(
                "client_rack %r is the rack of no broker, so nothing is read at home; racks there are: %s",
                *(self._rack, ", ".join(racks) or "none"),
            )

    def _warn(self, broker: int, partition: TopicPartition) -> None:
        self._done = True
        log.warning(
            "%s-%d has an in-sync replica in rack %r, but broker %d in another rack sends it and names no follower:"
            " is replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector set on the brokers?"
            " Without it only partitions led in this rack are read locally (locality='leader')",
            *(partition.topic, partition.partition, self._rack, broker),
        )
