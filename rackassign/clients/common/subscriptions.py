"""The members of a join: their metadata read before the client library decodes it, and made into a `Group`.

What members send may be malformed, or odd without being unreadable: the same partition twice, a negative id. Malformed
metadata is replaced by metadata that the client library can decode, and odd parts are left out. One member's mistake
must not cost the group its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from rackassign.errors import InputError, WireError
from rackassign.model import TOPIC_NAME, Group, Member, Partitions, Topology
from rackassign.util.log_once import WarnOnce
from rackassign.wire import Subscription, SubscriptionReader, decode_generation, encode_subscription


class RawMember(Protocol):
    """What a client holds of a member before it decodes what that sent; replaced in place."""

    member_id: str
    metadata: bytes


def decode_join(members: Sequence[RawMember], assignor: Any, once: WarnOnce) -> dict[str, Subscription]:  # noqa: ANN401 - of any client
    """Read what members sent: make it readable for the host, and hand it to an assignor that takes it.

    An assignor that takes it needs nothing of what the host decodes, so that is little. A subclass with an `assign` of
    its own is given the members as they are: it may go by them.

    Returns:
        What each member sent, by member id.
    """
    read = sanitize_subscriptions(members, once)
    # Ours by its class: what wraps one of ours may hand on whatever it is asked for, and assign by itself.
    if hasattr(type(assignor), "take_subscriptions") and assignor.assigns():
        assignor.take_subscriptions(read)
        _leave_the_topics(members, read)
    return read


def sanitize_subscriptions(members: Iterable[RawMember], once: WarnOnce) -> dict[str, Subscription]:
    """Replace in place the metadata of those members that the client could not decode.

    Returns:
        What each member sent, by member id.
    """
    reader = SubscriptionReader()
    # Members that own nothing often send the same bytes, and nearly all list the same topics.
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
    """Return a subscription and bytes of it that the client can decode: the member's own if it can."""
    name = member.member_id
    try:
        subscription = reader.read(member.metadata)
    except WireError as error:
        once.warn("broken", "member %s gets nothing: its subscription is broken %s", name, error, about=name)
        return _NOTHING, encode_subscription(_NOTHING, version=0)
    topics = subscription.topics
    if topics not in legal:
        legal[topics] = tuple(topic for topic in topics if TOPIC_NAME.fullmatch(topic))
    if len(legal[topics]) == len(topics):
        return subscription, member.metadata
    once.warn("topics", "member %s subscribes to topics that cannot exist; they are left out", name, about=name)
    cleaned = replace(subscription, topics=legal[topics])
    return cleaned, encode_subscription(cleaned)


_NOTHING = Subscription(())


def _leave_the_topics(members: Sequence[RawMember], read: Mapping[str, Subscription]) -> None:
    """Leave the host nothing to decode but the topics of all members, once: it uses nothing else."""
    listed = {subscription.topics for subscription in read.values()}
    topics = sorted({topic for of_member in listed for topic in of_member})
    everything, nothing = (encode_subscription(Subscription(of), version=0) for of in (tuple(topics), ()))
    for i, member in enumerate(members):
        member.metadata = nothing if i else everything


@dataclass(frozen=True, slots=True)
class JoinMember:
    """A member of a join.

    Args:
        id: Member id.
        instance_id: `group.instance.id` of a static member.
        subscription: What it sent.
    """

    id: str
    instance_id: str | None
    subscription: Subscription


Claims = Callable[[Subscription], tuple[Partitions, int | None]]
"""What a subscription says the member owned, and in which generation."""


def build_group(
    topology: Callable[[list[str]], Topology], members: Iterable[JoinMember], claims: Claims | None = None
) -> Group:
    """Return the members of a join and the part of the live topology that they subscribe to.

    Args:
        topology: Tells the live brokers, and those of the topics that have metadata.
        members: The join.
        claims: Where they say what they owned; the fields of the subscription if left out.
    """
    # Members with equal subscriptions share one set, which then has to be hashed once.
    topics: dict[tuple[str, ...], frozenset[str]] = {}
    made = tuple(_member(member, claims or owned_from_subscription, topics) for member in members)
    return Group(topology(sorted(frozenset().union(*topics.values()))), made)


def to_member(joined: JoinMember) -> Member:
    """Return one member as the model has it, with the claims in its fields."""
    return _member(joined, owned_from_subscription, {})


def owned_from_subscription(subscription: Subscription) -> tuple[Partitions, int | None]:
    """Read the claims of cooperative members: the owned partitions and their generation (KIP-429, KIP-792)."""
    if subscription.generation >= 0:
        return subscription.owned, subscription.generation
    # Members of before KIP-792 have it in their user data.
    return subscription.owned, decode_generation(subscription.user_data)


def _member(joined: JoinMember, claims: Claims, topics: dict[tuple[str, ...], frozenset[str]]) -> Member:
    subscription = joined.subscription
    if subscription.topics not in topics:
        topics[subscription.topics] = frozenset(subscription.topics)
    owned, generation = claims(subscription)
    member = partial(
        Member,
        id=joined.id,
        topics=topics[subscription.topics],
        rack=subscription.rack,
        instance_id=joined.instance_id,
        generation=generation,
    )
    try:
        return member(owned=owned)
    except InputError:
        # A partition twice, or a negative one: the member checks itself, so nobody else need look first.
        return member(owned={topic: tuple(sorted({p for p in ids if p >= 0})) for topic, ids in owned.items()})
