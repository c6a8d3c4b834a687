"""Creating while brokers are away: which brokers a new partition gets, and what of it is still to come (KIP-409).

A KRaft controller creates with fenced brokers in place of live ones without a word, and without asking whether what is
left can be written to. Here it is a choice, and a partition has at least as many live replicas as
`min.insync.replicas` wants. A replica that no registered broker can take becomes a *placeholder*, a negative number: it
cannot be told to the cluster, so it stays in a file until a broker is there (`repair`).

Nothing here asks anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rackassign.errors import ConfigError, RackassignError

Policy = Literal["disabled", "enabled", "enabled_prefer_observed"]
"""Whether brokers that are away may be named: never; if those that are up do not suffice; as if they were up."""

POLICIES: tuple[Policy, ...] = get_args(Policy)


class NotEnoughBrokersError(RackassignError):
    """Fewer brokers are up than the policy, or `min.insync.replicas`, wants."""


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker that is there, or was.

    Args:
        id: Node id.
        rack: Where it stands; None if that is not known.
        online: Whether it serves.
        registered: Whether the cluster takes its id in an assignment, be it up or not.
    """

    id: int
    rack: str | None = None
    online: bool = True
    registered: bool = True


Spread = Callable[[Sequence[KnownBroker], int], Sequence[Sequence[int]]]
"""Places all partitions with so many replicas over these brokers: a placer, told all but the brokers and the number."""


@dataclass(frozen=True, slots=True)
class PolicyPlacement:
    """Where the replicas of new partitions are to be.

    Args:
        plan: Broker ids of each partition, one that is up first; negative numbers are placeholders.
        offline: Brokers in it that are not up.
    """

    plan: tuple[tuple[int, ...], ...]
    offline: frozenset[int] = frozenset()

    def to_request(self) -> list[list[int]]:
        """Return what can be told to the cluster."""
        return [[broker for broker in row if broker >= 0] for row in self.plan]

    def placeholders(self) -> int:
        """Count the replicas that no broker can take yet."""
        return sum(broker < 0 for row in self.plan for broker in row)

    def under_replicated(self) -> int:
        """Count the partitions that begin with a replica missing or not up."""
        return sum(any(broker < 0 or broker in self.offline for broker in row) for row in self.plan)


def check_policy(policy: str) -> Policy:
    """Return the policy, typed; `ConfigError` names those there are."""
    for known in POLICIES:
        if policy == known:
            return known
    raise ConfigError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")


def place_new(
    policy: Policy, spread: Spread, brokers: Iterable[KnownBroker], *, replicas: int, min_isr: int
) -> PolicyPlacement:
    """Place new partitions by a policy.

    Args:
        policy: Which.
        spread: Places them.
        brokers: All that are known.
        replicas: Of each partition.
        min_isr: `min.insync.replicas` as it will be in force; a partition needs no more than it has replicas.

    Raises:
        NotEnoughBrokersError: The policy cannot have its way.
    """
    known = sorted(brokers, key=lambda broker: broker.id)
    online = [broker for broker in known if broker.online and broker.registered]
    required = min(min_isr, replicas)
    if policy == "disabled" and len(online) < replicas:
        raise NotEnoughBrokersError(
            f"{replicas} replicas need as many brokers, and {len(online)} are up; --policy enabled makes do with fewer"
        )
    if len(online) < required:
        raise NotEnoughBrokersError(
            f"min.insync.replicas={min_isr} needs {required} brokers that are up, and there are {len(online)}"
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
        # The placer has left replicas without a broker, or has chosen brokers that are away.
        raise NotEnoughBrokersError(
            f"min.insync.replicas={min_isr} needs {required} replicas that are up, and a partition has {fewest}"
        )
    plan = tuple(tuple(_live_first(row, up)) for row in rows)
    return PolicyPlacement(
        plan, frozenset(broker for row in plan for broker in row if broker >= 0 and broker not in up)
    )


def _live_first(row: list[int], up: set[int]) -> list[int]:
    """Put a broker that is up in front: it is the one that leads, and the preferred one then."""
    first = next(i for i, broker in enumerate(row) if broker in up)
    return [row[first], *row[:first], *row[first + 1 :]]


def _completed(rows: list[list[int]], known: Sequence[KnownBroker], replicas: int) -> list[list[int]]:
    """Add brokers that are away, in racks that have none first, and placeholders for what is still missing."""
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
    """Place over all brokers that are registered, then see to it that enough of each partition's are up."""
    registered = [broker for broker in known if broker.registered]
    rows = [list(row) for row in spread(registered, min(replicas, len(registered)))]
    rows = _completed(rows, known, replicas)
    up = [broker.id for broker in registered if broker.online]
    used = Counter(broker for row in rows for broker in row)
    for row in rows:
        for _ in range(required - sum(broker in up for broker in row)):
            chosen = min((broker for broker in up if broker not in row), key=lambda broker: (used[broker], broker))
            # What would be last to serve gives way: a placeholder, else the last that is away.
            place = max(i for i, broker in enumerate(row) if broker not in up)
            used[row[place]] -= 1
            used[chosen] += 1
            row[place] = chosen
    return rows
