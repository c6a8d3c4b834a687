"""Groups that a malformed JoinGroup has wedged inside their broker: detection, and recovery.

When the last member of a rebalance has joined, the broker decodes the topics of all subscriptions. If that fails with
an unexpected error, the broker stays in the middle of the rebalance: all members have joined, none gets a response, and
every further trigger (a join, a leave) fails the same way. So the detection triggers it with a request that cannot
affect a rebalance in progress: it announces a member, which is not yet one, and withdraws it.

This does not detect a group whose very first rebalance was broken: there the broker does not try again at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.errors import NoError, UnknownError

from rackassign.admin.groups import GroupAdmin
from rackassign.model import STRATEGY_NAMES
from rackassign.monitoring.live_groups import PREPARING, MemberDescription, describe_group

_STRATEGIES = (*STRATEGY_NAMES, "roundrobin")

_TIMES = 2
"""A broker may fail for other reasons, but not repeatedly."""


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """Members that were removed from a wedged group.

    Args:
        removed: Removed members, in order.
        culprit: The last of them, if the group continued after that.
    """

    removed: tuple[MemberDescription, ...] = ()
    culprit: MemberDescription | None = None


def is_wedged(calls: GroupAdmin, name: str) -> bool | None:
    """Return whether a group that has been preparing a rebalance for some time is wedged.

    Nothing changes in a group that rebalances: an announced member makes the rebalance wait for it, so that it cannot
    complete in between. In a stable group a withdrawal would start a rebalance, so none is sent.

    Args:
        calls: Requests to its coordinator.
        name: Name of the group.

    Returns:
        None if it cannot be determined: its strategy is not a standard one, or the broker does not allow it.

    Raises:
        KafkaError: Raised by the admin client.
    """
    for _ in range(_TIMES):
        if describe_group(calls, name).state != PREPARING:
            return False
        announced = calls.join_pending(name, _STRATEGIES)
        if announced is None:
            return None
        # If the rebalance was over before the announcement, the broker forgets that member by itself.
        if describe_group(calls, name).state != PREPARING or calls.leave_pending(name, announced):
            return False
    return True


def recover(
    admin: KafkaAdminClient,
    calls: GroupAdmin,
    name: str,
    report_removed: Callable[[MemberDescription], None] = lambda _: None,
) -> RecoveryResult:
    """Remove members of a wedged group one by one until it continues; do nothing to a group that is not wedged.

    The broker shows nothing of what members sent, so the culprit can only be found by removing members. None of them
    loses anything: they all wait for a response that does not come, and live members rejoin.

    Args:
        admin: Admin client.
        calls: Requests to the coordinator.
        name: Name of the group.
        report_removed: Called with each member that was removed: an error after that discards the result.

    Raises:
        KafkaError: Raised by the admin client.
    """
    removed: list[MemberDescription] = []
    for member in describe_group(calls, name).members:
        # Another process may have freed it in the meantime. Members that are removed then are not what has wedged it.
        if not is_wedged(calls, name):
            break
        try:
            answers = admin.remove_group_members(name, [MemberToRemove(member_id=member.id)])
        except UnknownError:
            # The member is removed, but the broker has failed again on the remaining ones.
            removed.append(member)
            report_removed(member)
            continue
        if answers.get(member.id) is NoError:
            removed.append(member)
            report_removed(member)
            return RecoveryResult(tuple(removed), member)
    return RecoveryResult(tuple(removed))
