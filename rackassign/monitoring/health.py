"""What keeps a group from rack awareness, or from working at all, and what to do: judged from what was seen of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from rackassign.admin.replica_selector import RACK_AWARE, SELECTOR
from rackassign.monitoring.groups import (
    EMPTY,
    RESTLESS,
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    MemberDescription,
)

Kind = Literal[
    "server-assigned",
    "wedged",
    "rebalance-stuck",
    "rebalance-loop",
    "empty",
    "unreadable",
    "no-rack",
    "unknown-rack",
    "strategy",
    "brokers-without-rack",
    "brokers-without-selector",
    "selector-unknown",
]

_COOPERATIVE = "cooperative-sticky"

_JAVA_USER_DATA = 4
"""Bytes of a generation, which is all that Java's cooperative assignor has there; ours has nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        kind: By which programs know it.
        problem: What is wrong, in plain words.
        advice: What to do.
        members: Whom it is about.
        brokers: Ids of the brokers it is about.
    """

    kind: Kind
    problem: str
    advice: str
    members: tuple[MemberDescription, ...] = ()
    brokers: tuple[int, ...] = ()


def may_not_settle(group: GroupDescription) -> bool:
    """Tell whether a group at rest has members that may rebalance again and again: librdkafka's, by their user data."""
    return group.strategy == _COOPERATIVE and any(map(_is_librdkafka, group.members))


def _is_librdkafka(member: MemberDescription) -> bool:
    if member.rack is None or member.subscription is None or member.subscription.user_data is None:
        return False
    return len(member.subscription.user_data) != _JAVA_USER_DATA


def findings(
    seen: GroupObservation, brokers: Iterable[BrokerDescription], *, wedged: bool | None = False
) -> tuple[Finding, ...]:
    """Judge a group; what keeps it from working comes first.

    Args:
        seen: The group.
        brokers: All of them.
        wedged: Whether its broker cannot end the rebalance; None if that could not be told.
    """
    known = tuple(brokers)
    return (*_of_the_rebalance(seen, wedged=wedged), *_of_the_members(seen.group, known), *_of_brokers(known))


def _of_the_rebalance(seen: GroupObservation, *, wedged: bool | None) -> Iterator[Finding]:
    group = seen.group
    if wedged:
        yield Finding(
            "wedged",
            f"the broker cannot end the rebalance of {len(group.members)} members: one of them sent a subscription"
            " that makes the broker itself fail, at every join and for ever",
            "run again with --fix: it removes members until the group goes on; who is alive joins again, and the one"
            " that was last removed is to be mended",
            group.members,
        )
    elif seen.rebalances >= RESTLESS:
        yield _rebalance_loop(seen)
    elif not seen.settled:
        yield _stuck(seen, wedged=wedged)
    elif group.state == EMPTY:
        yield Finding(
            "empty",
            "nobody is in the group",
            "start its consumers; if they run, they have silently dropped out: kafka-python's own do so when a join"
            " ends between two polls, which RackAwareConsumer and attach() mend",
        )


def _stuck(seen: GroupObservation, *, wedged: bool | None) -> Finding:
    group, states = seen.group, " and ".join(seen.states)
    problem = f"the group was not at rest once in {seen.seconds:.0f} s, it was {states}"
    if not seen.preparing:
        return Finding(
            "rebalance-stuck",
            problem,
            "look at the log of its members: the leader may fail over what another member sent (attach() mends that in"
            " kafka-python), or members join and leave all the time",
            group.members,
        )
    if not group.members:
        return Finding(
            "rebalance-stuck", f"{problem}, though it has no members: its first rebalance was broken", _FIRST_BROKEN
        )
    told = "" if wedged is False else "; whether it is wedged cannot be told: it takes no further member"
    return Finding(
        "rebalance-stuck",
        f"{problem}{told}",
        "most likely a member does not join again, and then it ends by itself after the longest max.poll.interval.ms of"
        f" the members (300 s by default). If it never ends, the very first rebalance was broken: {_FIRST_BROKEN}",
        group.members,
    )


_FIRST_BROKEN = (
    "a member sent a subscription that makes the broker fail, and nothing a classic client can do frees such a group."
    " Mend that member and take another group id, or restart the broker that coordinates the group"
)


def _rebalance_loop(seen: GroupObservation) -> Finding:
    group = seen.group
    librdkafka = tuple(filter(_is_librdkafka, group.members)) if may_not_settle(group) else ()
    often = f"{seen.rebalances} rebalances in {seen.seconds:.0f} s, and no end"
    if not librdkafka:
        advice = "look which members come and go, and at their logs: the leader may fail over what another one sent"
        return Finding("rebalance-loop", often, advice, group.members)
    return Finding(
        "rebalance-loop",
        f"{often}: it is {_COOPERATIVE} with racks and has members of librdkafka, which as leaders move partitions to"
        " and fro when a rack with replicas has no member",
        "give these members partition.assignment.strategy=range, or take client.rack from them, or see to it that"
        " there is a member in every rack",
        librdkafka,
    )


def _of_the_members(group: GroupDescription, brokers: tuple[BrokerDescription, ...]) -> Iterator[Finding]:
    if group.kind == "consumer":
        yield _served(group)
    broken = tuple(m for m in group.members if m.problem)
    if broken:
        yield Finding(
            "unreadable",
            f"what {_count(broken)} sent cannot be read ({broken[0].problem}): under our leader it gets nothing, under"
            " others it may stop the whole group",
            "mend or stop them",
            broken,
        )
    told = [m for m in group.members if m.subscription is not None]
    racks = sorted({broker.rack for broker in brokers if broker.rack})
    exist = f"the brokers' racks are {', '.join(racks)}" if racks else "no broker has a rack"
    without = tuple(m for m in told if m.rack is None)
    if without:
        yield Finding(
            "no-rack",
            f"{_count(without)} of {len(group.members)} send no rack, so partitions are given to them blindly",
            f"set client.rack (client_rack, RACKASSIGN_RACK); {exist}. Old clients and kafka-python's own assignors"
            " never send it",
            without,
        )
    foreign = tuple(m for m in told if m.rack is not None and m.rack not in racks)
    if foreign and racks:
        theirs = ", ".join(sorted({repr(m.rack) for m in foreign}))
        yield Finding(
            "unknown-rack",
            f"{_count(foreign)} say they are in {theirs}, where no broker is",
            f"{exist}: use the same names, letter by letter (`rackassign rack` says what a machine would take)",
            foreign,
        )
    if group.kind == "classic" and group.strategy == "roundrobin":
        yield Finding(
            "strategy",
            "the group's strategy is roundrobin, which knows no racks whatever members send",
            "give every member a rack-aware strategy beside it first, and alone then: range or cooperative-sticky",
        )


def _served(group: GroupDescription) -> Finding:
    native = tuple(m for m in group.members if m.classic is False)
    unknown = any(m.classic is None for m in group.members)
    blame = (
        "; the broker is too old to say which members asked for that (kafka-consumer-groups.sh --describe --members"
        " --verbose lists all)"
        if unknown
        else ""
    )
    return Finding(
        "server-assigned",
        f"the broker assigns (KIP-848) with its assignor {group.strategy!r}, and no member's own strategy is asked;"
        f" Kafka's own assignors there do not look at racks{blame}",
        "set group.protocol=classic on these members, and the others take over again when the last of them has left;"
        " group.consumer.migration.policy=disabled on the brokers keeps such members out",
        native if native and not unknown else group.members,
    )


def _of_brokers(brokers: tuple[BrokerDescription, ...]) -> Iterator[Finding]:
    without = tuple(b.id for b in brokers if not b.rack)
    if without:
        yield Finding(
            "brokers-without-rack",
            f"{_ids(without)} no broker.rack, so no replica there is near to anybody",
            "set broker.rack and restart",
            brokers=without,
        )
    # One of somebody's own may well know racks.
    leaders_only = tuple(b.id for b in brokers if not b.fenced and not b.problem and not b.selector)
    if leaders_only:
        yield Finding(
            "brokers-without-selector",
            f"{_ids(leaders_only)} no {SELECTOR}: what they lead is read from them, however near another replica is",
            f"set {SELECTOR}={RACK_AWARE} and restart",
            brokers=leaders_only,
        )
    unasked = tuple(b for b in brokers if b.problem)
    if unasked:
        yield Finding(
            "selector-unknown",
            f"whether local fetching is on is not known of all brokers ({unasked[0].problem})",
            f"look at {SELECTOR} there, or ask as somebody who may",
            brokers=tuple(b.id for b in unasked),
        )


def _count(members: tuple[MemberDescription, ...]) -> str:
    return "1 member" if len(members) == 1 else f"{len(members)} members"


def _ids(brokers: tuple[int, ...]) -> str:
    return f"broker {brokers[0]} has" if len(brokers) == 1 else f"brokers {', '.join(map(str, brokers))} have"
