"""The limit on what a repair copies, which must never be left behind.

Kafka's replication throttle has two parts: a rate for all brokers, and for each topic the replicas it counts for. The
rate is set as the default of all brokers, not broker by broker: a default can be taken away while a broker is down, and
a broker that comes back in the middle has it too. What had been set before is written down first and put back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.reassignment.partition_state import ReplicaMove

LEADING, FOLLOWING = THROTTLED

_ALL = "*"


class ThrottleConfigs(Protocol):
    """Where configuration is kept."""

    def topic_configs(self, topics: Sequence[str], keys: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return keys that topics set themselves."""

    def cluster_configs(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return keys that are set for all brokers at once."""

    def alter_topic_configs(self, changes: Mapping[str, Mapping[str, str | None]]) -> None:
        """Set keys of topics, unset those with None."""

    def alter_cluster_configs(self, changes: Mapping[str, str | None]) -> None:
        """Set keys for all brokers at once, unset those with None."""


@dataclass(frozen=True, slots=True)
class SavedConfigs:
    """What was set before us; keys that were not are left out.

    Args:
        brokers: By key.
        topics: By topic and key, all topics that are given a throttle.
    """

    brokers: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def save_configs(settings: ThrottleConfigs, moves: Mapping[TopicPartition, ReplicaMove]) -> SavedConfigs:
    """Read what is set now.

    Raises:
        KafkaError: As the client does.
    """
    topics = sorted({place.topic for place in moves})
    found = settings.topic_configs(topics, THROTTLED)
    return SavedConfigs(settings.cluster_configs(RATES), {topic: found.get(topic, {}) for topic in topics})


def throttle(
    settings: ThrottleConfigs, moves: Mapping[TopicPartition, ReplicaMove], before: SavedConfigs, rate: int
) -> None:
    """Set the limit for what moves copy, either way.

    Args:
        settings: Where.
        moves: What is copied.
        before: What was set before; a list of others is added to.
        rate: Bytes a second that each broker may send, and receive.

    Raises:
        KafkaError: As the client does.
    """
    changes: dict[str, dict[str, str | None]] = {}
    for topic, kept in before.topics.items():
        own = {place.partition: move for place, move in sorted(moves.items()) if place.topic == topic}
        # A leader is not slowed down towards followers that are in sync, so all may be named.
        leading = [f"{number}:{broker}" for number, move in own.items() for broker in _all(move)]
        following = [f"{number}:{broker}" for number, move in own.items() for broker in _new(move)]
        changes[topic] = {
            LEADING: _joined(kept.get(LEADING), leading),
            FOLLOWING: _joined(kept.get(FOLLOWING), following),
        }
    # The rate first: without it, lists have no effect, and who may not set it has done nothing.
    settings.alter_cluster_configs(dict.fromkeys(RATES, str(rate)))
    settings.alter_topic_configs(changes)


def restore_configs(settings: ThrottleConfigs, before: SavedConfigs) -> None:
    """Put back what was set before; doing it twice does no harm.

    Raises:
        KafkaError: As the client does.
    """
    settings.alter_cluster_configs({key: before.brokers.get(key) for key in RATES})
    settings.alter_topic_configs(
        {topic: {key: kept.get(key) for key in THROTTLED} for topic, kept in before.topics.items()}
    )


def _all(move: ReplicaMove) -> list[int]:
    return sorted({broker for replicas in move.known() for broker in replicas})


def _new(move: ReplicaMove) -> list[int]:
    """Return what is not in every list: those are copied to, in the one direction or the other."""
    always = set(move.before).intersection(*move.known())
    return [broker for broker in _all(move) if broker not in always]


def _joined(kept: str | None, entries: Sequence[str]) -> str:
    if kept == _ALL:
        return _ALL
    return ",".join([*([kept] if kept else []), *entries])
