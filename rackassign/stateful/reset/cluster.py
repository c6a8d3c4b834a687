"""The cluster on which a reset is executed, through kafka-python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

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
from rackassign.errors import ConfigError, KafkaUnavailableError, WireError
from rackassign.model import TopicPartition
from rackassign.monitoring.live_groups import GroupDescription, find_group
from rackassign.stateful.changelog.replay import HEADER, is_of_earlier_format, read_change
from rackassign.stateful.reset.decision import Commit, RecordCheck
from rackassign.util.text import short_repr, truncate

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
    """A cluster on which state is reset.

    Args:
        admin: A `KafkaAdminClient` that is not used elsewhere meanwhile.
        connection: Connection properties of a consumer.
    """

    def __init__(self, admin: KafkaAdminClient, connection: Mapping[str, Any]) -> None:
        self._admin = admin
        self._groups = GroupAdmin(admin)
        self._connection = connection

    def group(self, name: str) -> GroupDescription | None:
        """Return a group; None if it does not exist."""
        return find_group(self._groups, name)

    def group_names(self) -> list[str]:
        """Return the names of all consumer groups that may be described; none if brokers do not list them."""
        found: list[str] = []
        try:
            for broker in list_brokers(self._admin):
                known = {} if broker.fenced else list_groups_on(self._admin, broker.id)
                # A group that never had members has no type.
                found += [name for name, kind in known.items() if kind in {"consumer", ""}]
        except KafkaError:
            # Without them an error has no hint, and members of other groups are not found.
            return []
        return found

    def commits(self, group: str) -> dict[TopicPartition, Commit]:
        """Return the committed offsets of a group."""
        found = self._groups.commits(group)
        return {tp: Commit(each.offset, each.metadata == _MARK) for tp, each in found.items()}

    def topic_names(self) -> list[str]:
        """Return the names of all topics that may be described."""
        found: list[str] = self._admin.list_topics()
        return found

    def partitions(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of those topics that exist."""
        found = describe_topics(self._admin, names)
        for name, topic in found.items():
            if topic.refused:
                raise AuthorizationError("DESCRIBE", topic_resource([name]))
            if topic.problem and not topic.unknown:
                raise KafkaUnavailableError(f"topic {truncate(name)} is not described: {topic.problem}")
        return {name: len(topic.partitions) for name, topic in found.items() if not topic.problem}

    def cleanup_policies(self, names: Iterable[str]) -> dict[str, str]:
        """Return `cleanup.policy` of topics."""
        wanted = list(names)
        found = topic_configs(self._admin, wanted, [_POLICY]) if wanted else {}
        return {name: values[_POLICY] for name, values in found.items()}

    def check_may_delete(self, names: Iterable[str]) -> None:
        """Raise `AuthorizationError` if DELETE on one of the topics is known to be missing."""
        check_operation(self._admin, "DELETE", names)

    def check_may_delete_offsets(self, group: str, topics: Iterable[str]) -> None:
        """Raise `AuthorizationError` if a permission for offsets of the group and of topics is known to be missing."""
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
        """Mark committed offsets; raise `ConfigError` if the group has members."""
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
        """Delete committed offsets; raise `ConfigError` if the group has members."""
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
    """Return where a record is that rackassign has not written; empty if none of those that are read is one.

    Args:
        reader: A consumer.
        starts: Offsets to read from.
        ends: End offsets.
        to_end: Whether to read to the end, or only the first records.
    """
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
                if (why := _why_foreign(record)) and record.offset < ends[tp]:
                    return f"the record at offset {record.offset} of partition {tp.partition} is foreign ({why})"
            if records and not to_end:
                missing.discard(tp)
        missing -= {tp for tp in missing if reader.position(tp) >= ends[tp]}
    return ""


def _why_foreign(record: Any) -> str:  # noqa: ANN401 - kafka-python is untyped
    header = next((value for name, value in record.headers or () if name == HEADER), None)
    if is_of_earlier_format(header):
        # Members ignore it, so a reset is the way to be rid of it.
        return ""
    try:
        read_change(record.key, record.value, header)
    except WireError as error:
        return error.problem
    return ""
