"""Descriptions of groups by their coordinators: with the undecoded bytes of members, and with members of KIP-848.

kafka-python's own `describe_groups` decodes every member and raises at the first whose bytes are not UTF-8, and it has
no request for groups of KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import TopicPartition as KafkaPythonPartition
from kafka import errors
from kafka.admin import ACLOperation
from kafka.protocol import admin as protocol
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest, OffsetDeleteRequest, OffsetFetchRequest
from kafka.structs import OffsetAndMetadata

from rackassign.admin.admin_client import (
    AuthorizationError,
    check_authorized,
    group_resource,
    requires,
    topic_resource,
)
from rackassign.admin.raw_requests import GroupCoordinators
from rackassign.model import Partitions, TopicPartition

_NOT_FOUND = (errors.GroupIdNotFoundError, errors.InvalidGroupIdError)

_PENDING_MS = 10_000
"""Milliseconds after which a pending member is removed."""


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as described by its group coordinator."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    # Its subscription, which is empty unless the group is stable, and its assignment from the group leader, undecoded.
    metadata: bytes = b""
    assignment: bytes = b""
    # Whether it joined with JoinGroup; None if the broker is too old to report it.
    classic: bool | None = True
    # From here on only in a server-assigned group.
    rack: str | None = None
    topics: tuple[str, ...] = ()
    assigned: Partitions = field(default_factory=dict)
    pattern: str = ""
    # Epoch of the assignment that it has; -1 in a classic group.
    epoch: int = -1
    # Partitions that it is to have.
    target: Partitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as described by its coordinator."""

    state: str
    # "consumer" for consumers; may be empty in a group without members.
    protocol_type: str
    # The strategy chosen by the group, empty unless it is stable; the broker's own in a server-assigned group.
    strategy: str
    members: tuple[DescribedMember, ...]
    # Of a server-assigned group, otherwise -1: the epoch, which grows with each change of members or topics; that for
    # which the broker last planned; and the node ID of the coordinator, which plans.
    epoch: int = -1
    assignment_epoch: int = -1
    coordinator: int = -1


class CommittedOffset(NamedTuple):
    """A committed offset, and the text that was committed with it."""

    offset: int
    metadata: str


class GroupAdmin:
    """Requests about groups, sent to their coordinators. Nothing else uses the admin client meanwhile."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin
        self._coordinators = GroupCoordinators(admin)
        self._ask = self._coordinators.ask

    def listed_type(self, group: str) -> str:
        """Return the type with which brokers list a group, such as `share`; empty if none lists it."""
        # Coordinators answer that a group of another type than requested does not exist.
        with suppress(errors.KafkaError):
            for found in self._admin.list_groups():
                if found["group_id"] == group:
                    return str(found.get("group_type") or "")
        return ""

    def describe_classic_group(self, group: str) -> DescribedGroup | None:
        """Describe a classic group, in which members assign; None if there is none of that name."""
        with requires("DESCRIBE", group_resource(group)):
            described = self._ask(group, protocol.DescribeGroupsRequest(groups=[group])).groups[0]
            # Brokers before KIP-1043 have no error for it.
            if _failed(described.error_code, *_NOT_FOUND) or described.group_state == "Dead":
                return None
        return DescribedGroup(
            described.group_state,
            described.protocol_type,
            described.protocol_data,
            tuple(map(_classic_member, described.members)),
        )

    def describe_consumer_group(self, group: str) -> DescribedGroup | None:
        """Describe a group of KIP-848; None if there is none of that name, or brokers do not support it."""
        try:
            with requires("DESCRIBE", group_resource(group)):
                described = self._ask(group, ConsumerGroupDescribeRequest(group_ids=[group])).groups[0]
                if errors.for_code(described.error_code) is errors.TopicAuthorizationFailedError:
                    # The members contain the names of the topics.
                    raise AuthorizationError("DESCRIBE", f"all topics of {group_resource(group)}")
                if _failed(described.error_code, *_NOT_FOUND, errors.UnsupportedVersionError):
                    return None
        except errors.IncompatibleBrokerVersion:
            return None
        return DescribedGroup(
            described.group_state,
            "consumer",
            described.assignor_name,
            tuple(map(_served_member, described.members)),
            described.group_epoch,
            described.assignment_epoch,
            self._coordinators.coordinator(group),
        )

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group; partitions without one, or with an error, are omitted."""
        return {tp: committed.offset for tp, committed in self.commits(group).items()}

    def commits(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group with their metadata, as `committed_offsets` does."""
        # kafka-python's `list_group_offsets` raises for the first partition with an error, and for a moved coordinator.
        with requires("DESCRIBE", group_resource(group)):
            try:
                wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
                # Version 8 (Kafka 3.0) is the first with a list of groups.
                response = self._ask(group, OffsetFetchRequest(groups=[wanted], min_version=8, max_version=8)).groups[0]
            except errors.IncompatibleBrokerVersion:
                # Version 2 is the first that can request all partitions.
                response = self._ask(
                    group, OffsetFetchRequest(group_id=group, topics=None, min_version=2, max_version=7)
                )
            _failed(response.error_code)
        return {
            TopicPartition(topic.name, row.partition_index): CommittedOffset(row.committed_offset, row.metadata or "")
            for topic in response.topics
            for row in topic.partitions
            if not row.error_code and row.committed_offset >= 0
        }

    def check_operations(self, group: str, operations: Iterable[str]) -> None:
        """Check that operations are allowed on a group, as far as brokers report it (classic groups, 2.3 and later)."""
        request = protocol.DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
        with requires("DESCRIBE", group_resource(group)):
            allowed = self._ask(group, request).groups[0].authorized_operations
        for operation in operations:
            if allowed and ACLOperation[operation] not in allowed:
                raise AuthorizationError(operation, group_resource(group))

    def commit(self, group: str, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets of a group without members; partitions of topics that do not exist are skipped."""
        wanted = {
            KafkaPythonPartition(*tp): OffsetAndMetadata(each.offset, each.metadata, -1) for tp, each in commits.items()
        }
        with requires("READ", group_resource(group)):
            found = self._admin.alter_group_offsets(group, wanted)
            for tp, error in found.items():
                if error is errors.TopicAuthorizationFailedError:
                    raise AuthorizationError("READ", topic_resource([tp.topic]))
                # `UnknownMemberIdError` or `IllegalGenerationError` if the group has members.
                if error not in {errors.NoError, errors.UnknownTopicOrPartitionError}:
                    raise error

    def delete_offsets(self, group: str, tps: Iterable[TopicPartition]) -> None:
        """Delete committed offsets; partitions without one, and a group that does not exist, are skipped."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(tps):
            by_topic.setdefault(topic, []).append(partition)
        rows = OffsetDeleteRequest.OffsetDeleteRequestTopic
        cells = rows.OffsetDeleteRequestPartition
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                rows(name=topic, partitions=[cells(partition_index=partition) for partition in partitions])
                for topic, partitions in by_topic.items()
            ],
        )
        with requires("DELETE", group_resource(group)):
            # `NonEmptyGroupError` or `GroupSubscribedToTopicError` if the group has members.
            response = self._ask(group, request)
            if _failed(response.error_code, *_NOT_FOUND):
                return
        for topic in response.topics:
            for row in topic.partitions:
                check_authorized(row.error_code, "READ", topic_resource([topic.name]))
                _failed(row.error_code, errors.UnknownTopicOrPartitionError)

    def join_pending(self, group: str, strategies: tuple[str, ...]) -> str | None:
        """Do the first of the two steps of a join; return the member ID, or None if the group rejects it.

        The pending member is not in the group yet. A rebalance that is under way waits for it, until it leaves. All
        members must have one of the strategies.
        """
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=_PENDING_MS,
            rebalance_timeout_ms=_PENDING_MS,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=b"") for name in strategies],
            # The first version in which a join has two steps.
            min_version=4,
        )
        try:
            response = self._ask(group, request)
        except errors.IncompatibleBrokerVersion:
            return None
        announced = errors.for_code(response.error_code) is errors.MemberIdRequiredError
        return str(response.member_id) if announced else None

    def leave_pending(self, group: str, member: str) -> bool:
        """Remove a pending member; return False if the broker failed at it."""
        identity = LeaveGroupRequest.MemberIdentity(member_id=member, group_instance_id=None)
        response = self._ask(group, LeaveGroupRequest(group_id=group, members=[identity], min_version=3))
        return not _failed(response.error_code, errors.UnknownError)


def _failed(code: int, *expected: type[Exception]) -> bool:
    """Return whether the code is one of these errors; raise any other error."""
    error: Any = errors.for_code(code)
    if error is errors.NoError:
        return False
    if error not in expected:
        raise error
    return True


def _classic_member(member: Any) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        bytes(member.member_metadata or b""),
        bytes(member.member_assignment or b""),
    )


def _served_member(member: Any) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        classic={0: True, 1: False}.get(member.member_type),
        rack=member.rack_id or None,
        topics=tuple(member.subscribed_topic_names or ()),
        assigned=_partitions(member.assignment),
        pattern=member.subscribed_topic_regex or "",
        epoch=member.member_epoch,
        target=_partitions(member.target_assignment),
    )


def _partitions(assignment: Any) -> Partitions:
    return {row.topic_name: tuple(row.partitions) for row in assignment.topic_partitions}


def _field(name: str, kind: str, *fields: dict[str, Any], since: int = 0, nullable: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "type": kind, "versions": f"{since}+"}
    if nullable:
        made |= {"nullableVersions": "0+", "default": "null"}
    return {**made, "fields": list(fields)} if fields else made


def _message(kind: str, *fields: dict[str, Any]) -> dict[str, Any]:
    known = {"apiKey": 69, "validVersions": "0-1", "flexibleVersions": "0+"}
    return {**known, "type": kind.lower(), "name": f"ConsumerGroupDescribe{kind}", "fields": list(fields)}


_REQUEST = _message("Request", _field("GroupIds", "[]string"), _field("IncludeAuthorizedOperations", "bool"))
_PARTITIONS = _field(
    "TopicPartitions",
    "[]TopicPartitions",
    *(_field("TopicId", "uuid"), _field("TopicName", "string"), _field("Partitions", "[]int32")),
)

_MEMBER = (
    _field("MemberId", "string"),
    _field("InstanceId", "string", nullable=True),
    _field("RackId", "string", nullable=True),
    _field("MemberEpoch", "int32"),
    _field("ClientId", "string"),
    _field("ClientHost", "string"),
    _field("SubscribedTopicNames", "[]string"),
    _field("SubscribedTopicRegex", "string", nullable=True),
    _field("Assignment", "Assignment", _PARTITIONS),
    _field("TargetAssignment", "Assignment", _PARTITIONS),
    _field("MemberType", "int8", since=1),
)

_RESPONSE = _message(
    "Response",
    _field("ThrottleTimeMs", "int32"),
    _field(
        "Groups",
        "[]DescribedGroup",
        _field("ErrorCode", "int16"),
        _field("ErrorMessage", "string", nullable=True),
        _field("GroupId", "string"),
        _field("GroupState", "string"),
        _field("GroupEpoch", "int32"),
        _field("AssignmentEpoch", "int32"),
        _field("AssignorName", "string"),
        _field("Members", "[]Member", *_MEMBER),
        _field("AuthorizedOperations", "int32"),
    ),
)


def _own_messages() -> Any:
    """Create the request and its response, which kafka-python lacks; none of its own classes is replaced."""

    # So named because kafka-python reads a schema from a file named like the class, which `json_patch` may change.
    class DescribeGroupsResponse(ApiMessage):  # type: ignore[misc] # kafka-python is untyped
        @classmethod
        def json_patch(cls, _json: Any) -> Any:
            return _RESPONSE

    class DescribeGroupsRequest(ApiMessage):  # type: ignore[misc] # kafka-python is untyped
        # kafka-python keeps only weak references to responses.
        response = DescribeGroupsResponse

        @classmethod
        def json_patch(cls, _json: Any) -> Any:
            return _REQUEST

    return DescribeGroupsRequest


ConsumerGroupDescribeRequest: Any = getattr(protocol, "ConsumerGroupDescribeRequest", None) or _own_messages()
