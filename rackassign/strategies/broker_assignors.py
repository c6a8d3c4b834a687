"""What assignors of brokers answer in the consumer protocol (KIP-848): rackassign's plug-in, and Kafka's own two.

Kafka's `uniform` and `range` do not look at racks. How many partitions they make local is chance: it depends on the
order in which a broker happens to list members and topics. Here that order is by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from rackassign.errors import ConfigError
from rackassign.model import Group, Partitions, Plan, TopicPartition
from rackassign.strategies import Options
from rackassign.strategies import range as classic_range
from rackassign.strategies.sticky import plan_as


def plan_consumer_protocol(group: Group, options: Options | None = None) -> Plan:
    """Assign like the broker plug-in: as `sticky`, of a group as brokers describe it to an assignor.

    A broker shows no leaders, and knows neither weights nor costs nor co-partitioned topics, which are ignored. Among
    equally good plans the plug-in may choose another one.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: Options, of which the plug-in has `balance` and limits.

    Raises:
        ConfigError: Another option has an effect.
    """
    options = options or Options()
    if options.locality != "any-replica":
        raise ConfigError("locality=leader cannot be used with consumer-protocol: brokers show assignors no leaders")
    for name, default in (("max_skew", 0), ("weight_tolerance", None)):
        if getattr(options, name) != default:
            raise ConfigError(f"{name} cannot be used with consumer-protocol: the broker plug-in has no such option")
    return plan_as("consumer-protocol", _unweighted(group), options)


def plan_uniform(group: Group, options: Options | None = None) -> Plan:
    """Assign like Kafka's `uniform`: balanced, with as few moves as possible, and new partitions in runs.

    With different subscriptions Kafka's may be less even and move more.

    Args:
        group: Members and topology; topics without metadata are skipped.
        options: Options, of which only limits have an effect.
    """
    options = options or Options()
    limits = Options(work=options.work, time_limit_s=options.time_limit_s)
    blind = _unweighted(group.without_member_racks())
    plan = plan_as("uniform", blind, limits)
    target = _dealt_in_runs(blind, plan)
    return replace(plan, assignment=target, target=target, explain_fn=None)


def plan_range(group: Group, options: Options | None = None) -> Plan:
    """Assign like Kafka's `range` in the broker: as that of members, without a look at racks."""
    return classic_range.plan_range(group.without_member_racks(), options)


def _unweighted(group: Group) -> Group:
    return replace(group, weights={}, costs={}, copartition=())


def _dealt_in_runs(group: Group, plan: Plan) -> dict[str, Partitions]:
    """Return the target of a plan in which members get what is not kept in runs; loads and moves stay as they are.

    The partitions of a plan without racks are interchangeable where their topics have the same subscribers. Dealt in
    turn, they would all be local if leaders and members follow each other in the same order, as they often do.
    """
    claims = {(m.id, topic, p) for m in group.members for topic, ids in m.owned.items() for p in ids}
    # By topic: the subscriptions that contain it, which are fewer than its members.
    readers: dict[str, list[int]] = defaultdict(list)
    for number, topics in enumerate({member.topics for member in group.members}):
        for topic in topics:
            readers[topic].append(number)
    of_topic = {topic: tuple(numbers) for topic, numbers in readers.items()}
    kept: dict[str, list[TopicPartition]] = {member.id: [] for member in group.members}
    # By the subscribers of the topic: the partitions that are dealt, and who gets one, once for each.
    dealt: dict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
    takers: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for tp, member_id in sorted(_places(plan)):
        if (member_id, *tp) in claims:
            kept[member_id].append(tp)
        else:
            of = of_topic[tp.topic]
            dealt[of].append(tp)
            takers[of].append(member_id)
    for of, tps in dealt.items():
        for tp, member_id in zip(tps, sorted(takers[of]), strict=True):
            kept[member_id].append(tp)
    target: dict[str, Partitions] = {}
    for member_id, tps in sorted(kept.items()):
        mine: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(tps):
            mine[topic].append(partition)
        target[member_id] = {topic: tuple(partitions) for topic, partitions in mine.items()}
    return target


def _places(plan: Plan) -> Iterator[tuple[TopicPartition, str]]:
    for member_id, owned in plan.target.items():
        for topic, partitions in owned.items():
            for partition in partitions:
                yield TopicPartition(topic, partition), member_id
