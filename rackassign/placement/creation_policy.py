"""The policy for creation while brokers are offline: which brokers new partitions get (KIP-409).

A KRaft controller silently places replicas on fenced brokers instead of live ones, without checking whether the
remaining ones suffice for writes. Here it is a choice, and a partition has at least as many live replicas as
`min.insync.replicas` requires. A replica that no registered broker can take becomes a *placeholder*, a negative number.
The cluster does not accept placeholders, so they stay in a state file until a broker is available (`reassignment`).

This module sends no requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.errors import ConfigError, RackassignError

Policy = Literal["disabled", "enabled", "enabled_prefer_observed"]
"""Whether offline brokers may be used: never; if online ones do not suffice; or just like online ones."""

POLICIES: tuple[Policy, ...] = get_args(Policy)


class NotEnoughBrokersError(RackassignError):
    """Fewer brokers are online than the policy or `min.insync.replicas` requires."""


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker that is, or was, registered.

    Args:
        id: Node ID.
        rack: Its rack; None if unknown.
        online: Whether it serves requests.
        registered: Whether the cluster accepts its ID in an assignment, online or not.
    """

    id: int
    rack: str | None = None
    online: bool = True
    registered: bool = True


Spread = Callable[[Sequence[KnownBroker], int], Sequence[Sequence[int]]]
"""Places all partitions with this many replicas on these brokers: a placer with all other arguments bound."""


@dataclass(frozen=True, slots=True)
class PolicyPlacement:
    """Brokers of the replicas of new partitions.

    Args:
        plan: Broker IDs of each partition, an online one first; negative numbers are placeholders.
        offline: Brokers in the plan that are offline.
    """

    plan: tuple[tuple[int, ...], ...]
    offline: frozenset[int] = frozenset()

    def to_request(self) -> list[list[int]]:
        """Return the replica lists for the request to the cluster, without placeholders."""
        return [[broker for broker in row if broker >= 0] for row in self.plan]

    def placeholders(self) -> int:
        """Count the replicas that no broker can take yet."""
        return sum(broker < 0 for row in self.plan for broker in row)

    def under_replicated(self) -> int:
        """Count the partitions that begin with a replica missing or offline."""
        return sum(any(broker < 0 or broker in self.offline for broker in row) for row in self.plan)


def check_policy(policy: str) -> Policy:
    """Return the policy, typed; `ConfigError` lists the known ones."""
    for known in POLICIES:
        if policy == known:
            return known
    raise ConfigError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")


def place_new(
    policy: Policy, spread: Spread, brokers: Iterable[KnownBroker], *, replicas: int, min_isr: int
) -> PolicyPlacement:
    """Place new partitions according to a policy.

    Args:
        policy: The policy.
        spread: Places the partitions.
        brokers: All known brokers.
        replicas: Replicas of each partition.
        min_isr: `min.insync.replicas` of the topic; a partition needs no more than its replication factor.

    Raises:
        NotEnoughBrokersError: The policy cannot be satisfied.
    """
    known = sorted(brokers, key=lambda broker: broker.id)
    online = [broker for broker in known if broker.online and broker.registered]
    required = min(min_isr, replicas)
    # No policy allows fewer than these.
    if len(online) < required:
        raise NotEnoughBrokersError(
            f"min.insync.replicas={min_isr} needs {required} online brokers, but there are {len(online)}"
        )
    if policy == "disabled" and len(online) < replicas:
        raise NotEnoughBrokersError(
            f"{replicas} replicas need as many brokers, but only {len(online)} are online;"
            " --policy enabled allows fewer"
        )
    if policy == "enabled_prefer_observed":
        rows = _as_if_up(spread, known, replicas, required)
    elif len(online) >= replicas:
        rows = [list(row) for row in spread(online, replicas)]
    else:
        rows = _completed([list(row) for row in spread(online, len(online))], known, replicas)
    up = {broker.id for broker in online}
    fewest = min((sum(broker in up for broker in row) for row in rows), default=required)
    if fewest < required:
        # The placer has left replicas without a broker, or has chosen offline brokers.
        raise NotEnoughBrokersError(
            f"min.insync.replicas={min_isr} needs {required} online replicas, but a partition has {fewest}"
        )
    plan = tuple(tuple(_live_first(row, up)) for row in rows)
    return PolicyPlacement(
        plan, frozenset(broker for row in plan for broker in row if broker >= 0 and broker not in up)
    )


def _live_first(row: list[int], up: set[int]) -> list[int]:
    """Move an online broker to the front: it becomes the leader, and the preferred one."""
    first = next(i for i, broker in enumerate(row) if broker in up)
    return [row[first], *row[:first], *row[first + 1 :]]


def _completed(rows: list[list[int]], known: Sequence[KnownBroker], replicas: int) -> list[list[int]]:
    """Add offline brokers, in racks without a replica first, and placeholders for the rest."""
    racks = {broker.id: broker.rack for broker in known}
    away = [broker.id for broker in known if broker.registered and not broker.online]
    used: Counter[int] = Counter()
    for row in rows:
        while len(row) < replicas:
            taken = {racks[broker] for broker in row if broker >= 0}
            free = [broker for broker in away if broker not in row]
            if not free:
                row.extend(range(-1, len(row) - replicas - 1, -1))
                break
            chosen = min(free, key=lambda broker: (racks[broker] in taken, used[broker], broker))
            used[chosen] += 1
            row.append(chosen)
    return rows


def _as_if_up(spread: Spread, known: Sequence[KnownBroker], replicas: int, required: int) -> list[list[int]]:
    """Place on all registered brokers, then replace offline ones until enough of each partition's are online."""
    registered = [broker for broker in known if broker.registered]
    rows = [list(row) for row in spread(registered, min(replicas, len(registered)))]
    rows = _completed(rows, known, replicas)
    up = [broker.id for broker in registered if broker.online]
    used = Counter(broker for row in rows for broker in row)
    for row in rows:
        for _ in range(required - sum(broker in up for broker in row)):
            chosen = min((broker for broker in up if broker not in row), key=lambda broker: (used[broker], broker))
            # The replica that would be usable last is replaced: a placeholder, otherwise the last offline one.
            index = max(i for i, broker in enumerate(row) if broker not in up)
            used[row[index]] -= 1
            used[chosen] += 1
            row[index] = chosen
    return rows
