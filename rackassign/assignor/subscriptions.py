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

The metadata of a join is read before the client library decodes it, and a `Group` is built from it. Metadata may be
malformed, or valid but inconsistent: the same partition twice, a negative ID. Malformed metadata is replaced by
metadata that the client library can decode, and inconsistent parts are omitted. One member's error must not cost the
group its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import getattr_static
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from rackassign.assignor.member import MemberContext
from rackassign.errors import InputError, WireError
from rackassign.model import TOPIC_NAME, Group, Member, Partitions, Topology
from rackassign.text import WarnOnce
from rackassign.wire import (
    StickyData,
    Subscription,
    SubscriptionReader,
    decode_generation,
    decode_sticky,
    encode_sticky,
    encode_subscription,
)


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
    """Topics and rack (KIP-881)."""

    cooperative: ClassVar[bool] = False

    def __init__(self, member: MemberContext) -> None:
        self._member = member
        self._user_data: bytes | None = None

    def encode(self, topics: tuple[str, ...]) -> Subscription:
        """Return topics and rack; the user data, which no leader reads, are null before the first assignment."""
        return Subscription(topics, self._user_data, rack=self._member.rack)

    def claims(self, subscription: Subscription) -> tuple[Partitions, int | None]:
        """Return the owned partitions that members send in spite of the protocol; range has no use for them."""
        return owned_from_subscription(subscription)

    def on_assigned(self, given: Partitions, generation: int) -> None:  # noqa: ARG002 - as the others have it
        # A coordinator lets no leader plan if a follower joins again with the same bytes.
        self._user_data = b""


class StickyCodec:
    """Topics, rack, and the last partitions as the user data of Java's `StickyAssignor`."""

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
        self._last = StickyData(given, generation)


class CooperativeCodec:
    """Topics, rack, owned partitions, and the generation of their assignment.

    Without a known consumer a member claims its last assignment, and its leader corrects false claims.
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
        return owned_from_subscription(subscription)

    def on_assigned(self, given: Partitions, generation: int) -> None:
        self._given = given
        self.generation = generation


class RawMember(Protocol):
    """A member before the client decodes its metadata, which is replaced in place."""

    member_id: str
    metadata: bytes


MemberT = TypeVar("MemberT", bound=RawMember)
MethodT = TypeVar("MethodT")

_ACCEPTED = "_accepts_join_context"


class JoinContext(list[MemberT]):
    """The members of a join, in the list that the client library passes to its assignor, with their subscriptions.

    What is decoded before the client is passed through the client in this way. An assignor that keeps it between two
    calls could use that of an earlier join.
    """

    def __init__(
        self,
        members: Iterable[MemberT],
        subscriptions: Mapping[str, Subscription],
        joined: Sequence[MemberT] | None = None,
    ) -> None:
        super().__init__(members)
        self.subscriptions = subscriptions
        self.joined: Sequence[MemberT] = self if joined is None else joined


def is_former_id(leader: str, instance_id: str | None, member_id: str) -> bool:
    """Return whether the leader of a group is this static member before it returned.

    Brokers name a static member `<group.instance.id>-<UUID>`. Up to version 8 of JoinGroup they name a leader that has
    returned by its former ID, so that it does not assign again; later versions have a field for that (KIP-814).
    """
    former = leader.removeprefix(f"{instance_id}-")
    return bool(instance_id) and member_id != leader != former and len(former) == _UUID_LENGTH


_UUID_LENGTH = 36


def accepts_join_context(assign: MethodT) -> MethodT:
    """Mark an `assign` that reads its members from a `JoinContext`, and needs nothing that the client decodes."""
    # The method itself: functools.wraps copies attributes to functions that may use what the client decodes.
    setattr(assign, _ACCEPTED, assign)
    return assign


def is_join_context_accepted(assignor: object) -> bool:
    """Return whether an assignor's own `assign` accepts a `JoinContext`.

    It is looked up statically, because a wrapper of an assignor may forward every attribute, and assign by itself. A
    subclass that overrides `assign` may use the members it gets, so the client has to decode them completely.
    """
    assign = getattr_static(assignor, "assign", None)
    return assign is not None and getattr(assign, _ACCEPTED, None) is assign


def decode_join(members: Sequence[MemberT], assignor: object, once: WarnOnce) -> JoinContext[MemberT]:
    """Decode the metadata of members, and make it decodable for the client; done in place.

    If the assignor accepts a `JoinContext`, little is left for the client to decode: the first member, which lists the
    topics of all.
    """
    subscriptions = sanitize_subscriptions(members, once)
    if not is_join_context_accepted(assignor):
        return JoinContext(members, subscriptions)
    _reduce_for_client(members, subscriptions)
    return JoinContext(members[:1], subscriptions, members)


def sanitize_subscriptions(members: Iterable[RawMember], once: WarnOnce) -> dict[str, Subscription]:
    """Replace in place metadata that the client could not decode; return the subscriptions by member ID."""
    reader = SubscriptionReader()
    # Members that own nothing often send equal bytes, and nearly all list the same topics.
    sound: dict[bytes, Subscription] = {}
    legal: dict[tuple[str, ...], tuple[str, ...]] = {}
    read: dict[str, Subscription] = {}
    for member in members:
        known = sound.get(member.metadata)
        if known is None:
            known, member.metadata = _readable(member, reader, legal, once)
            sound[member.metadata] = known
        read[member.member_id] = known
    return read


def _readable(
    member: RawMember, reader: SubscriptionReader, legal: dict[tuple[str, ...], tuple[str, ...]], once: WarnOnce
) -> tuple[Subscription, bytes]:
    """Return a subscription and bytes of it that the client can decode: the member's own if possible."""
    name = member.member_id
    try:
        subscription = reader.read(member.metadata)
    except WireError as error:
        once.warn("broken", "member %s gets no partitions: its subscription is malformed %s", name, error, about=name)
        return _NOTHING, encode_subscription(_NOTHING, version=0)
    topics = subscription.topics
    valid = legal.get(topics)
    if valid is None:
        valid = legal[topics] = tuple(topic for topic in topics if TOPIC_NAME.fullmatch(topic))
    if len(valid) == len(topics):
        return subscription, member.metadata
    once.warn("topics", "member %s subscribes to invalid topic names; they are ignored", name, about=name)
    cleaned = replace(subscription, topics=valid)
    return cleaned, encode_subscription(cleaned)


_NOTHING = Subscription(())


def _reduce_for_client(members: Sequence[RawMember], read: Mapping[str, Subscription]) -> None:
    """Leave only the topics of all members, once, for the client to decode: it uses nothing else."""
    listed = {subscription.topics for subscription in read.values()}
    topics = sorted({topic for of_member in listed for topic in of_member})
    everything, nothing = (encode_subscription(Subscription(of), version=0) for of in (tuple(topics), ()))
    for i, member in enumerate(members):
        member.metadata = nothing if i else everything


class JoinMember(NamedTuple):
    """A member of a join."""

    id: str
    instance_id: str | None
    subscription: Subscription


Claims = Callable[[Subscription], tuple[Partitions, int | None]]
"""Returns the owned partitions and the generation that a subscription claims."""


def build_group(
    topology: Callable[[list[str]], Topology], members: Iterable[JoinMember], claims: Claims | None = None
) -> Group:
    # Members with equal subscriptions share one set, which then has to be hashed only once.
    topics: dict[tuple[str, ...], frozenset[str]] = {}
    made = tuple(_member(member, claims or owned_from_subscription, topics) for member in members)
    return Group(topology(sorted(frozenset().union(*topics.values()))), made)


def to_member(joined: JoinMember) -> Member:
    return _member(joined, owned_from_subscription, {})


def owned_from_subscription(subscription: Subscription) -> tuple[Partitions, int | None]:
    """Return the claims of cooperative members: the owned partitions and their generation (KIP-429, KIP-792)."""
    if subscription.generation >= 0:
        return subscription.owned, subscription.generation
    # Members older than KIP-792 send it in their user data.
    return subscription.owned, decode_generation(subscription.user_data)


def _member(joined: JoinMember, claims: Claims, topics: dict[tuple[str, ...], frozenset[str]]) -> Member:
    subscription = joined.subscription
    subscribed = topics.get(subscription.topics)
    if subscribed is None:
        subscribed = topics[subscription.topics] = frozenset(subscription.topics)
    owned, generation = claims(subscription)
    member = partial(
        Member,
        id=joined.id,
        topics=subscribed,
        rack=subscription.rack,
        instance_id=joined.instance_id,
        generation=generation,
    )
    try:
        return member(owned=owned)
    except InputError:
        # A partition twice, or a negative one: the constructor checks this, so no check is needed before.
        return member(owned={topic: tuple(sorted({p for p in ids if p >= 0})) for topic, ids in owned.items()})
