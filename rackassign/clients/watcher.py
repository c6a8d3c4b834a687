"""The watch of a leader: when it looks, and what it does then.

It looks after each refresh of the metadata, some time after an assignment is complete, in case the refresh came while
the join was under way, and when the watch says so. A rebalance is asked for openly, and not by way of a client's
snapshot of the metadata, which no client has for racks; and a join that kafka-python's snapshot started is never read
if it finishes between two polls and the remedy for that is off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from rackassign.clients.decisions import Decisions
from rackassign.clients.membership import AnyCluster, Membership, time_limit_s
from rackassign.clients.watch import Gain, Watch
from rackassign.model import Topology
from rackassign.racks import RackMemory
from rackassign.util.log_once import Once


class Watcher:
    """Watches the racks of replicas for the group that a consumer leads; all of it runs where the client calls us.

    Args:
        watch: Says what to do.
        decisions: What this consumer decided as the leader.
        topology: Reads topics out of the client's view of the cluster.
        log: For what a rebalance is asked for.
        once: For what goes wrong.
        clock: Seconds, only forward.
    """

    def __init__(
        self,
        watch: Watch,
        decisions: Decisions,
        topology: Callable[[AnyCluster, Iterable[str]], Topology],
        log: logging.Logger,
        once: Once,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._decisions = decisions
        self._topology = topology
        self._log = log
        self._once = once
        self._clock = clock
        self._due: float | None = None
        self._seen_at = clock()
        self._asked = False

    def refreshed(self, membership: Membership, racks: RackMemory) -> None:
        """Look at metadata that have just come; never raises."""
        self._seen_at = self._clock()
        self.look(membership, racks)

    def look(self, membership: Membership, racks: RackMemory) -> None:
        """Look now, and again when that is wanted; never raises."""
        try:
            self._look(membership, racks)
        except Exception:  # noqa: BLE001 - what cannot be watched must still be consumed
            self._once.warn("watch", "the racks of replicas cannot be watched", exc_info=True)

    def _look(self, membership: Membership, racks: RackMemory) -> None:
        decided = self._decisions.last
        if decided is None or decided.group is None:
            return
        topics = sorted(frozenset[str]().union(*(member.topics for member in decided.group.members)))
        topology = racks.complete(self._topology(membership.cluster(), topics))
        limit_s = min(time_limit_s(membership), membership.spare_s())
        look = self._watch.look(self._clock(), decided, topology, self._seen_at, limit_s)
        if look.gain is not None:
            self._log.info("%s", _described(look.gain))
            self._asked = True
            membership.ask_for_rebalance()
        if look.again_s is not None:
            self._look_in(look.again_s, membership, racks)
        if look.refresh:
            membership.refresh_metadata()

    def look_later(self, membership: Membership, racks: RackMemory) -> None:
        """Look when a change there is now would have lasted long enough; never raises."""
        try:
            if self._decisions.last is not None:
                self._look_in(self._watch.times.debounce_s, membership, racks)
                if self._asked:
                    # What it was asked for may go on: a reassignment does not end for a rebalance.
                    self._asked = False
                    membership.refresh_metadata()
        except Exception:  # noqa: BLE001 - as above
            self._once.warn("watch", "the racks of replicas cannot be watched", exc_info=True)

    def _look_in(self, seconds: float, membership: Membership, racks: RackMemory) -> None:
        now = self._clock()
        due = now + seconds
        if self._due is None or not now < self._due <= due:
            membership.later(seconds, lambda: self._look_if_due(due, membership, racks))
            self._due = due

    def _look_if_due(self, due: float, membership: Membership, racks: RackMemory) -> None:
        if due == self._due:
            self._due = None
            self.look(membership, racks)


def _described(gain: Gain) -> str:
    return (
        f"replica racks of {gain.changed} partitions have changed: a rebalance makes {gain.then.local} local instead"
        f" of {gain.now.local}, {gain.then.cross} cross racks instead of {gain.now.cross}, and moves {gain.moved}"
    )
