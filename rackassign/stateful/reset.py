"""Reset of the state of a group without members: its changelogs and its committed offsets are deleted.

Nothing is deleted unless all of it may be: each changelog must be compacted, and the records that are read of it must
be those of rackassign. Offsets are marked before the changelogs are deleted, and deleted behind them. So a reset that
was interrupted is recognized and completed, and offsets of a group without changelogs are never deleted. Since Kafka
refuses to commit offsets of a group that has members, the mark also proves that it has none.

What may be deleted is decided without I/O. `KafkaResetCluster` asks Kafka, and deletes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    KafkaError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)

from rackassign.admin.admin_client import AuthorizationError, requires, topic_resource
from rackassign.admin.alter import TopicAdmin
from rackassign.admin.describe import (
    check_operation,
    describe_topics,
    describe_topics_on,
    list_brokers,
    list_groups_on,
    topic_configs,
)
from rackassign.admin.groups import CommittedOffset, GroupAdmin
from rackassign.assignor.standby import default_changelog
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.monitoring.live_groups import GroupDescription, find_group
from rackassign.stateful._changelog import is_change, is_of_earlier_format
from rackassign.text import counted, did_you_mean, join_first, short_repr, truncate

_NAMED = 3


class Commit(NamedTuple):
    """A committed offset, and whether an earlier reset has marked it and perhaps deleted changelogs."""

    offset: int
    marked: bool = False


class RecordCheck(NamedTuple):
    """The records of a topic: how many at most, and where one was found that is foreign; empty if none was."""

    records: int
    foreign: str = ""


class ResetCluster(Protocol):
    """What a reset needs of a cluster. Each method may raise `KafkaUnavailableError`."""

    def group(self, name: str) -> GroupDescription | None:
        """Return a group; None if it does not exist."""

    def group_names(self) -> Collection[str]:
        """Return the names of all consumer groups that may be described."""

    def commits(self, group: str) -> Mapping[TopicPartition, Commit]:
        """Return the committed offsets of a group."""

    def topic_names(self) -> Collection[str]:
        """Return the names of all topics that may be described."""

    def partitions(self, names: Iterable[str]) -> Mapping[str, int]:
        """Return the number of partitions of those topics that exist."""

    def cleanup_policies(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return `cleanup.policy` of topics."""

    def check_records(self, name: str, partitions: int) -> RecordCheck:
        """Return whether records of a topic are those of rackassign."""

    def check_may_delete(self, names: Iterable[str]) -> None:
        """Raise `AuthorizationError` if DELETE on one of the topics is known to be missing."""

    def check_may_delete_offsets(self, group: str, topics: Iterable[str]) -> None:
        """Raise `AuthorizationError` if a permission for offsets of the group and of topics is known to be missing."""

    def mark(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Mark committed offsets; raise `ConfigError` if the group has members."""

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics, and wait until all brokers know it."""

    def delete_offsets(self, group: str, tps: Iterable[TopicPartition]) -> None:
        """Delete committed offsets; raise `ConfigError` if the group has members."""


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """What is to be reset; empty for all topics with committed offsets, and for changelogs with the default names."""

    group: str
    topics: tuple[str, ...] = ()
    changelogs: tuple[str, ...] = ()


class ChangelogDeletion(NamedTuple):
    """A changelog to delete, and the highest number of records that it may have."""

    name: str
    partitions: int
    records: int


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset deletes."""

    group: str
    changelogs: tuple[ChangelogDeletion, ...]
    offsets: Mapping[TopicPartition, int]
    # What is not reset, and why.
    warnings: tuple[str, ...] = ()


def plan_reset(cluster: ResetCluster, request: ResetRequest) -> ResetPlan:
    """Return what a reset deletes; nothing is changed."""
    known = _is_known(cluster, request)
    commits = cluster.commits(request.group) if known else {}
    topics = _topics(request, commits)
    names = dict.fromkeys(request.changelogs, "") or {default_changelog(request.group, t): t for t in topics}
    there = cluster.partitions([*names, *topics])
    _check_names(cluster, topics, names, there, commits)
    existing = [name for name in names if name in there]
    offsets = {
        tp: commit.offset
        for tp, commit in sorted(commits.items())
        if tp.topic in topics and (commit.marked or _is_reset(request, tp.topic, existing))
    }
    if not existing and not offsets:
        raise ConfigError(_nothing(cluster, request, names, known=known))
    _check_unused(cluster, request.group, existing)
    changelogs = _checked(cluster, existing, there, topics)
    if offsets:
        cluster.check_may_delete_offsets(request.group, {tp.topic for tp in offsets if tp.topic in there})
    marked = {tp.topic for tp, commit in commits.items() if commit.marked}
    missing = {name: topic for name, topic in names.items() if name not in there}
    warnings = [*_missing_changelogs(cluster, missing, marked), *_similar_topics(cluster, request, names)]
    return ResetPlan(request.group, changelogs, offsets, tuple(warnings))


def execute_reset(cluster: ResetCluster, plan: ResetPlan) -> None:
    """Delete what a plan contains; after an error the same reset can be planned and executed again."""
    _check_stopped(plan.group, cluster.group(plan.group))
    if plan.changelogs:
        if plan.offsets:
            cluster.mark(plan.group, plan.offsets)
        cluster.delete_topics([each.name for each in plan.changelogs])
    if plan.offsets:
        cluster.delete_offsets(plan.group, plan.offsets)


def _is_known(cluster: ResetCluster, request: ResetRequest) -> bool:
    """Return whether the group exists; without it, only changelogs with its name in theirs can be reset."""
    group = cluster.group(request.group)
    _check_stopped(request.group, group)
    if group is None and (request.changelogs or not request.topics):
        raise ConfigError(_unknown_group(cluster, request.group))
    return group is not None


def _check_stopped(name: str, group: GroupDescription | None) -> None:
    if group is not None and group.members:
        named = join_first([truncate(f"{m.client_id} on {m.host}") for m in group.members], _NAMED)
        raise ConfigError(
            f"group {short_repr(name)} has {counted(len(group.members), 'member')}: {named}; stop all members first"
        )


def _unknown_group(cluster: ResetCluster, name: str) -> str:
    hint = did_you_mean(name, cluster.group_names())
    return f"group: there is no consumer group {short_repr(name)} on this cluster{hint}"


def _topics(request: ResetRequest, commits: Mapping[TopicPartition, Commit]) -> tuple[str, ...]:
    """Return the input topics: those that are named, or else those that the committed offsets name."""
    committed = sorted({tp.topic for tp in commits})
    if request.topics:
        return tuple(dict.fromkeys(request.topics))
    if not committed and not request.changelogs:
        raise ConfigError(
            f"group {short_repr(request.group)} has no committed offsets, which name its topics: use --topic, or"
            " --changelog for changelogs with names of their own"
        )
    by_name = {default_changelog(request.group, topic): topic for topic in committed}
    if request.changelogs and by_name.keys() >= set(request.changelogs):
        return tuple(by_name[name] for name in dict.fromkeys(request.changelogs))
    return tuple(committed)


def _check_names(
    cluster: ResetCluster,
    topics: Collection[str],
    names: Mapping[str, str],
    there: Mapping[str, int],
    commits: Mapping[TopicPartition, Commit],
) -> None:
    """Refuse topics of which nothing exists: neither themselves, nor a changelog, nor committed offsets."""
    committed = {tp.topic for tp in commits}
    of = {topic: name for name, topic in names.items()}
    for topic in topics:
        if topic not in there and topic not in committed and of.get(topic) not in there:
            hint = did_you_mean(topic, cluster.topic_names())
            raise ConfigError(f"topic {short_repr(topic)} does not exist on this cluster{hint}")


def _is_reset(request: ResetRequest, topic: str, found: Collection[str]) -> bool:
    """Return whether the changelog of a topic exists; of a changelog with another name the topic is not known."""
    return bool(found) if request.changelogs else default_changelog(request.group, topic) in found


def _nothing(cluster: ResetCluster, request: ResetRequest, names: Collection[str], *, known: bool) -> str:
    """Return the message if neither changelogs nor offsets of an earlier reset were found."""
    if not known:
        return _unknown_group(cluster, request.group)
    if request.changelogs:
        return _missing(cluster, next(iter(names)))
    return (
        f"group {short_repr(request.group)} has no changelog: {join_first([truncate(n) for n in names], _NAMED)}"
        f" do{'es' if len(names) == 1 else ''} not exist; use --changelog for changelogs with names of their own"
    )


def _missing(cluster: ResetCluster, name: str) -> str:
    return f"changelog {short_repr(name)} does not exist on this cluster{did_you_mean(name, cluster.topic_names())}"


def _checked(
    cluster: ResetCluster, names: Collection[str], there: Mapping[str, int], topics: Collection[str]
) -> tuple[ChangelogDeletion, ...]:
    for name in names:
        if name in topics or name.startswith("__"):
            why = "it is an input topic of the group" if name in topics else "it belongs to Kafka"
            raise ConfigError(_not_ours(name, why))
    policies = cluster.cleanup_policies(names)
    for name in names:
        if policies.get(name) != "compact":
            raise ConfigError(_not_ours(name, f"it has cleanup.policy={policies.get(name)}"))
    cluster.check_may_delete(names)
    found = []
    for name in names:
        checked = cluster.check_records(name, there[name])
        if checked.foreign:
            raise ConfigError(_not_ours(name, checked.foreign))
        found.append(ChangelogDeletion(name, there[name], checked.records))
    return tuple(found)


def _check_unused(cluster: ResetCluster, group: str, names: Collection[str]) -> None:
    """Refuse changelogs that have the default name of another group's, if members of that group read its input."""
    there = set(cluster.topic_names())
    for other in cluster.group_names():
        begin, end = default_changelog(other, "\0").split("\0")
        topics = {name.removeprefix(begin).removesuffix(end): name for name in names if name.startswith(begin)}
        if other == group or not topics.keys() & there:
            continue
        found = cluster.group(other)
        used = sorted(topics.keys() & _read_topics(found)) if found is not None else []
        if used:
            raise ConfigError(
                f"changelog {short_repr(topics[used[0]])} has the name of that of group {short_repr(other)}, whose"
                f" members read {truncate(used[0])}: stop them first"
            )


def _read_topics(group: GroupDescription) -> set[str]:
    subscribed = (member.subscription.topics for member in group.members if member.subscription is not None)
    return {topic for topics in (*subscribed, *(member.assigned for member in group.members)) for topic in topics}


def _not_ours(name: str, why: str) -> str:
    return f"topic {short_repr(name)} is not a changelog of rackassign, so nothing is deleted: {why}"


def _missing_changelogs(cluster: ResetCluster, missing: Mapping[str, str], marked: Collection[str]) -> Iterable[str]:
    """Yield a warning for each changelog that does not exist, unless an earlier reset may have deleted it."""
    for name, topic in missing.items():
        if topic and topic not in marked:
            yield f"topic {short_repr(topic)} has no changelog {truncate(name)}; use --changelog if it has another name"
        elif not topic and not marked:
            yield _missing(cluster, name)


def _similar_topics(cluster: ResetCluster, request: ResetRequest, names: Collection[str]) -> Iterable[str]:
    """Yield a warning for each topic that looks like another changelog of the group, if all are to be reset."""
    if request.topics or request.changelogs:
        return
    begin, end = default_changelog(request.group, "\0").split("\0")
    for name in sorted(cluster.topic_names()):
        if name.startswith(begin) and name.endswith(end) and name not in names and len(name) > len(begin + end):
            yield (
                f"topic {short_repr(name)} is kept, since the group has no committed offsets of its input: if it is a"
                " changelog of the group, use --changelog"
            )


_MARK = "rackassign state reset"
"""Metadata of offsets whose changelogs are being deleted."""

_POLICY = "cleanup.policy"
_JOINED = (GroupSubscribedToTopicError, IllegalGenerationError, NonEmptyGroupError, UnknownMemberIdError)

_LAST = 100
"""Number of offsets at the end of a partition whose records are checked, beside the first ones."""

_FETCH_BYTES = 65_536
_READ_MS, _READ_S = 200, 60.0
_GONE_S, _LOOK_S = 20.0, 0.2


class KafkaResetCluster:
    """A cluster on which state is reset; nothing else uses its admin client meanwhile."""

    def __init__(self, admin: KafkaAdminClient, connection: Mapping[str, Any]) -> None:
        self._admin = admin
        self._groups = GroupAdmin(admin)
        self._connection = connection

    def group(self, name: str) -> GroupDescription | None:
        return find_group(self._groups, name)

    def group_names(self) -> list[str]:
        """Return the names of all consumer groups that may be described; none if brokers do not list them."""
        names: list[str] = []
        try:
            for broker in list_brokers(self._admin):
                known = {} if broker.fenced else list_groups_on(self._admin, broker.id)
                # A group that never had members has no type.
                names += [name for name, kind in known.items() if kind in {"consumer", ""}]
        except KafkaError:
            # Without them an error has no hint, and members of other groups are not found.
            return []
        return names

    def commits(self, group: str) -> dict[TopicPartition, Commit]:
        found = self._groups.commits(group)
        return {tp: Commit(each.offset, each.metadata == _MARK) for tp, each in found.items()}

    def topic_names(self) -> list[str]:
        found: list[str] = self._admin.list_topics()
        return found

    def partitions(self, names: Iterable[str]) -> dict[str, int]:
        found = describe_topics(self._admin, names)
        for name, topic in found.items():
            if topic.refused:
                raise AuthorizationError("DESCRIBE", topic_resource([name]))
            if topic.problem and not topic.unknown:
                raise KafkaUnavailableError(f"topic {truncate(name)} is not described: {topic.problem}")
        return {name: len(topic.partitions) for name, topic in found.items() if not topic.problem}

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, str]:
        wanted = list(names)
        found = topic_configs(self._admin, wanted, [_POLICY]) if wanted else {}
        return {name: values[_POLICY] for name, values in found.items()}

    def check_may_delete(self, names: Iterable[str]) -> None:
        check_operation(self._admin, "DELETE", names)

    def check_may_delete_offsets(self, group: str, topics: Iterable[str]) -> None:
        self._groups.check_operations(group, ("DELETE", "READ"))
        check_operation(self._admin, "READ", topics)

    def check_records(self, name: str, partitions: int) -> RecordCheck:
        """Return whether the first and the last records of each partition are those of rackassign."""
        tps = [KafkaPythonPartition(name, partition) for partition in range(partitions)]
        # kafka-python (3.0.12) raises KeyError for a partition whose leader has not responded.
        try:
            with requires("READ", topic_resource([name])), closing(self._reader()) as reader:
                begins, ends = reader.beginning_offsets(tps), reader.end_offsets(tps)
                records = sum(ends[tp] - begins[tp] for tp in tps)
                lasts = {tp: max(begins[tp], ends[tp] - _LAST) for tp in tps}
                foreign = _foreign(reader, begins, ends, to_end=False) or _foreign(reader, lasts, ends, to_end=True)
        except KeyError as error:
            raise KafkaUnavailableError(f"the offsets of topic {truncate(name)} are not available: {error}") from None
        return RecordCheck(records, foreign)

    def _reader(self) -> KafkaConsumer:
        return KafkaConsumer(
            **self._connection,
            client_id="rackassign",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=_FETCH_BYTES,
        )

    def mark(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with _without_members(group):
            self._groups.commit(group, {tp: CommittedOffset(offset, _MARK) for tp, offset in offsets.items()})

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics, and wait until all brokers know it: a member must not find the former topic."""
        wanted = list(names)
        TopicAdmin(self._admin).delete(wanted)
        deadline = time.monotonic() + _GONE_S
        while (broker := self._broker_with(wanted)) is not None:
            if time.monotonic() >= deadline:
                raise KafkaUnavailableError(
                    f"broker {broker} still has metadata of deleted changelogs: repeat the command to delete the"
                    " committed offsets as well"
                )
            time.sleep(_LOOK_S)

    def _broker_with(self, names: Sequence[str]) -> int | None:
        """Return a broker that still has metadata of one of the topics; brokers that do not respond are left out."""
        for broker in list_brokers(self._admin):
            if broker.fenced:
                continue
            try:
                found = describe_topics_on(self._admin, broker.id, names)
            except KafkaError:
                # Members do not get metadata from it either.
                continue
            # A user who may not describe a topic that does not exist gets a refusal in place of that.
            if not all(topic.unknown or topic.refused for topic in found.values()):
                return broker.id
        return None

    def delete_offsets(self, group: str, tps: Iterable[TopicPartition]) -> None:
        with _without_members(group):
            self._groups.delete_offsets(group, tps)


@contextmanager
def _without_members(group: str) -> Iterator[None]:
    try:
        yield
    except _JOINED:
        raise ConfigError(
            f"group {short_repr(group)} has members by now: stop them, and repeat the command to complete it"
        ) from None


def _foreign(
    reader: Any,  # noqa: ANN401 - kafka-python is untyped
    starts: Mapping[Any, int],
    ends: Mapping[Any, int],
    *,
    to_end: bool,
) -> str:
    """Return where a record is that rackassign has not written; empty if none of those that are read is one."""
    # `to_end`: whether to read to the end, or only the first records.
    missing = {tp for tp, start in starts.items() if start < ends[tp]}
    if not missing:
        return ""
    reader.assign(list(missing))
    for tp in missing:
        reader.seek(tp, starts[tp])
    deadline = time.monotonic() + _READ_S
    while missing:
        if time.monotonic() >= deadline:
            tp = min(missing)
            raise KafkaUnavailableError(f"{tp.topic}-{tp.partition} cannot be read from {starts[tp]} to {ends[tp]}")
        for tp, records in reader.poll(timeout_ms=_READ_MS).items():
            for record in records:
                # Members refuse the earlier format, so a reset is the way to be rid of it.
                if not (is_change(record) or is_of_earlier_format(record)) and record.offset < ends[tp]:
                    return (
                        f"the record at offset {record.offset} of partition {tp.partition} is foreign (its key is none"
                        " of a state)"
                    )
            if records and not to_end:
                missing.discard(tp)
        missing -= {tp for tp in missing if reader.position(tp) >= ends[tp]}
    return ""
