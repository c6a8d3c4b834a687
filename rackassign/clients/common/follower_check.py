"""Check that local partitions are read locally: whether a replica in the reader's rack is used for fetching.

A plan with locality `any-replica` counts a partition as local if any replica is in the member's rack. The bytes are
local only if the brokers name that replica. With a rack-aware replica selector, the leader's response to the first
fetch of a consumer that sends its rack names the follower to read from, and contains no records. So if a leader in
another rack keeps sending records of a partition with an in-sync replica in this rack, it has no such selector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from rackassign.clients.common.fetch_metrics import FetchedPartition
from rackassign.model import TopicPartition

log = logging.getLogger(__name__)

ENOUGH = 20
"""Number of cross-rack responses with records before the warning. A follower may lag for a moment, so one is not
enough."""


class FollowerFetchCheck:
    """Checks the fetch responses of one consumer and warns once if it cannot read locally.

    The warning is logged if no broker is in the consumer's rack, which is checked at each response until there is one,
    or if local replicas are never named.

    Args:
        rack: The consumer's `client_rack`.
        racks: Returns the racks of the brokers in the current metadata.
        near_elsewhere: Returns for a broker and a partition whether the broker is in another rack while a replica in
            this one is in sync.
    """

    __slots__ = ("_cross_rack", "_done", "_found", "_near_elsewhere", "_rack", "_racks", "_warned")

    def __init__(
        self, rack: str, racks: Callable[[], Collection[str]], near_elsewhere: Callable[[int, TopicPartition], bool]
    ) -> None:
        self._rack = rack
        self._racks = racks
        self._found = self._warned = False
        self._near_elsewhere = near_elsewhere
        self._cross_rack = 0
        self._done = False

    def __call__(self, broker: int, fetched: Iterable[FetchedPartition]) -> None:
        """Process one response."""
        if self._done or not self._has_rack():
            return
        for partition in fetched:
            if partition.preferred_replica is not None:
                # The brokers name followers: the check is done for good.
                self._done = True
                return
            if partition.size and self._near_elsewhere(broker, partition.partition):
                self._cross_rack += 1
                if self._cross_rack >= ENOUGH:
                    self._warn(broker, partition.partition)
                    return

    def _has_rack(self) -> bool:
        """Return whether a broker is in the consumer's rack; warn once if there is none.

        In an outage of the rack there is none for a time, so it is looked for until it is found.
        """
        if self._found:
            return True
        racks = sorted(self._racks())
        self._found = self._rack in racks
        if not self._found and not self._warned:
            self._warned = True
            log.warning(
                "client_rack %r is the rack of no broker, so nothing is read locally; racks of brokers: %s",
                *(self._rack, ", ".join(racks) or "none"),
            )
        return self._found

    def _warn(self, broker: int, partition: TopicPartition) -> None:
        self._done = True
        log.warning(
            "%s-%d has an in-sync replica in rack %r, but broker %d in another rack sends it and names no follower:"
            " is replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector set on the brokers?"
            " Without it only partitions led in this rack are read locally (locality='leader')",
            *(partition.topic, partition.partition, self._rack, broker),
        )
