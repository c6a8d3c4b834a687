"""A group of members by name, and when it has settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError

from rackassign.admin.admin_client import connected
from rackassign.admin.raw_requests import GroupCoordinators
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.testing.harness.members import TIMEOUT_S, GroupMember, Owned, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

MemberT = TypeVar("MemberT", bound=GroupMember)


class GroupHarness(Generic[MemberT]):
    """Members of one group by name, as long as the `with` block lasts.

    Args:
        client_config: Connection arguments of a kafka-python client, such as `cluster.client_config()`.
        group: The group's name (`group.id`).
        topics: Number of partitions of each topic that the members subscribe to.

    Attributes:
        admin: An admin client of the cluster.
        members: Members that have been added and have not ended.
        client_config, group, topics: The arguments.
    """

    def __init__(self, client_config: Mapping[str, Any], group: str, topics: Mapping[str, int]) -> None:
        self.group = group
        self.members: dict[str, MemberT] = {}
        self.client_config = client_config
        self.topics = dict(topics)
        self._open: dict[str, ExitStack] = {}

    def __enter__(self) -> Self:
        self.admin = connected(KafkaAdminClient, self.client_config)
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self.admin), ExitStack() as members:
            for opened in self._open.values():
                members.push(opened)

    def renew_admin(self) -> None:
        """Replace the admin client: kafka-python's keeps asking the coordinator that it found first.

        That one may have ended. `settle` itself finds a coordinator that has moved.
        """
        self.admin.close()
        self.admin = connected(KafkaAdminClient, self.client_config)

    def add(self, name: str, member: Any) -> None:  # noqa: ANN401 - a MemberT that is a context manager
        """Start a member; it joins the group in its own time.

        Raises:
            ConfigError: There is a member with this name.
        """
        if name in self.members:
            raise ConfigError(f"there is a member {name!r} already: members of one rack need different names")
        opened = ExitStack()
        self.members[name] = opened.enter_context(member)
        self._open[name] = opened

    def end(self, name: str) -> None:
        """Close a member, and wait until it has left the group."""
        del self.members[name]
        self._open.pop(name).close()

    def settle(self) -> dict[str, Owned]:
        """Wait until every partition is owned exactly once, as the coordinator assigned it.

        Returns:
            The partitions of each member, by its name.

        Raises:
            TimeoutError: It did not happen in `TIMEOUT_S`.
        """
        owned = settle(self.admin, self.group, list(self.members.values()), self.topics)
        return dict(zip(self.members, owned, strict=True))


def settle(
    admin: KafkaAdminClient,
    group: str,
    members: Sequence[GroupMember],
    topics: Mapping[str, int],
    *,
    timeout_s: float = TIMEOUT_S,
) -> list[Owned]:
    """Wait until a group is stable, has exactly these members, and each owns what the coordinator assigned to it.

    Args:
        admin: Client that asks the coordinator.
        group: The group's name.
        members: All of its members.
        topics: Number of partitions of each topic; each of them must be owned exactly once.
        timeout_s: Time limit in seconds.

    Returns:
        The partitions of each member.

    Raises:
        TimeoutError: It did not happen in time; the message has what members own and what was assigned.
    """
    expected = sorted(TopicPartition(topic, p) for topic, count in topics.items() for p in range(count))
    owned: list[Owned] = []

    def look() -> bool:
        for member in members:
            member.poll()
        ids = [member.id for member in members]
        owned[:] = [member.assignment() for member in members]
        # The coordinator is asked last: before the first member has joined there may be none.
        whole = sorted(tp for tps in owned for tp in tps) == expected
        return whole and assigned(admin, group) == dict(zip(ids, owned, strict=True))

    try:
        wait_until(look, f"group {group} to settle", timeout_s=timeout_s)
    except TimeoutError as error:
        seen = [(member.id, sorted(member.assignment())) for member in members]
        raise TimeoutError(f"{error}; members own {seen}, the coordinator has {assigned(admin, group)}") from None
    return owned


def assigned(admin: KafkaAdminClient, group: str) -> dict[str, Owned] | None:
    """Return the partitions that the coordinator has for each member ID; None if the group is not stable."""
    try:
        described = admin.describe_groups([group])[group]
    except CoordinatorNotAvailableError:
        # The topic of offsets is being created, or none of its replicas for this group is online.
        return None
    if described.get("error"):
        # kafka-python's admin client asks the coordinator that it found first, for ever.
        GroupCoordinators(admin).forget(group)
    if described["group_state"] != "Stable":
        return None
    return {
        member["member_id"]: frozenset(
            TopicPartition(of_topic["topic"], partition)
            for of_topic in member["member_assignment"]["assigned_partitions"]
            for partition in of_topic["partitions"]
        )
        for member in described["members"]
    }
