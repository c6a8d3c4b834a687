"""Bytes of changelogs on their brokers, as the leader of each partition reports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rackassign.admin.describe import DescribedTopic, describe_log_dirs, describe_topics
from rackassign.model import TopicPartition
from rackassign.util.text import counted, join_first, join_ids, name_error, truncate

_NAMED = 3


@dataclass(frozen=True, slots=True)
class ChangelogSizes:
    """Sizes of changelogs.

    Args:
        bytes: Size of each partition's replica on its leader; unknown ones are missing.
        problem: Why some are unknown, in one line; empty if none is.
    """

    bytes: Mapping[TopicPartition, int] = field(default_factory=dict)
    problem: str = ""


def read_changelog_sizes(admin: KafkaAdminClient, changelogs: Iterable[TopicPartition]) -> ChangelogSizes:
    """Return the sizes of changelogs; a broker that does not report them affects only its own partitions.

    Args:
        admin: Admin client.
        changelogs: Partitions of changelogs.
    """
    wanted = sorted(set(changelogs))
    try:
        topics = describe_topics(admin, {tp.topic for tp in wanted})
    except KafkaError as error:
        return ChangelogSizes(problem=name_error(error))
    led: dict[int, list[TopicPartition]] = {}
    reasons: dict[str, list[int]] = {}
    for tp in wanted:
        leader, reason = _leader(topics, tp)
        if leader is None:
            reasons.setdefault(reason, [])
        else:
            led.setdefault(leader, []).append(tp)
    sizes: dict[TopicPartition, int] = {}
    for broker, tps in sorted(led.items()):
        try:
            found = describe_log_dirs(admin, broker, {tp.topic: len(topics[tp.topic].partitions) for tp in tps})
        except KafkaError as error:
            reasons.setdefault(name_error(error), []).append(broker)
            continue
        sizes |= {tp: found[tp] for tp in tps if tp in found}
        if not found.keys() >= set(tps):
            reasons.setdefault("no sizes in the response, perhaps DESCRIBE on the cluster is missing", []).append(
                broker
            )
    return ChangelogSizes(sizes, join_first([_explained(*row) for row in reasons.items()], _NAMED))


def _leader(topics: Mapping[str, DescribedTopic], tp: TopicPartition) -> tuple[int | None, str]:
    """Return the leader of a partition, or why there is none."""
    name, topic = truncate(tp.topic), topics.get(tp.topic, DescribedTopic())
    if topic.problem:
        return None, f"{name}: {topic.problem}"
    if tp.partition >= len(topic.partitions):
        return None, f"{name} has {counted(len(topic.partitions), 'partition')} only"
    leader = topic.partitions[tp.partition].leader
    return leader, "" if leader is not None else f"{name}-{tp.partition} has no leader"


def _explained(reason: str, brokers: list[int]) -> str:
    if not brokers:
        return reason
    return f"{reason} (broker{'' if len(brokers) == 1 else 's'} {join_ids(brokers)})"
