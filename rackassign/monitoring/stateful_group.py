"""Where the state of a group is: the active member of each partition, and its copies.

Members of a `StandbyAwareAssignor`, and of Kafka Streams, send the positions of their copies with each join, and the
leader sends which copies a member is to keep. The coordinator shows both while the group is stable. So positions are as
old as the last rebalance, and the end of a changelog less such a position is what a copy lacks at most.

The bytes of changelogs on their brokers are those that the leader of each partition reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.describe import DescribedTopic, describe_log_dirs, describe_topics
from rackassign.assignor.standby import default_changelog
from rackassign.errors import ConfigError, WireError
from rackassign.model import TopicPartition
from rackassign.monitoring.live_groups import GroupDescription, MemberDescription
from rackassign.text import counted, join_first, join_ids, name_error, short_repr, truncate
from rackassign.wire.streams import (
    ACTIVE_SUM,
    StreamsAssignmentInfo,
    StreamsSubscriptionInfo,
    TaskId,
    decode_streams,
    decode_streams_assignment,
)


class StateCopy(NamedTuple):
    """A copy of a partition's state.

    Args:
        member: Its member.
        position: Its position in the changelog at the member's last join; None if it had none.
    """

    member: MemberDescription
    position: int | None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Where the state of a partition is.

    Args:
        tp: The partition of the input.
        changelog: Its partition of the changelog; None if no copy of its topic states it.
        active: The member that processes it; None if there is none.
        copies: Its copies on other members.
    """

    tp: TopicPartition
    changelog: TopicPartition | None
    active: MemberDescription | None
    copies: tuple[StateCopy, ...]


@dataclass(frozen=True, slots=True)
class GroupState:
    """Where the state of a group is.

    Args:
        group: The group.
        partitions: Its partitions, in order.
        tags: Client tags of each member, by member ID.
    """

    group: GroupDescription
    partitions: tuple[PartitionState, ...]
    tags: Mapping[str, Mapping[str, str]]


def describe_state(group: GroupDescription, committed: Iterable[TopicPartition] = ()) -> GroupState:
    """Return where the state of a group is.

    Args:
        group: The group; in a rebalance its members show nothing.
        committed: Partitions with committed offsets, if it has no members: they have state, but no active member.

    Raises:
        ConfigError: The group is in a rebalance, or its members do not keep copies of state.
    """
    if not group.is_stable:
        raise ConfigError(f"group {short_repr(group.name)} is in a rebalance ({group.state}); try again")
    sent = {member.id: _sent(member) for member in group.members}
    assigned = {member.id: _assigned(member) for member in group.members}
    if group.members and not any(info is not None for info in sent.values()):
        raise ConfigError(
            f"group {short_repr(group.name)}: no member sends what StandbyAwareAssignor or Kafka Streams send, so there"
            " are no copies of state"
        )
    active = {
        TopicPartition(topic, i): member
        for member in group.members
        for topic, ids in member.assigned.items()
        for i in ids
    }
    copies: dict[TopicPartition, list[StateCopy]] = {}
    changelogs: dict[TopicPartition, TopicPartition] = {}
    for member in group.members:
        info, given = sent[member.id], assigned[member.id]
        for task, places in ({} if given is None else given.standby).items():
            tp = TopicPartition(task.topology or "", task.partition)
            copies.setdefault(tp, []).append(StateCopy(member, _position(info, task)))
            if places:
                changelogs.setdefault(tp, places[0])
    tps = sorted({*active, *copies, *committed})
    # All partitions of a topic have one changelog.
    logs = {tp.topic: changelog.topic for tp, changelog in changelogs.items()}
    for tp in tps:
        if tp not in changelogs and tp.topic in logs:
            changelogs[tp] = TopicPartition(logs[tp.topic], tp.partition)
    _share(group.name, tps, copies, changelogs)
    partitions = tuple(
        PartitionState(tp, changelogs.get(tp), active.get(tp), tuple(sorted(copies.get(tp, ()), key=_name)))
        for tp in tps
    )
    return GroupState(group, partitions, {m: {} if i is None else dict(i.tags) for m, i in sent.items()})


def _share(
    group: str,
    tps: Iterable[TopicPartition],
    copies: dict[TopicPartition, list[StateCopy]],
    changelogs: dict[TopicPartition, TopicPartition],
) -> None:
    """Give all co-partitioned topics the changelog and the copies, which are named by the first one of them.

    Members do not send which topics are co-partitioned. The name of the changelog shows it, unless it is one of the
    user's.
    """
    topics = sorted({tp.topic for tp in tps})
    name = default_changelog(group, *topics)
    for tp in tps:
        first = TopicPartition(topics[0], tp.partition)
        if first in changelogs and changelogs[first].topic == name:
            changelogs[tp] = changelogs[first]
            copies[tp] = copies.get(first, [])


def with_default_changelogs(state: GroupState, sizes: Callable[[Iterable[str]], Mapping[str, int]]) -> GroupState:
    """Return the same with changelogs that no copy states, if they exist: a group without copies names none.

    Args:
        state: Where the state of a group is.
        sizes: Return the number of partitions of those topics that exist.
    """
    topics = sorted({each.tp.topic for each in state.partitions if each.changelog is None and each.tp.topic})
    if not topics:
        return state
    names = {topic: default_changelog(state.group.name, topic) for topic in topics}
    joint = default_changelog(state.group.name, *topics)
    found = sizes(dict.fromkeys((*names.values(), joint)))

    def completed(each: PartitionState) -> PartitionState:
        name = names.get(each.tp.topic, "")
        name = name if name in found else joint
        if each.changelog is not None or each.tp.partition >= found.get(name, 0):
            return each
        return replace(each, changelog=TopicPartition(name, each.tp.partition))

    return replace(state, partitions=tuple(map(completed, state.partitions)))


def lag_of(copy: StateCopy, changelog: TopicPartition | None, ends: Mapping[TopicPartition, int]) -> int | None:
    """Return the records that a copy lacks at most; None if that is unknown.

    Args:
        copy: The copy.
        changelog: Partition of its changelog.
        ends: End offsets of changelogs.
    """
    if copy.position is None or changelog is None or changelog not in ends:
        return None
    return max(0, ends[changelog] - copy.position)


def _name(copy: StateCopy) -> tuple[str, str]:
    return copy.member.client_id, copy.member.id


def _position(info: StreamsSubscriptionInfo | None, task: TaskId) -> int | None:
    position = None if info is None else info.task_offset_sums.get(task)
    return None if position is None or (position < 0 and position != ACTIVE_SUM) else max(0, position)


def _sent(member: MemberDescription) -> StreamsSubscriptionInfo | None:
    """Return what a member has sent about its state; None if it sends nothing of the kind."""
    data = None if member.subscription is None else member.subscription.user_data
    if not data:
        return None
    try:
        return decode_streams(data)
    except WireError:
        return None


def _assigned(member: MemberDescription) -> StreamsAssignmentInfo | None:
    """Return what the leader has sent to a member; None if it is nothing of the kind."""
    if not member.assignment_data:
        return None
    try:
        return decode_streams_assignment(member.assignment_data)
    except WireError:
        return None


_NAMED = 3


@dataclass(frozen=True, slots=True)
class ChangelogSizes:
    """Sizes of changelogs.

    Args:
        bytes: Size of each partition's replica on its leader; unknown ones are missing.
        problem: Why some are unknown, in one line; empty if none is.
    """

    bytes: Mapping[TopicPartition, int] = field(default_factory=dict)
    problem: str = ""


def read_changelog_sizes(admin: KafkaAdminClient, changelogs: Iterable[TopicPartition]) -> ChangelogSizes:
    """Return the sizes of changelogs; a broker that does not report them affects only its own partitions.

    Args:
        admin: Admin client.
        changelogs: Partitions of changelogs.
    """
    wanted = sorted(set(changelogs))
    try:
        topics = describe_topics(admin, {tp.topic for tp in wanted})
    except KafkaError as error:
        return ChangelogSizes(problem=name_error(error))
    led: dict[int, list[TopicPartition]] = {}
    reasons: dict[str, list[int]] = {}
    for tp in wanted:
        leader, reason = _leader(topics, tp)
        if leader is None:
            reasons.setdefault(reason, [])
        else:
            led.setdefault(leader, []).append(tp)
    sizes: dict[TopicPartition, int] = {}
    for broker, tps in sorted(led.items()):
        try:
            directories = describe_log_dirs(admin, broker, {tp.topic: len(topics[tp.topic].partitions) for tp in tps})
        except KafkaError as error:
            reasons.setdefault(name_error(error), []).append(broker)
            continue
        sizes |= {tp: directories[tp] for tp in tps if tp in directories}
        if not directories.keys() >= set(tps):
            reasons.setdefault("no sizes in the response, perhaps DESCRIBE on the cluster is missing", []).append(
                broker
            )
    return ChangelogSizes(sizes, join_first([_explained(*row) for row in reasons.items()], _NAMED))


def _leader(topics: Mapping[str, DescribedTopic], tp: TopicPartition) -> tuple[int | None, str]:
    """Return the leader of a partition, or why there is none."""
    name, topic = truncate(tp.topic), topics.get(tp.topic, DescribedTopic())
    if topic.problem:
        return None, f"{name}: {topic.problem}"
    if tp.partition >= len(topic.partitions):
        return None, f"{name} has {counted(len(topic.partitions), 'partition')} only"
    leader = topic.partitions[tp.partition].leader
    return leader, "" if leader is not None else f"{name}-{tp.partition} has no leader"


def _explained(reason: str, brokers: list[int]) -> str:
    if not brokers:
        return reason
    return f"{reason} (broker{'' if len(brokers) == 1 else 's'} {join_ids(brokers)})"
