"""Subscription codecs: what a member sends when it joins, and what a leader reads of what the members sent.

There is one codec for each protocol of the assignors. They differ in claims: which partitions a member owns, and of
which generation.

* `range` needs no claims.
* `sticky` (eager): the last partitions, in the user data of Java's `StickyAssignor`.
* `cooperative-sticky`: the owned partitions and their generation, in the subscription's own fields (KIP-429, KIP-792).

In the cooperative protocol the claim determines which partitions a member keeps and which are withheld from others. A
false claim leaves a partition without reader. So a member claims what its consumer owns now, and not its last
assignment: the client empties the owned partitions when membership is lost and reduces them when a topic is
unsubscribed, without notifying assignors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from rackassign.clients.common.member_context import MemberContext
from rackassign.clients.common.subscriptions import owned_from_subscription
from rackassign.errors import WireError
from rackassign.model import Partitions
from rackassign.wire import StickyData, Subscription, decode_sticky, encode_sticky


class SubscriptionCodec(Protocol):
    """Encodes the subscription of a member, and decodes the claims of all members."""

    cooperative: ClassVar[bool]
    """Whether members keep the partitions they claim while they join."""

    def encode(self, topics: tuple[str, ...]) -> Subscription:
        """Return the subscription of this member to these topics; must not raise."""

    def claims(self, subscription: Subscription) -> tuple[Partitions, int | None]:
        """Return the partitions that a member claims, and their generation; None if that is not known."""

    def on_assigned(self, given: Partitions, generation: int) -> None:
        """Record this member's own assignment."""


class RangeCodec:
    """Topics and rack (KIP-881).

    Args:
        member: The member.
    """

    cooperative: ClassVar[bool] = False

    def __init__(self, member: MemberContext) -> None:
        self._member = member

    def encode(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack."""
        return Subscription(topics, rack=self._member.rack)

    def claims(self, subscription: Subscription) -> tuple[Partitions, int | None]:
        """Return the owned partitions that members send in spite of the protocol; range has no use for them."""
        return owned_from_subscription(subscription)

    def on_assigned(self, given: Partitions, generation: int) -> None:
        """Do nothing."""


class StickyCodec:
    """Topics, rack, and the last partitions as the user data of Java's `StickyAssignor`.

    Args:
        member: The member.
    """

    cooperative: ClassVar[bool] = False

    def __init__(self, member: MemberContext) -> None:
        self._member = member
        self._last: StickyData | None = None

    def encode(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack, and as user data this member's last partitions; null before the first assignment."""
        user_data = None
        if self._last is not None:
            # A member of a large group owns as many topics as it subscribes to.
            wanted = frozenset(topics)
            owned = {topic: partitions for topic, partitions in self._last.owned.items() if topic in wanted}
            user_data = encode_sticky(self._last._replace(owned=owned))
        return Subscription(topics, user_data, rack=self._member.rack)

    def claims(self, subscription: Subscription) -> tuple[Partitions, int | None]:
        """Return the last partitions of a member; nothing if its user data cannot be decoded."""
        try:
            data = decode_sticky(subscription.user_data)
        except WireError as error:
            self._member.once.warn(
                "user data",
                "%s: the last partitions of a member cannot be decoded: %s",
                *(self._member.name, error),
            )
            return {}, None
        return data.owned, data.generation

    def on_assigned(self, given: Partitions, generation: int) -> None:
        """Record this member's partitions and their generation."""
        self._last = StickyData(given, generation)


class CooperativeCodec:
    """Topics, rack, owned partitions, and the generation of their assignment.

    Without a known consumer a member claims its last assignment, and its leader corrects false claims.

    Args:
        member: The member.
        owned: Returns the partitions that the member claims; by default those that its consumer owns.

    Attributes:
        generation: Generation of the last assignment; -1 before there was one.
    """

    cooperative: ClassVar[bool] = True

    def __init__(self, member: MemberContext, owned: Callable[[], Partitions | None] | None = None) -> None:
        self._member = member
        self._owned = owned or member.owned
        self._given: Partitions = {}
        self.generation = -1

    def encode(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack, the owned partitions of these topics, and the generation of their assignment."""
        owned: Partitions | None = {}
        try:
            owned = self._owned()
        except Exception:  # noqa: BLE001 - raised from here, every poll() would fail
            self._member.once.warn(
                "held", "%s: owned partitions are unknown; nothing is claimed", self._member.name, exc_info=True
            )
        known = self._given if owned is None else owned
        claims = {topic: known[topic] for topic in topics if known.get(topic)}
        return Subscription(topics, None, claims, self.generation, self._member.rack)

    def claims(self, subscription: Subscription) -> tuple[Partitions, int | None]:
        """Return the owned partitions of a member and their generation."""
        return owned_from_subscription(subscription)

    def on_assigned(self, given: Partitions, generation: int) -> None:
        """Record this member's partitions and their generation."""
        self._given = given
        self.generation = generation
