"""The members of a join, made into a `Group`.

What they sent may be odd without being unreadable: the same partition twice, a negative id. Such parts are left out
here, because one member's mistake must not cost the group its assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from rackassign.errors import InputError
from rackassign.model import Group, Member, Partitions, Topology
from rackassign.wire import Subscription, decode_generation


@dataclass(frozen=True, slots=True)
class Joined:
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


def group_of(
    topology: Callable[[list[str]], Topology], members: Iterable[Joined], claims: Claims | None = None
) -> Group:
    """Return the members of a join and the part of the live topology that they subscribe to.

    Args:
        topology: Tells the live brokers, and those of the topics that have metadata.
        members: The join.
        claims: Where they say what they owned; the fields of the subscription if left out.
    """
    # Members with equal subscriptions share one set, which then has to be hashed once.
    topics: dict[tuple[str, ...], frozenset[str]] = {}
    made = tuple(_member(member, claims or claims_in_fields, topics) for member in members)
    return Group(topology(sorted(frozenset().union(*topics.values()))), made)


def member_of(joined: Joined) -> Member:
    """Return one member as the model has it, with the claims in its fields."""
    return _member(joined, claims_in_fields, {})


def claims_in_fields(subscription: Subscription) -> tuple[Partitions, int | None]:
    """Read the claims of cooperative members: the owned partitions and their generation (KIP-429, KIP-792)."""
    if subscription.generation >= 0:
        return subscription.owned, subscription.generation
    # Members of before KIP-792 have it in their user data.
    return subscription.owned, decode_generation(subscription.user_data)


def _member(joined: Joined, claims: Claims, topics: dict[tuple[str, ...], frozenset[str]]) -> Member:
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
