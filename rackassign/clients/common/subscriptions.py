"""The members of a join: their metadata, read before the client library decodes it, and the `Group` built from it.

Metadata may be malformed, or valid but inconsistent: the same partition twice, a negative ID. Malformed metadata is
replaced by metadata that the client library can decode, and inconsistent parts are omitted. One member's error must not
cost the group its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import getattr_static
from typing import NamedTuple, Protocol, TypeVar

from rackassign.errors import InputError, WireError
from rackassign.model import TOPIC_NAME, Group, Member, Partitions, Topology
from rackassign.util.log_once import WarnOnce
from rackassign.wire import Subscription, SubscriptionReader, decode_generation, encode_subscription


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

    Args:
        members: The members that the client lists and decodes.
        subscriptions: Subscription of each member, by member ID.
        joined: All members of the join; `members` if omitted.
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
    _leave_the_topics(members, subscriptions)
    return JoinContext(members[:1], subscriptions, members)


def sanitize_subscriptions(members: Iterable[RawMember], once: WarnOnce) -> dict[str, Subscription]:
    """Replace in place the metadata of those members that the client could not decode.

    Returns:
        Subscription of each member, by member ID.
    """
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


def _leave_the_topics(members: Sequence[RawMember], read: Mapping[str, Subscription]) -> None:
    """Leave only the topics of all members, once, for the client to decode: it uses nothing else."""
    listed = {subscription.topics for subscription in read.values()}
    topics = sorted({topic for of_member in listed for topic in of_member})
    everything, nothing = (encode_subscription(Subscription(of), version=0) for of in (tuple(topics), ()))
    for i, member in enumerate(members):
        member.metadata = nothing if i else everything


class JoinMember(NamedTuple):
    """A member of a join.

    Args:
        id: Member ID.
        instance_id: `group.instance.id` of a static member.
        subscription: Its subscription.
    """

    id: str
    instance_id: str | None
    subscription: Subscription


Claims = Callable[[Subscription], tuple[Partitions, int | None]]
"""Returns the owned partitions and the generation that a subscription claims."""


def build_group(
    topology: Callable[[list[str]], Topology], members: Iterable[JoinMember], claims: Claims | None = None
) -> Group:
    """Return the members of a join and the part of the live topology that they subscribe to.

    Args:
        topology: Returns the live brokers, and the given topics that have metadata.
        members: Members of the join.
        claims: Decodes claims; the fields of the subscription by default.
    """
    # Members with equal subscriptions share one set, which then has to be hashed only once.
    topics: dict[tuple[str, ...], frozenset[str]] = {}
    made = tuple(_member(member, claims or owned_from_subscription, topics) for member in members)
    return Group(topology(sorted(frozenset().union(*topics.values()))), made)


def to_member(joined: JoinMember) -> Member:
    """Return a member of the model, with the claims in the fields of its subscription."""
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
