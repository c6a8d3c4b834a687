"""How a consumer ends: by `close()`, or without it, when nobody has it any more."""

from __future__ import annotations

import logging
import threading

from rackassign.clients.confluent.commits import Commits
from rackassign.clients.confluent.fetcher import PartitionFetcher
from rackassign.clients.confluent.group_member import GroupMember
from rackassign.clients.confluent.rebalance import Callbacks, RebalanceHandler

log = logging.getLogger(__name__)

_CLOSE_S = 10.0


def close_consumer(
    member: GroupMember, reader: PartitionFetcher, rebalances: RebalanceHandler, commits: Commits
) -> None:
    """Give up everything, leave the group and end both clients, whatever of it fails.

    Raises:
        KafkaException: Something could not be committed, or the group not be left in order.
    """
    try:
        try:
            rebalances.give_up(reader.held, lost=member.lost())
        finally:
            commits.end()
    finally:
        try:
            member.close(_CLOSE_S)
        finally:
            reader.consumer.close()


def close_in_background(
    member: GroupMember, reader: PartitionFetcher, rebalances: RebalanceHandler, commits: Commits
) -> None:
    """Do the same for a consumer that was dropped; on a thread, for nobody knows on which one it is dropped.

    Nobody is called back about partitions: there is no consumer to do it with. The process waits for this at its end.
    """
    rebalances.callbacks = Callbacks()

    def run() -> None:
        log.warning("a consumer was dropped without close(): it leaves its group")
        try:
            close_consumer(member, reader, rebalances, commits)
        except Exception:
            log.exception("a consumer that was dropped did not end in order")

    threading.Thread(target=run, name="rackassign-dropped-consumer").start()
