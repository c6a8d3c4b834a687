"""A group that a malformed JoinGroup has wedged inside its broker: telling it from a long rebalance, and freeing it.

When the last member of a rebalance has joined, the broker reads the topics of all subscriptions. If that fails with an
error it does not expect, it stays in the middle: members are all there, nobody is answered, and whatever makes the
broker look again (a join, a leave) fails the same way. So it is made to look, by what cannot make a difference to a
rebalance that is under way: a member is announced, which is none yet, and withdrawn.

That does not show a group whose very first rebalance was broken: there the broker does not look again at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.errors import NoError, UnknownError

from rackassign.admin.groups import GroupAdmin
from rackassign.model import STRATEGY_NAMES
from rackassign.monitoring.groups import PREPARING, MemberDescription, describe_group

_STRATEGIES = (*STRATEGY_NAMES, "roundrobin")

_TIMES = 2
"""A broker may fail for other reasons, but not again."""


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """What was removed from a wedged group.

    Args:
        removed: Members, in order.
        culprit: The last of them, if the group went on when it was gone.
    """

    removed: tuple[MemberDescription, ...] = ()
    culprit: MemberDescription | None = None


def is_wedged(calls: GroupAdmin, name: str) -> bool | None:
    """Tell whether a group that has been preparing a rebalance for some time is wedged.

    Changes nothing in a group that rebalances: while a member is announced the rebalance waits for it, so that it
    cannot end in between. In one that is at rest a withdrawal would start a rebalance, so there is none.

    Args:
        calls: To its coordinator.
        name: Of the group.

    Returns:
        None if it cannot be told: its strategy is none of the standard ones, or the broker does not allow it.

    Raises:
        KafkaError: As the admin client does.
    """
    for _ in range(_TIMES):
        if describe_group(calls, name).state != PREPARING:
            return False
        announced = calls.join_pending(name, _STRATEGIES)
        if announced is None:
            return None
        # If it was over before the announcement, the broker forgets that by itself.
        if describe_group(calls, name).state != PREPARING or calls.leave_pending(name, announced):
            return False
    return True


def recover(admin: KafkaAdminClient, calls: GroupAdmin, name: str) -> RecoveryResult:
    """Remove members of a wedged group one by one until it goes on; does nothing to one that is not wedged.

    The broker shows nothing of what members sent, so which of them it was shows only by what happens without it. None
    of them loses anything: they all wait for an answer that does not come, and who is alive joins again.

    Args:
        admin: To remove with.
        calls: To the coordinator.
        name: Of the group.

    Raises:
        KafkaError: As the admin client does.
    """
    removed: list[MemberDescription] = []
    if not is_wedged(calls, name):
        return RecoveryResult()
    for member in describe_group(calls, name).members:
        try:
            answers = admin.remove_group_members(name, [MemberToRemove(member_id=member.id)])
        except UnknownError:
            # Gone it is, but the broker has failed again over those that are left.
            removed.append(member)
            continue
        if answers.get(member.id) is NoError:
            removed.append(member)
            return RecoveryResult(tuple(removed), member)
    return RecoveryResult(tuple(removed))
