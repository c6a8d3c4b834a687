"""Closing of a consumer: by `close()`, or without it, when the object is garbage-collected."""

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
    """Revoke everything, leave the group and close both clients, even if a step fails.

    Raises:
        KafkaException: A commit failed, or leaving the group did.
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
    """Close a consumer that was garbage-collected; on a new thread, since the current thread may be any.

    No rebalance callbacks are called, because there is no consumer to pass to them. The process waits for this at exit.
    """
    rebalances.callbacks = Callbacks()

    def run() -> None:
        log.warning("a consumer was garbage-collected without close(): it leaves its group")
        try:
            close_consumer(member, reader, rebalances, commits)
        except Exception:
            log.exception("closing a garbage-collected consumer failed")

    threading.Thread(target=run, name="rackassign-dropped-consumer").start()
