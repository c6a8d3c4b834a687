"""What members send when they join, read before a client decodes it, and made readable for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rackassign.errors import WireError
from rackassign.model import TOPIC_NAME
from rackassign.util.log_once import Once
from rackassign.wire import Subscription, SubscriptionReader, encode_subscription


class Sent(Protocol):
    """What a client holds of a member before it decodes what that sent; replaced in place."""

    member_id: str
    metadata: bytes


def read_join(members: Sequence[Sent], assignor: Any, once: Once) -> dict[str, Subscription]:  # noqa: ANN401 - of any client
    """Read what members sent: make it readable for the host, and hand it to an assignor that takes it.

    An assignor that takes it needs nothing of what the host decodes, so that is little. A subclass with an `assign` of
    its own is given the members as they are: it may go by them.

    Returns:
        What each member sent, by member id.
    """
    read = make_readable(members, once)
    # Ours by its class: what wraps one of ours may hand on whatever it is asked for, and assign by itself.
    if hasattr(type(assignor), "take_subscriptions") and assignor.assigns():
        assignor.take_subscriptions(read)
        _leave_the_topics(members, read)
    return read


def make_readable(members: Iterable[Sent], once: Once) -> dict[str, Subscription]:
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
    member: Sent, reader: SubscriptionReader, legal: dict[tuple[str, ...], tuple[str, ...]], once: Once
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


def _leave_the_topics(members: Sequence[Sent], read: Mapping[str, Subscription]) -> None:
    """Leave the host nothing to decode but the topics of all members, once: it uses nothing else."""
    listed = {subscription.topics for subscription in read.values()}
    topics = sorted({topic for of_member in listed for topic in of_member})
    everything, nothing = (encode_subscription(Subscription(of), version=0) for of in (tuple(topics), ()))
    for i, member in enumerate(members):
        member.metadata = nothing if i else everything
