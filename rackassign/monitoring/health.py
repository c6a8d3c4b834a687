"""Checks for problems of a group: what prevents rack awareness, or any operation, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from rackassign.admin.describe import RACK_AWARE, SELECTOR
from rackassign.monitoring.groups import (
    EMPTY,
    RESTLESS,
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    MemberDescription,
)
from rackassign.util.text import counted, join_first, join_ids

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
    "brokers-offline",
    "brokers-without-rack",
    "brokers-without-selector",
    "selector-unknown",
    "changelog-unclean",
]

_COOPERATIVE = "cooperative-sticky"
_NAMED = 3

_JAVA_USER_DATA = 4
"""Length of a generation, which is the whole user data of Java's cooperative assignor; rackassign's has none."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem.

    Args:
        kind: Machine-readable kind.
        problem: Description of the problem.
        advice: What to do.
        members: Affected members.
        brokers: IDs of the affected brokers.
    """

    kind: Kind
    problem: str
    advice: str
    members: tuple[MemberDescription, ...] = ()
    brokers: tuple[int, ...] = ()


def may_not_settle(group: GroupDescription) -> bool:
    """Return whether a stable group has members that may rebalance endlessly: librdkafka's, by their user data."""
    return group.strategy == _COOPERATIVE and any(map(_is_librdkafka, group.members))


def _is_librdkafka(member: MemberDescription) -> bool:
    if member.rack is None or member.subscription is None or member.subscription.user_data is None:
        return False
    return len(member.subscription.user_data) != _JAVA_USER_DATA


def findings(
    seen: GroupObservation, brokers: Iterable[BrokerDescription], *, wedged: bool | None = False
) -> tuple[Finding, ...]:
    """Check a group; problems that keep it from working come first.

    Args:
        seen: Observation of the group.
        brokers: All brokers.
        wedged: Whether its broker cannot complete the rebalance; None if that could not be determined.
    """
    known = tuple(brokers)
    return (*_rebalance_findings(seen, wedged=wedged), *_member_findings(seen.group, known), *_broker_findings(known))


def changelog_findings(unclean: Iterable[str]) -> tuple[Finding, ...]:
    """Return the finding about changelogs whose leader may be elected without their last records; none without any."""
    names = sorted(unclean)
    if not names:
        return ()
    return (
        Finding(
            "changelog-unclean",
            f"{join_first(names, _NAMED)} {'has' if len(names) == 1 else 'have'} unclean.leader.election.enable=true: a"
            " leader without the last records would lose state",
            "set it to false: kafka-configs.sh --alter --entity-type topics --entity-name NAME --add-config"
            " unclean.leader.election.enable=false",
        ),
    )


def _rebalance_findings(seen: GroupObservation, *, wedged: bool | None) -> Iterator[Finding]:
    group = seen.group
    if wedged:
        yield Finding(
            "wedged",
            f"the broker cannot end the rebalance of {len(group.members)} members: one of them sent a subscription"
            " that makes the broker itself fail, at every join and for ever",
            "run again with --fix: it removes members until the group continues; live members will rejoin; fix the"
            " client that was removed last",
            group.members,
        )
    elif seen.rebalances >= RESTLESS:
        yield _rebalance_loop(seen)
    elif not seen.settled:
        yield _stuck(seen, wedged=wedged)
    elif group.state == EMPTY:
        yield Finding(
            "empty",
            "the group has no members",
            "start its consumers; if they are running, they have silently left: those of kafka-python do so when a join"
            " completes between two polls, which RackAwareConsumer and attach() fix",
        )


def _stuck(seen: GroupObservation, *, wedged: bool | None) -> Finding:
    group, states = seen.group, " and ".join(seen.states)
    problem = f"the group was not at rest once in {seen.seconds:.0f} s, it was {states}"
    if not seen.preparing:
        return Finding(
            "rebalance-stuck",
            problem,
            "if members were killed, wait until their session.timeout.ms is over (45 s by default). Otherwise check the"
            " logs of the members: the leader may fail on the data of another member (attach() fixes that in"
            " kafka-python), or members join and leave all the time",
            group.members,
        )
    if not group.members:
        return Finding(
            "rebalance-stuck", f"{problem}, though it has no members: its first rebalance was broken", _FIRST_BROKEN
        )
    unsure = "" if wedged is False else "; it cannot be determined whether it is wedged: it accepts no further member"
    return Finding(
        "rebalance-stuck",
        f"{problem}{unsure}",
        "most likely a member does not join again, and then it ends by itself after the longest max.poll.interval.ms of"
        f" the members (300 s by default). If it never ends, the very first rebalance was broken: {_FIRST_BROKEN}",
        group.members,
    )


_FIRST_BROKEN = (
    "a member sent a subscription that makes the broker fail, and nothing a classic client can do frees such a group."
    " Fix that member and use another group ID, or restart the broker that coordinates the group"
)


def _rebalance_loop(seen: GroupObservation) -> Finding:
    group = seen.group
    librdkafka = tuple(filter(_is_librdkafka, group.members)) if may_not_settle(group) else ()
    often = f"{seen.rebalances} rebalances in {seen.seconds:.0f} s, and no end"
    if not librdkafka:
        advice = "check which members come and go, and their logs: the leader may fail on the data of another member"
        return Finding("rebalance-loop", often, advice, group.members)
    return Finding(
        "rebalance-loop",
        f"{often}: it is {_COOPERATIVE} with racks and has members of librdkafka, which as leaders move partitions to"
        " and fro when a rack with replicas has no member",
        "give these members partition.assignment.strategy=range, or remove their client.rack, or make sure that there"
        " is a member in every rack",
        librdkafka,
    )


def _member_findings(group: GroupDescription, brokers: tuple[BrokerDescription, ...]) -> Iterator[Finding]:
    # A group without members keeps the type of the last ones.
    if group.kind == "consumer" and group.members:
        yield _served(group)
    broken = tuple(m for m in group.members if m.problem)
    if broken:
        yield Finding(
            "unreadable",
            f"the subscription of {_count(broken)} cannot be decoded ({broken[0].problem}): with a leader of rackassign"
            " it gets nothing, with others it may stop the whole group",
            "fix or stop these clients",
            broken,
        )
    reporting = [m for m in group.members if m.subscription is not None]
    racks = sorted({broker.rack for broker in brokers if broker.rack})
    exist = f"the brokers' racks are {', '.join(racks)}" if racks else "no broker has a rack"
    without = tuple(m for m in reporting if m.rack is None)
    if without:
        yield Finding(
            "no-rack",
            f"{_count(without)} of {len(group.members)} {_verb('send', without)} no rack, so partitions are given to"
            " them blindly",
            f"set client.rack (client_rack, RACKASSIGN_RACK); {exist}. Old clients and kafka-python's own assignors"
            " never send it",
            without,
        )
    foreign = tuple(m for m in reporting if m.rack is not None and m.rack not in racks)
    if foreign and racks:
        yield _unknown_rack(foreign, exist, tuple(b.id for b in brokers if b.fenced and not b.rack))
    if group.kind == "classic" and group.strategy == "roundrobin":
        yield Finding(
            "strategy",
            "the group's strategy is roundrobin, which ignores racks whatever members send",
            "give every member a rack-aware strategy beside it first, and alone then: range or cooperative-sticky",
        )


def _unknown_rack(foreign: tuple[MemberDescription, ...], exist: str, hidden: tuple[int, ...]) -> Finding:
    """Return the finding of members with a rack that no broker shows.

    Args:
        foreign: The members.
        exist: Text with the racks of the brokers.
        hidden: IDs of brokers that are offline, and whose rack the cluster does not list (before 4.0).
    """
    theirs = ", ".join(sorted({repr(m.rack) for m in foreign}))
    advice = f"{exist}: use exactly the same names (`rackassign detect-rack` shows the rack of a machine)"
    if hidden:
        advice = (
            f"start {_ids(hidden, 'first', 'first')}: the rack of an offline broker is not shown, and may be that of"
            f" these members; otherwise {advice}"
        )
    return Finding(
        "unknown-rack",
        f"{_count(foreign)} {_verb('report', foreign)} {theirs} as {'its' if len(foreign) == 1 else 'their'} rack,"
        f" which has no broker{' that is online' if hidden else ''}",
        advice,
        foreign,
    )


def _served(group: GroupDescription) -> Finding:
    native = tuple(m for m in group.members if m.classic is False)
    unknown = any(m.classic is None for m in group.members)
    blame = (
        "; the broker is too old to report which members requested that (kafka-consumer-groups.sh --describe --members"
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


def _broker_findings(brokers: tuple[BrokerDescription, ...]) -> Iterator[Finding]:
    offline = tuple(b for b in brokers if b.fenced or b.unreachable)
    if offline:
        ids = tuple(b.id for b in offline)
        racks = sorted({b.rack for b in offline if b.rack})
        where = f"in {' and '.join(racks)} " if racks else ""
        yield Finding(
            "brokers-offline",
            f"{_ids(ids, 'is', 'are')} offline: no replica there serves a reader, so members {where}may read from other"
            " racks",
            "start what is offline; `rackassign audit` shows the partitions that are affected",
            brokers=ids,
        )
    without = tuple(b.id for b in brokers if not b.rack and not b.fenced)
    if without:
        yield Finding(
            "brokers-without-rack",
            f"{_ids(without)} no broker.rack, so no replica there is local to any reader",
            "set broker.rack and restart",
            brokers=without,
        )
    # A custom selector may well be rack-aware.
    leaders_only = tuple(b.id for b in brokers if not b.fenced and not b.problem and not b.selector)
    if leaders_only:
        yield Finding(
            "brokers-without-selector",
            f"{_ids(leaders_only)} no {SELECTOR}: what they lead is read from them, even if another replica is local",
            f"set {SELECTOR}={RACK_AWARE} and restart",
            brokers=leaders_only,
        )
    unasked = tuple(b for b in brokers if b.problem and not b.unreachable)
    if unasked:
        yield Finding(
            "selector-unknown",
            f"it is not known of all brokers whether follower fetching is on ({unasked[0].problem})",
            f"check {SELECTOR} there, or use credentials that may read it",
            brokers=tuple(b.id for b in unasked),
        )


def _verb(verb: str, members: tuple[MemberDescription, ...]) -> str:
    return f"{verb}s" if len(members) == 1 else verb


def _count(members: tuple[MemberDescription, ...]) -> str:
    return counted(len(members), "member")


def _ids(brokers: tuple[int, ...], one: str = "has", several: str = "have") -> str:
    return f"broker {brokers[0]} {one}" if len(brokers) == 1 else f"brokers {join_ids(brokers)} {several}"
