"""Checks of a group for what prevents rack awareness or any operation, its migration, and the examination of one group.

A group's migration from an eager strategy to `cooperative-sticky` is shown as far as it is visible. A group shows the
strategy that it has chosen and what members sent for that one, not which others they offer. A member that keeps its
partitions when it rejoins offers no eager strategy, since with one it would revoke everything before it joins. A member
that owned nothing may offer either.

An examination observes a group, recovers it if it is wedged and that is requested, and checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from kafka import KafkaAdminClient

from rackassign import broker_plugin
from rackassign.admin.admin_client import AuthorizationError
from rackassign.admin.describe import RACK_AWARE, SELECTOR, UNCLEAN_ELECTION, topic_configs
from rackassign.admin.groups import GroupAdmin
from rackassign.assignor.standby import NAME as STANDBY
from rackassign.assignor.standby import default_changelog
from rackassign.locality import Locality, RackSets
from rackassign.model import BALANCE_MODES, STRATEGY_NAMES, Group, Plan
from rackassign.monitoring.analysis import current_reads
from rackassign.monitoring.live_groups import (
    EMPTY,
    RESTLESS,
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    MemberDescription,
    RackMap,
    Snapshot,
    coordinator_assignors,
    snapshot,
    topics_of,
    watch,
    with_own_assignor,
)
from rackassign.monitoring.traffic import ObservedCluster, count_locality, describe_cluster, in_each_rack
from rackassign.monitoring.wedged_group import RecoveryResult, is_wedged, recover
from rackassign.racks import BrokerRackCache
from rackassign.strategies import STRATEGIES, Options, plan_consumer_protocol
from rackassign.text import counted, join_first, join_ids

Kind = Literal[
    "server-assigned",
    "other-assignor",
    "plan-outdated",
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
    "broker-assignors",
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
    return (
        *_rebalance_findings(seen, wedged=wedged),
        *_member_findings(seen.group, known),
        *_broker_findings(known),
        *_assignor_findings(known),
    )


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
    elif seen.rebalances >= RESTLESS and not (group.kind == "consumer" and seen.settled):
        yield _rebalance_loop(seen)
    elif not seen.settled and not seen.progress:
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
    if group.kind == "consumer":
        return _epochs_stand_still(group, problem)
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


_AWAY = -2
"""Epoch of a static member that has left, and whose partitions are kept for it (KIP-848)."""


def _epochs_stand_still(group: GroupDescription, problem: str) -> Finding:
    """Return the finding of a group to which the broker assigns, and which does not reach its epoch."""
    if group.assignment_epoch < group.epoch:
        return Finding(
            "rebalance-stuck",
            f"{problem}: it is at epoch {group.epoch}, and the broker has planned epoch {group.assignment_epoch}",
            f"the log of the broker that coordinates the group has the reason. Often its assignor, {group.strategy!r},"
            " fails, or this broker lacks it, and a member requests it (group.remote.assignor)",
            group.members,
        )
    if away := tuple(m for m in group.members if m.epoch == _AWAY):
        return Finding(
            "rebalance-stuck",
            f"{problem}: {_count(away)} with a group.instance.id {'has' if len(away) == 1 else 'have'} left and may"
            " return, and no other member reads what is kept for that",
            "start what has left. Otherwise the others get its partitions after group.consumer.session.timeout.ms (45 s"
            " by default)",
            away,
        )
    # The others wait for what these have to give up.
    late = tuple(m for m in group.members if m.epoch < group.epoch) or group.behind
    return Finding(
        "rebalance-stuck",
        f"{problem}: it is at epoch {group.epoch}, which {_count(late)} {'has' if len(late) == 1 else 'have'} yet to"
        " reach",
        "a member gives up partitions while it polls: check that these do. One of librdkafka whose heartbeat timed out"
        " may hang until it is restarted",
        late,
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


_SETTING = f"{broker_plugin.PROPERTY}={broker_plugin.ASSIGNORS}"


def _have_own(brokers: Iterable[BrokerDescription]) -> bool:
    return any(broker_plugin.is_own(each) for broker in brokers for each in broker.assignors)


def _member_findings(group: GroupDescription, brokers: tuple[BrokerDescription, ...]) -> Iterator[Finding]:
    # A group without members keeps the type of the last ones.
    if group.kind == "consumer" and group.members and group.strategy != broker_plugin.NAME:
        yield _served(group, brokers)
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
    """Return the finding of members with a rack that no broker shows."""
    # `hidden`: IDs of brokers that are offline, and whose rack the cluster does not list (before 4.0).
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


def _served(group: GroupDescription, brokers: tuple[BrokerDescription, ...]) -> Finding:
    native = tuple(m for m in group.members if m.classic is False)
    # Brokers have different lists while they are restarted one by one, and the coordinator's is the one that counts.
    listed = coordinator_assignors(group, brokers)
    if listed and broker_plugin.is_own(listed[0]):
        return Finding(
            "other-assignor",
            f"the coordinator, broker {group.coordinator}, assigns with {group.strategy!r}, although rackassign's is"
            " its first: most of the members that request one with group.remote.assignor request that, and brokers do"
            " not show which",
            f"set {_SETTING} on all brokers, whose assignor is for these members, too"
            if group.strategy == "uniform"
            else "remove group.remote.assignor from all of them, and restart them one by one",
            native or group.members,
            (group.coordinator,),
        )
    if listed and _have_own(brokers) and not any(map(broker_plugin.is_own, listed)):
        return Finding(
            "server-assigned",
            f"the coordinator, broker {group.coordinator}, has no assignor of rackassign yet, and others have: its own"
            f" {group.strategy!r} assigns, and does not look at racks",
            f"set {_SETTING} there, too, and restart it; the next change of the group is planned with racks. Clients"
            " stay as they are",
            native or group.members,
            (group.coordinator,),
        )
    blame = (
        "; the broker is too old to report which members requested that (kafka-consumer-groups.sh --describe --members"
        " --verbose lists all)"
        if any(m.classic is None for m in group.members)
        else ""
    )
    unread = "" if listed else f", unless rackassign's has that name: {broker_plugin.PROPERTY} there is not known"
    return Finding(
        "server-assigned",
        f"the broker assigns (KIP-848) with its assignor {group.strategy!r}, and no member's own strategy is asked;"
        f" Kafka's own assignors there do not look at racks{unread}{blame}",
        "load rackassign's assignor on all brokers (`rackassign broker-plugin install-hint`), or set"
        " group.protocol=classic on these members, and the others take over again when the last of them has left;"
        " group.consumer.migration.policy=disabled on the brokers keeps such members out",
        native if native and not blame else group.members,
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


def _assignor_findings(brokers: tuple[BrokerDescription, ...]) -> Iterator[Finding]:
    """Return what is wrong with the lists of assignors of brokers; those of all brokers should be the same."""
    listed = broker_plugin.PROPERTY
    twice = tuple(b.id for b in brokers if len(set(map(broker_plugin.name_of, b.assignors))) < len(b.assignors))
    if twice:
        yield Finding(
            "broker-assignors",
            f"{_ids(twice)} two assignors of one name in {listed}: Kafka 4.1 to 4.3 start so, and then load no group",
            f"list each name once, as in {_SETTING}, and restart",
            brokers=twice,
        )
    # A list that could not be read is no list without the plug-in.
    known = [b for b in brokers if b.assignors]
    lacking = tuple(b.id for b in known if not _have_own([b]))
    if lacking and len(lacking) < len(known):
        named = any(broker_plugin.CLASS in b.assignors for b in known)
        yield Finding(
            "broker-assignors",
            f"{_ids(lacking)} no assignor of rackassign in {listed}, and others have: while one of these coordinates"
            " a group of KIP-848, racks make no difference"
            + (f", and a member that requests {broker_plugin.NAME!r} ends for good" if named else ""),
            f"set {_SETTING} on all brokers, one after the other"
            + ("; until then no client names the assignor" if named else ""),
            brokers=lacking,
        )
    later = tuple(b.id for b in known if _have_own([b]) and not broker_plugin.is_own(b.assignors[0]))
    if later:
        yield Finding(
            "broker-assignors",
            f"{_ids(later)} another assignor before that of rackassign in {listed}, so groups of KIP-848 use that one",
            f"set {_SETTING}, and restart",
            brokers=later,
        )


def _verb(verb: str, members: tuple[MemberDescription, ...]) -> str:
    return f"{verb}s" if len(members) == 1 else verb


def _count(members: tuple[MemberDescription, ...]) -> str:
    return counted(len(members), "member")


def _ids(brokers: tuple[int, ...], one: str = "has", several: str = "have") -> str:
    return f"broker {brokers[0]} {one}" if len(brokers) == 1 else f"brokers {join_ids(brokers)} {several}"


_MEMBERS_NAMED = 5
"""Number of members that are named; others are counted."""


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """Progress of a group's migration.

    Args:
        now: The current state.
        next: The next step towards `cooperative-sticky`; empty if there is none.
        unseen: What is not visible from outside; empty if everything is.
    """

    now: str
    next: str = ""
    unseen: str = ""


def migration_step(group: GroupDescription) -> MigrationStep:
    """Return the progress of a group's migration."""
    if group.kind == "consumer":
        classic = sum(m.classic is True for m in group.members)
        converted = (
            f"; it was converted: {classic} of its {len(group.members)} members joined with the classic protocol, and"
            " assign again when the last of the others has left"
        )
        who = f"the broker assigns with {group.strategy}" if group.strategy else "the broker assigns"
        return MigrationStep(f"{who}, the strategies of the members rest{converted if classic else ''}")
    if not group.is_visible or not group.strategy:
        return MigrationStep("no strategy is shown now")
    if group.strategy not in {*STRATEGY_NAMES, "roundrobin"}:
        return MigrationStep(f"{group.strategy}, which is none of the standard strategies")
    if group.strategy != _COOPERATIVE:
        return MigrationStep(
            f"{group.strategy} is chosen, so not every member offers {_COOPERATIVE} before it",
            f"for {_COOPERATIVE}, restart the members one by one with both, {_COOPERATIVE} first; when it is chosen,"
            " once more with it alone",
            "which members offer both already",
        )
    others = sorted({m.client_id for m in group.members if m.subscription is None or not m.subscription.owned})
    if not others:
        return MigrationStep(f"{_COOPERATIVE} alone on all members")
    # A new group looks the same as one in the middle of its migration, so this is no step to recommend.
    return MigrationStep(
        f"all members offer {_COOPERATIVE}",
        unseen="whether these members offer an eager strategy too, as between the two restarts of a migration; they"
        f" show it when they rejoin with partitions: {join_first(others, _MEMBERS_NAMED)}",
    )


def _with_unlisted(cluster: ObservedCluster) -> tuple[BrokerDescription, ...]:
    """Return all brokers with those that only the replicas of the group's topics show: older clusters list no dead one.

    Topics that may not be described are left out.
    """
    listed = {broker.id for broker in cluster.brokers}
    topics = cluster.topology.topics.values()
    hosts = {replica for partitions in topics for partition in partitions for replica in partition.replicas}
    return (*cluster.brokers, *(BrokerDescription(broker, None, fenced=True) for broker in sorted(hosts - listed)))


_PLAN_S = 5.0
"""Time limit of a plan that is compared with what members have."""


def plan_findings(shot: Snapshot) -> tuple[Finding, ...]:
    """Return the finding of a group that would be planned better now; none for any other group.

    The broker plug-in plans when members, topics or racks of replicas change, and not when the rack of a member does
    (KAFKA-20909). A classic group is not planned when a static member returns. Of such a member the broker shows the
    rack that it has now, beside the assignment of before.
    """
    live = shot.live
    if not live.is_stable:
        return ()
    if live.kind == "consumer":
        if live.strategy != broker_plugin.NAME:
            return ()
        # Brokers do not show which of both their property rackassign.balance is.
        modes = [Options(balance=mode, time_limit_s=_PLAN_S) for mode in BALANCE_MODES]
        fewer = _fewer_across(shot, lambda group: [plan_consumer_protocol(group, mode) for mode in modes])
        if not fewer:
            return ()
        return (
            Finding(
                "plan-outdated",
                f"{counted(fewer, 'partition')} fewer would cross racks if the broker planned now: it does not when it"
                " has got another assignor, or a member returns with another rack (KAFKA-20909)",
                "restart a member, and the broker plans; one with a group.instance.id has to be away for longer than"
                " group.consumer.session.timeout.ms (45 s by default). If that changes nothing, its plans are limited,"
                " as the log of the coordinator shows, or it is Kafka 4.0, which shows an assignor no racks",
                live.members,
            ),
        )
    static = tuple(member for member in live.members if member.instance_id is not None)
    if not static or live.strategy not in STRATEGY_NAMES:
        return ()
    plan = STRATEGIES[live.strategy]
    fewer = _fewer_across(shot, lambda group: [plan(group, Options(time_limit_s=_PLAN_S))])
    if not fewer:
        return ()
    return (
        Finding(
            "plan-outdated",
            f"{counted(fewer, 'partition')} fewer would cross racks if a member of rackassign planned now: no leader"
            " plans when a static member returns within its session, also from another rack",
            "restart a member without a group.instance.id, or keep a static one stopped for longer than its session"
            " timeout. With range, and with members of other clients, that is the only way; other members of rackassign"
            " request a plan when they return. If that changes nothing, the leader assigns without racks",
            static,
        ),
    )


def _fewer_across(shot: Snapshot, plans: Callable[[Group], Sequence[Plan]]) -> int:
    """Return how many partitions fewer would cross racks with the worst of some plans; 0 if none."""
    group = shot.as_leader_sees()
    racks = RackSets.of(group.topology, "any-replica")
    counts = {topic: len(row) for topic, row in group.topology.topics.items()}
    # A topic may have been created again meanwhile, with fewer partitions.
    owned = {
        member: {topic: tuple(p for p in ids if p < counts[topic]) for topic, ids in own.items()}
        for member, own in shot.owned.items()
    }
    now = Locality.count(group, owned, racks).cross
    if not now:
        return 0
    return max(0, now - max(Locality.count(group, plan.target, racks).cross for plan in plans(group)))


def _unclean_changelogs(admin: KafkaAdminClient, group: GroupDescription) -> list[str]:
    """Return the changelogs of a group with state that may lose their last records; none if that may not be read.

    Looked at are those with the names that members choose by default.
    """
    if group.strategy != STANDBY:
        return []
    names = [default_changelog(group.name, topic) for topic in topics_of(group)]
    with suppress(AuthorizationError):
        configs = topic_configs(admin, names, [UNCLEAN_ELECTION])
        return [name for name, values in configs.items() if values[UNCLEAN_ELECTION] == "true"]
    return []


@dataclass(frozen=True, slots=True)
class Examination:
    """A group that was examined.

    Args:
        group: The group, as observed last.
        findings: Its problems; those that keep it from working come first.
        migration: Progress of its migration to `cooperative-sticky`.
        recovery: Members that were removed to recover it.
        locality: The partitions that its members have, by whether they are read in the reader's rack now.
        missing: Topics that cannot be described, each with the reason; `locality` is without them.
        in_each_rack: Unknown partitions that each rack has a replica of: local to readers with `client.rack`.
    """

    group: GroupDescription
    findings: tuple[Finding, ...]
    migration: MigrationStep
    recovery: RecoveryResult
    locality: Locality
    missing: Mapping[str, str] = field(default_factory=dict)
    in_each_rack: int = 0


def examine(
    admin: KafkaAdminClient,
    name: str,
    *,
    observe_s: float,
    fix: bool = False,
    watching: Callable[[], None] = lambda: None,
    report_removed: Callable[[MemberDescription], None] = lambda _: None,
) -> Examination:
    """Examine a group and the brokers. Nothing is changed unless the group is wedged and `fix` is set.

    Args:
        admin: Admin client.
        name: Name of the group.
        observe_s: Seconds to observe a group that is not stable or may not stay so.
        fix: Whether to remove members of a wedged group until it continues.
        watching: Called before each observation that takes time.
        report_removed: Called with each member that was removed, also if an error follows.

    Raises:
        ConfigError: The group does not exist.
        KafkaError: Raised by the admin client.
    """
    calls = GroupAdmin(admin)

    def observe() -> tuple[GroupObservation, bool | None]:
        observation = watch(calls, name, observe_s, suspicious=may_not_settle, waiting=watching)
        # Only a rebalance that does not end can be one that the broker cannot complete.
        return observation, observation.preparing and is_wedged(calls, name)

    observation, wedged = observe()
    recovery = RecoveryResult()
    if wedged and fix:
        recovery = recover(admin, calls, name, report_removed)
        # The group is checked as it is now, since it may have other problems.
        observation, wedged = observe()
    cluster = describe_cluster(admin, topics_of(observation.group), BrokerRackCache())
    observation = replace(observation, group=with_own_assignor(observation.group, cluster.brokers))
    shot = snapshot(observation.group, cluster.topology, RackMap())
    found = (
        *findings(observation, _with_unlisted(cluster), wedged=wedged),
        *plan_findings(shot),
        *changelog_findings(_unclean_changelogs(admin, observation.group)),
    )
    reads = current_reads(shot, cluster)
    locality = count_locality(reads)
    # A wrong name of a rack is no name that brokers look for.
    silent = [read for read in reads if read.member not in shot.foreign_racks]
    covered = in_each_rack(silent, cluster.in_sync_replicas(shot.group.topology))
    if covered and len(covered) == locality.unknown:
        # Members that send no rack may have one all the same, and no assignment makes a difference.
        found = tuple(finding for finding in found if finding.kind != "no-rack")
    step = migration_step(observation.group)
    return Examination(observation.group, found, step, recovery, locality, cluster.missing, len(covered))
