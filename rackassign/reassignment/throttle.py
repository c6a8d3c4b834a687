"""The replication throttle of a reassignment, which must never be left behind.

Kafka's replication throttle has two parts: a rate for all brokers, and for each topic the replicas that it applies to.
The rate is set as the cluster-wide default instead of per broker: a default can be removed while a broker is down, and
it also applies to a broker that comes back in the meantime. The previous configurations are stored first, and restored.

A topic's list is one configuration value, whose length Kafka limits. Where not all partitions of a topic fit, those to
be copied next are listed (`list_replicas`). The wildcard for all replicas of a topic would be shorter, but Kafka counts
whatever listed replicas fetch towards the rate, also those that are in sync and do not move. A topic that receives more
than the rate would then leave nothing for the copies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rackassign.admin.alter import ReassignmentAdmin
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.placement.cluster_state import RATES, THROTTLED
from rackassign.reassignment.partition_execution import ReplicaMove
from rackassign.text import counted, short_repr

LEADING, FOLLOWING = THROTTLED

MOST_BYTES = 32_767
"""Limit of a string in Kafka's protocol. Brokers close the connection of a request with a longer one (KAFKA-17993)."""

_ALL = "*"


@dataclass(frozen=True, slots=True)
class SavedConfigs:
    """Configurations from before the throttle; keys that were not set are left out."""

    # Values by key; and by topic and key, of all topics that get a throttle.
    brokers: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def save_configs(
    cluster: ReassignmentAdmin, moves: Mapping[TopicPartition, ReplicaMove], restored: SavedConfigs | None = None
) -> SavedConfigs:
    # `restored`: what was restored just now. A broker that has not applied that yet still returns the throttle, which
    # would then be restored at the end, and stay for ever. So these configurations are not read.
    topics = sorted({tp.topic for tp in moves})
    if restored is None:
        return _current(cluster, topics)
    found = cluster.topic_configs([topic for topic in topics if topic not in restored.topics], THROTTLED)
    return SavedConfigs(restored.brokers, {topic: restored.topics.get(topic, found.get(topic, {})) for topic in topics})


def is_restored(cluster: ReassignmentAdmin, before: SavedConfigs, broker: int) -> bool:
    return _current(cluster, list(before.topics), broker) == before


def _current(cluster: ReassignmentAdmin, topics: Sequence[str], broker: int | None = None) -> SavedConfigs:
    found = cluster.topic_configs(topics, THROTTLED, broker)
    return SavedConfigs(cluster.cluster_configs(RATES, broker), {topic: found.get(topic, {}) for topic in topics})


def throttle(
    cluster: ReassignmentAdmin,
    moves: Mapping[TopicPartition, ReplicaMove],
    before: SavedConfigs,
    rate: int,
    ongoing: Collection[TopicPartition] = (),
) -> frozenset[TopicPartition]:
    """Throttle copies on leaders and followers; return the partitions for which that fits, ongoing ones first."""
    # The rate is bytes per second that each broker may send, and receive. Lists that existed before are extended.
    # The rate first: lists have no effect without it, and without the permission to set it nothing was changed.
    cluster.alter_cluster_configs(dict.fromkeys(RATES, str(rate)))
    return list_replicas(cluster, moves, before, (), ongoing)


def list_replicas(
    cluster: ReassignmentAdmin,
    moves: Mapping[TopicPartition, ReplicaMove],
    before: SavedConfigs,
    batch: Collection[TopicPartition],
    ongoing: Collection[TopicPartition],
) -> frozenset[TopicPartition]:
    """Set the lists of throttled replicas and return the partitions in them: those of a batch, and others that fit."""
    # Ongoing ones come after the batch, and then those that follow it.
    changes: dict[str, dict[str, str | None]] = {}
    listed: set[TopicPartition] = set()
    for topic, kept in before.topics.items():
        first = min((tp for tp in batch if tp.topic == topic), default=TopicPartition(topic, 0))
        own = [tp for tp in moves if tp.topic == topic]
        leading, following = kept.get(LEADING, ""), kept.get(FOLLOWING, "")
        for tp in sorted(own, key=lambda tp: (tp not in batch, tp not in ongoing, tp < first, tp)):
            # A leader is not throttled towards in-sync followers, so all replicas may be listed.
            more = _joined(leading, tp, _all(moves[tp])), _joined(following, tp, _new(moves[tp]))
            if max(map(len, more)) > MOST_BYTES:
                if tp in batch:
                    raise ConfigError(
                        f"throttle: {counted(len(batch), 'partition')} at a time are too many for the"
                        f" {MOST_BYTES:,} bytes of the throttled replicas of topic {short_repr(topic)}:"
                        " use a smaller --batch-size"
                    )
                break
            leading, following = more
            listed.add(tp)
        changes[topic] = {LEADING: leading, FOLLOWING: following}
    cluster.alter_topic_configs(changes)
    return frozenset(listed)


def restore_configs(cluster: ReassignmentAdmin, before: SavedConfigs) -> None:
    """Restore the configurations from before; this can be repeated."""
    cluster.alter_cluster_configs({key: before.brokers.get(key) for key in RATES})
    cluster.alter_topic_configs(
        {topic: {key: kept.get(key) for key in THROTTLED} for topic, kept in before.topics.items()}
    )


def _all(move: ReplicaMove) -> list[int]:
    return sorted({broker for replicas in move.known() for broker in replicas})


def _new(move: ReplicaMove) -> list[int]:
    """Return brokers that are not in every list: in one direction or the other, they get a copy."""
    always = set(move.before).intersection(*move.known())
    return [broker for broker in _all(move) if broker not in always]


def _joined(kept: str, tp: TopicPartition, brokers: Sequence[int]) -> str:
    if kept == _ALL:
        return _ALL
    return ",".join([*([kept] if kept else []), *(f"{tp.partition}:{broker}" for broker in brokers)])
