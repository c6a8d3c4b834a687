"""What the doctor finds in a description of a group, and does not find in a healthy one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import NoError, UnknownError, UnknownMemberIdError

from rackassign import broker_plugin
from rackassign.admin.groups import DescribedGroup, DescribedMember, GroupAdmin
from rackassign.errors import ConfigError
from rackassign.model import STRATEGY_NAMES
from rackassign.monitoring import (
    BrokerDescription,
    GroupDescription,
    GroupObservation,
    MemberDescription,
    RackMap,
    RecoveryResult,
    describe_group,
    findings,
    is_wedged,
    may_not_settle,
    migration_step,
    recover,
    watch,
    wedged_group,
)
from rackassign.monitoring.health import plan_findings
from rackassign.monitoring.live_groups import Snapshot, snapshot, with_own_assignor
from rackassign.wire import Assignment, StickyData, Subscription, encode_assignment, encode_sticky, encode_subscription
from tests.helpers.builders import cluster

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
BROKERS = tuple(BrokerDescription(i, rack, selector=SELECTOR) for i, rack in enumerate("abc", 1))


def member(name: str, rack: str | None = "a", **more: Any) -> MemberDescription:
    said = more.pop("subscription", Subscription(("t",), owned={"t": (0,)}, generation=4, rack=rack))
    return MemberDescription(name, f"client of {name}", "10.0.0.1", subscription=said, **more)


def group(*members: MemberDescription, **more: Any) -> GroupDescription:
    made = {"name": "g", "kind": "classic", "state": "Stable", "strategy": "cooperative-sticky", **more}
    return GroupDescription(**made, members=members)


HEALTHY = group(member("m1", "a"), member("m2", "b"), member("m3", "c"))


def watched(of: GroupDescription = HEALTHY, *states: str, rebalances: int = 0) -> GroupObservation:
    return GroupObservation(of, states or (of.state,), rebalances, 10.0)


def kinds(seen: GroupObservation, brokers: tuple[BrokerDescription, ...] = BROKERS, **more: Any) -> list[str]:
    return [finding.kind for finding in findings(seen, brokers, **more)]


def waiting(*members: MemberDescription) -> GroupDescription:
    blank = tuple(replace(m, subscription=None) for m in members or HEALTHY.members)
    return replace(HEALTHY, state="PreparingRebalance", strategy="", members=blank)


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky", "somebody's own"])
def test_nothing_is_found_in_a_healthy_group(strategy: str) -> None:
    assert kinds(watched(replace(HEALTHY, strategy=strategy))) == []
    # Two rebalances are what one change may take.
    assert kinds(watched(replace(HEALTHY, strategy=strategy), "Stable", "PreparingRebalance", rebalances=2)) == []


def test_a_served_group_names_the_members_that_asked_for_it() -> None:
    asked, served = member("new", classic=False), member("old", classic=True)
    mixed = group(asked, served, kind="consumer", strategy="uniform")
    (found,) = findings(watched(mixed), BROKERS)
    assert (found.kind, found.members) == ("server-assigned", (asked,))
    assert "1 of its 2 members" in migration_step(mixed).now
    assert "uniform" in found.problem
    assert "group.protocol=classic" in found.advice
    unknown = replace(mixed, members=(replace(asked, classic=None), served))
    (found,) = findings(watched(unknown), BROKERS)
    assert found.members == unknown.members
    assert "too old to report" in found.problem
    left = replace(mixed, members=(), state="Empty")
    assert [found.kind for found in findings(watched(left), BROKERS)] == ["empty"]


OURS, NAMED = (broker_plugin.UNIFORM_CLASS, "range"), (broker_plugin.CLASS, "uniform")


def with_lists(*lists: tuple[str, ...]) -> tuple[BrokerDescription, ...]:
    return tuple(replace(broker, assignors=each) for broker, each in zip(BROKERS, lists, strict=True))


@pytest.mark.parametrize(
    ("strategy", "coordinator", "advice"),
    [("range", OURS, "remove group.remote.assignor"), ("uniform", NAMED, broker_plugin.ASSIGNORS)],
)
def test_with_the_plug_in_first_at_the_coordinator_another_assignor_is_a_wish_of_members(
    strategy: str, coordinator: tuple[str, ...], advice: str
) -> None:
    wishing = group(member("m", classic=False), kind="consumer", strategy=strategy, coordinator=1)
    # What others list makes no difference to the group.
    found = findings(watched(wishing), with_lists(coordinator, ("uniform", "range"), ()))[0]
    assert (found.kind, found.members, found.brokers) == ("other-assignor", wishing.members, (1,))
    assert advice in found.advice
    assert kinds(watched(replace(wishing, strategy=broker_plugin.NAME)), with_lists(*[coordinator] * 3)) == []


def test_a_coordinator_that_has_the_plug_in_yet_to_get_is_what_a_finding_is_about() -> None:
    served = group(member("m", classic=False), kind="consumer", strategy="uniform", coordinator=2)
    found = findings(watched(served), with_lists(OURS, ("uniform", "range"), OURS))[0]
    assert (found.kind, found.brokers) == ("server-assigned", (2,))
    assert "the coordinator, broker 2, has no assignor of rackassign yet" in found.problem
    assert broker_plugin.ASSIGNORS in found.advice
    assert "classic" not in found.advice
    # One whose list may not be read may have it under the same name.
    found = findings(watched(served), with_lists(OURS, (), OURS))[0]
    assert (found.kind, "unless rackassign's has that name" in found.problem) == ("server-assigned", True)


@pytest.mark.parametrize(
    ("strategy", "lists", "own"),
    [
        ("uniform", (OURS, ("uniform", "range")), True),
        ("uniform", (("uniform", "range"), OURS), False),
        ("range", (OURS, OURS), False),
        ("uniform", (NAMED, NAMED), False),
        ("rackassign", (NAMED, NAMED), True),
        ("uniform", ((), OURS), False),
    ],
)
def test_an_assignor_of_the_coordinator_in_place_of_kafkas_has_its_own_name(
    strategy: str, lists: tuple[tuple[str, ...], ...], *, own: bool
) -> None:
    served = group(member("m", classic=False), kind="consumer", strategy=strategy, coordinator=1)
    brokers = with_lists(*lists, OURS)
    named = replace(served, strategy=broker_plugin.NAME) if own else served
    assert with_own_assignor(served, brokers) == named
    classic = replace(served, kind="classic", strategy="uniform")
    assert with_own_assignor(classic, brokers) == classic


@pytest.mark.parametrize(
    ("planned", "epoch", "named", "words"),
    [
        (4, 4, {"late", "on time"}, "the broker has planned epoch 4"),
        (5, 4, {"late"}, "which 1 member has yet to reach"),
        pytest.param(5, -2, {"late"}, "1 member with a group.instance.id has left and may return", id="static"),
    ],
)
def test_epochs_that_stand_still_are_told_by_who_has_not_reached_them(
    planned: int, epoch: int, named: set[str], words: str
) -> None:
    members = (member("late", epoch=epoch), member("on time", epoch=5, awaits=True))
    stuck = group(*members, kind="consumer", strategy=broker_plugin.NAME, state="Reconciling")
    seen = watched(replace(stuck, epoch=5, assignment_epoch=planned), "Reconciling")
    (found,) = findings(seen, BROKERS)
    assert (found.kind, {m.id for m in found.members}) == ("rebalance-stuck", named)
    assert words in found.problem
    # With heartbeats of five seconds a join may take longer than an observation.
    assert findings(replace(seen, progress=True), BROKERS) == ()
    # Members come and go all the time, and not only while the group starts.
    assert kinds(replace(seen, progress=True, rebalances=3)) == ["rebalance-loop"]
    assert kinds(replace(seen, group=replace(seen.group, state="Stable"), rebalances=3)) == []


def test_a_plan_that_a_changed_rack_has_made_worse_is_told() -> None:
    """KAFKA-20909: the broker does not plan when a member returns with another rack."""
    there = cluster({"t": [[1], [2], [3]]}).topology

    def of(*racks: str, **more: Any) -> GroupDescription:
        members = [
            member(f"m{i}", subscription=Subscription(("t",), rack=rack), assigned={"t": (i,)})
            for i, rack in enumerate(racks)
        ]
        return group(*members, **{"kind": "consumer", "strategy": broker_plugin.NAME, **more})

    (found,) = plan_findings(snapshot(of("b", "a", "c"), there, RackMap()))
    assert found.kind == "plan-outdated"
    assert found.problem.startswith("2 partitions fewer")
    for fine in (of("a", "b", "c"), of("b", "a", "c", strategy="uniform"), of("b", "a", "c", state="Reconciling")):
        assert plan_findings(snapshot(fine, there, RackMap())) == ()
    # Nobody is in c: what is read across racks is as little as can be.
    assert plan_findings(snapshot(of("a", "b", "a"), there, RackMap())) == ()


@pytest.mark.parametrize("strategy", STRATEGY_NAMES)
def test_a_static_member_that_returned_in_another_rack_is_told(strategy: str) -> None:
    there = cluster({"t": [[1], [2], [3]]}).topology

    def of(*racks: str, static: str | None = "i", **more: Any) -> Snapshot:
        members = [
            member(f"m{i}", subscription=Subscription(("t",), rack=rack), assigned={"t": (i,)}, instance_id=static)
            for i, rack in enumerate(racks)
        ]
        return snapshot(group(*members, **{"strategy": strategy, **more}), there, RackMap())

    (found,) = plan_findings(of("b", "a", "c"))
    assert (found.kind, len(found.members)) == ("plan-outdated", 3)
    assert found.problem.startswith("2 partitions fewer")
    for fine in (of("a", "b", "c"), of("b", "a", "c", static=None), of("b", "a", "c", state="PreparingRebalance")):
        assert plan_findings(fine) == ()


def test_a_plan_is_compared_though_members_have_what_cannot_be_described_or_is_no_more() -> None:
    there = cluster({"t": [[1], [2], [3]]}).topology
    members = [
        member(f"m{i}", subscription=Subscription(("t", "hidden"), rack=rack), assigned={"t": (i, 7), "hidden": (i,)})
        for i, rack in enumerate("bac")
    ]
    served = group(*members, kind="consumer", strategy=broker_plugin.NAME)
    (found,) = plan_findings(snapshot(served, there, RackMap()))
    assert found.problem.startswith("2 partitions fewer")


def test_a_wedged_group_is_told_from_a_long_rebalance() -> None:
    seen = watched(waiting())
    (wedged,) = findings(seen, BROKERS, wedged=True)
    assert (wedged.kind, wedged.members) == ("wedged", seen.group.members)
    assert "--fix" in wedged.advice
    (long,) = findings(seen, BROKERS, wedged=False)
    assert long.kind == "rebalance-stuck"
    assert "max.poll.interval.ms" in long.advice
    (untold,) = findings(seen, BROKERS, wedged=None)
    assert untold.kind == "rebalance-stuck"
    assert "cannot be determined" in untold.problem


def test_a_first_rebalance_that_was_broken_shows_when_nobody_is_left() -> None:
    (found,) = findings(watched(replace(waiting(), members=())), BROKERS)
    assert found.kind == "rebalance-stuck"
    assert "another group ID" in found.advice


def test_a_group_that_goes_round_is_not_taken_for_one_that_waits() -> None:
    (found,) = findings(watched(waiting(), "PreparingRebalance", "CompletingRebalance"), BROKERS)
    assert found.kind == "rebalance-stuck"
    assert "PreparingRebalance and CompletingRebalance" in found.problem
    # A member that was killed is the likeliest reason, and the only one that ends by itself.
    assert found.advice.startswith("if members were killed, wait until their session.timeout.ms is over")
    assert "--fix" not in found.advice


def librdkafka(name: str, rack: str | None) -> MemberDescription:
    blob = encode_sticky(StickyData({"t": (0,)}, 4))
    return member(name, subscription=Subscription(("t",), blob, {"t": (0,)}, 4, rack))


def test_members_of_librdkafka_are_named_in_a_group_that_does_not_settle() -> None:
    theirs = librdkafka("rd", "b")
    mixed = group(member("ours", "a"), theirs)
    assert may_not_settle(mixed)
    assert kinds(watched(mixed)) == []
    (found,) = findings(watched(mixed, rebalances=3), BROKERS)
    assert (found.kind, found.members) == ("rebalance-loop", (theirs,))
    assert "partition.assignment.strategy=range" in found.advice


def test_who_is_no_suspect_is_not_blamed() -> None:
    java = member("java", "c", subscription=Subscription(("t",), b"\0\0\0\4", {"t": (0,)}, 4, "c"))
    for unsuspected in (
        HEALTHY,
        group(java),
        group(librdkafka("rd", None)),
        group(librdkafka("rd", "b"), strategy="range"),
    ):
        assert not may_not_settle(unsuspected)
    (found,) = findings(watched(group(java), rebalances=5), BROKERS)
    assert found.kind == "rebalance-loop"
    assert "librdkafka" not in found.problem + found.advice


def test_local_fetching_that_is_off_is_found_by_broker() -> None:
    off = (replace(BROKERS[0], selector=None), replace(BROKERS[1], rack=None), BROKERS[2])
    without_rack, without_selector = findings(watched(group(member("m", "a"))), off)
    assert (without_rack.kind, without_rack.brokers) == ("brokers-without-rack", (2,))
    assert (without_selector.kind, without_selector.brokers) == ("brokers-without-selector", (1,))
    assert "replica.selector.class" in without_selector.problem
    assert SELECTOR in without_selector.advice
    assert "broker.rack" in without_rack.problem


def test_a_selector_of_somebodys_own_and_one_of_a_broker_that_is_down_are_not_missing() -> None:
    down = BrokerDescription(3, "c", fenced=True)
    assert kinds(watched(), (BROKERS[0], replace(BROKERS[1], selector="org.example.Mine"), down)) == ["brokers-offline"]


def test_a_broker_that_could_not_be_asked_is_not_taken_for_one_without() -> None:
    (found,) = findings(watched(), (*BROKERS[:2], BrokerDescription(3, "c", problem="KafkaConnectionError")))
    assert (found.kind, found.brokers) == ("selector-unknown", (3,))


def test_a_broker_that_is_offline_or_does_not_respond_is_named_with_its_rack() -> None:
    fenced, silent = (
        replace(BROKERS[1], fenced=True, selector=None),
        replace(BROKERS[2], selector=None, problem="KafkaConnectionError", unreachable=True),
    )
    (found,) = findings(watched(), (BROKERS[0], fenced, BROKERS[2]))
    assert (found.kind, found.brokers) == ("brokers-offline", (2,))
    assert found.problem.startswith("broker 2 is offline: no replica there serves a reader, so members in b may")
    (found,) = findings(watched(), (BROKERS[0], fenced, silent))
    assert (found.kind, found.brokers) == ("brokers-offline", (2, 3))
    assert "members in b and c may" in found.problem
    # Of a broker that only replica lists show the rack is unknown; it is no broker without one.
    assert kinds(watched(), (*BROKERS, BrokerDescription(4, None, fenced=True))) == ["brokers-offline"]


def test_members_without_rack_or_with_one_no_broker_has_are_named_with_the_racks_there_are() -> None:
    blind, lost = member("blind", None), member("lost", "A")
    without, foreign = findings(watched(group(HEALTHY.members[0], blind, lost)), BROKERS)
    assert (without.kind, without.members) == ("no-rack", (blind,))
    assert (foreign.kind, foreign.members) == ("unknown-rack", (lost,))
    assert "'A'" in foreign.problem
    assert "a, b, c" in foreign.advice
    assert "a, b, c" in without.advice


def test_a_rack_may_be_that_of_a_broker_that_is_offline() -> None:
    # Clusters before 4.0 list no offline broker: it is known from the replicas, and its rack is not.
    foreign, offline = findings(watched(), (*BROKERS[:2], BrokerDescription(3, None, fenced=True)))
    assert (foreign.kind, foreign.members) == ("unknown-rack", (HEALTHY.members[2],))
    assert foreign.problem == "1 member reports 'c' as its rack, which has no broker that is online"
    assert foreign.advice.startswith(
        "start broker 3 first: the rack of an offline broker is not shown, and may be that"
    )
    assert (offline.kind, offline.brokers) == ("brokers-offline", (3,))


def test_racks_are_not_foreign_where_no_broker_has_one() -> None:
    assert kinds(watched(), tuple(replace(b, rack=None) for b in BROKERS)) == ["brokers-without-rack"]


def test_a_member_that_cannot_be_read_is_named_and_not_said_to_have_no_rack() -> None:
    broken = member("broken", subscription=None, problem="at byte 9: expected 4 bytes of a topic, only 1 are left")
    (found,) = findings(watched(group(member("m"), broken)), BROKERS)
    assert (found.kind, found.members) == ("unreadable", (broken,))
    assert "at byte 9" in found.problem


def test_roundrobin_knows_no_racks() -> None:
    assert kinds(watched(replace(HEALTHY, strategy="roundrobin"))) == ["strategy"]


def test_nobody_in_the_group_is_a_finding() -> None:
    assert kinds(watched(group(state="Empty", strategy=""))) == ["empty"]


def test_the_step_says_what_is_next_and_what_cannot_be_seen() -> None:
    eager = migration_step(replace(HEALTHY, strategy="range"))
    assert "range is chosen" in eager.now
    assert "with both, cooperative-sticky first" in eager.next
    assert eager.unseen
    done = migration_step(HEALTHY)
    assert (done.now, done.next, done.unseen) == ("cooperative-sticky alone on all members", "", "")


def test_a_new_cooperative_group_gets_no_step_though_it_looks_like_one_that_is_being_migrated() -> None:
    fresh = member("fresh", subscription=Subscription(("t",), rack="a"))
    half = migration_step(group(HEALTHY.members[0], fresh))
    assert (half.now, half.next) == ("all members offer cooperative-sticky", "")
    assert half.unseen.endswith(": client of fresh")


def test_there_is_no_step_where_none_is_shown() -> None:
    for of in (waiting(), replace(HEALTHY, kind="consumer"), replace(HEALTHY, strategy="own")):
        assert not migration_step(of).next


class Coordinator:
    """Stands in for the requests to a coordinator, and for the admin client that removes members."""

    def __init__(self, *looks: DescribedGroup | None, served: DescribedGroup | None = None) -> None:
        self.type = ""
        self.looks: Iterator[DescribedGroup | None] = iter(looks)
        self.look = looks[0]
        self.fails = False
        self.refuses = False
        self.announced = 0
        self.withdrawn = 0
        self._served = served
        self.removed: list[str] = []
        self.culprit = ""

    def listed_type(self, _group: str) -> str:
        return self.type

    def describe_classic_group(self, _group: str) -> DescribedGroup | None:
        self.look = next(self.looks, self.look)
        return self.look

    def describe_consumer_group(self, _group: str) -> DescribedGroup | None:
        return self._served

    def join_pending(self, _group: str, _strategies: tuple[str, ...]) -> str | None:
        self.announced += 1
        return None if self.refuses else "us"

    def leave_pending(self, _group: str, _member: str) -> bool:
        self.withdrawn += 1
        return not self.fails

    def remove_group_members(self, _group: str, members: list[Any]) -> dict[str, Any]:
        (gone,) = members
        if gone.member_id == "left":
            return {"left": UnknownMemberIdError}
        self.removed.append(gone.member_id)
        if self.fails and gone.member_id != self.culprit:
            raise UnknownError
        return {gone.member_id: NoError}


def calls(coordinator: Coordinator) -> GroupAdmin:
    return coordinator  # type: ignore[return-value] # it has what is used


def described(*members: DescribedMember, state: str = "Stable", strategy: str = "range") -> DescribedGroup:
    return DescribedGroup(state, "consumer", strategy, members)


def sent(name: str, metadata: bytes = b"", assignment: bytes = b"") -> DescribedMember:
    return DescribedMember(name, None, f"client of {name}", "/10.0.0.1", metadata, assignment)


WHOLE = encode_subscription(Subscription(("t",), owned={"t": (0,)}, generation=4, rack="a"))


def test_what_members_sent_is_read_one_by_one() -> None:
    given_to = encode_assignment(Assignment({"t": (0,)}))
    live = describe_group(
        calls(
            Coordinator(
                described(
                    sent("whole", WHOLE, given_to), sent("broken", b"\0\1\0\0\0\1\0\1\xff"), sent("empty", b"", b"\xff")
                )
            )
        ),
        "g",
    )
    broken, empty, whole = live.members
    assert (whole.rack, whole.assigned, whole.problem, whole.host) == ("a", {"t": (0,)}, "", "10.0.0.1")
    assert (broken.subscription, "not UTF-8" in broken.problem) == (None, True)
    assert (empty.subscription, "only 0 are left" in empty.problem) == (None, True)
    assert live.generation == 4


def test_nothing_is_broken_that_is_only_not_shown() -> None:
    live = describe_group(calls(Coordinator(described(sent("m"), state="PreparingRebalance"))), "g")
    assert [(m.subscription, m.problem) for m in live.members] == [(None, "")]


@given(metadata=st.binary(max_size=60), assignment=st.binary(max_size=40))
def test_no_bytes_of_a_member_stop_the_description(metadata: bytes, assignment: bytes) -> None:
    live = describe_group(calls(Coordinator(described(sent("odd", metadata, assignment), sent("whole", WHOLE)))), "g")
    odd, whole = live.members
    assert (odd.subscription is None) == bool(odd.problem)
    assert whole.rack == "a"
    seen = watched(live)
    assert {"unreadable"} & set(kinds(seen)) == ({"unreadable"} if odd.problem else set())
    assert migration_step(live).now


def test_what_is_no_group_of_consumers_is_bad_input() -> None:
    with pytest.raises(ConfigError, match='no consumer group "g"'):
        describe_group(calls(Coordinator(None)), "g")
    with pytest.raises(ConfigError, match='of "connect"'):
        describe_group(calls(Coordinator(DescribedGroup("Stable", "connect", "compatible", ()))), "g")
    shared = Coordinator(None)
    shared.type = "share"
    with pytest.raises(ConfigError, match='"g" is not of consumers but of type "share"'):
        describe_group(calls(shared), "g")


def test_a_group_at_rest_is_looked_at_once() -> None:
    coordinator = Coordinator(described(sent("m", WHOLE)))
    seen = watch(calls(coordinator), "g", 60, suspicious=lambda _: False)
    assert (seen.settled, seen.states, seen.rebalances) == (True, ("Stable",), 0)


def test_the_last_look_at_rest_is_kept_and_rebalances_are_counted() -> None:
    def at(generation: int) -> DescribedGroup:
        return described(sent("m", encode_subscription(Subscription(("t",), generation=generation))))

    between = described(sent("m"), state="PreparingRebalance")
    seen = watch(
        calls(Coordinator(at(-1), at(4), between, at(5), between, at(7), between)), "g", 60, suspicious=lambda _: True
    )
    assert (seen.group.state, seen.rebalances) == ("Stable", 3)
    assert seen.states == ("Stable", "PreparingRebalance")


WAITING = described(sent("m1"), sent("m2"), sent("m3"), state="PreparingRebalance")


def test_a_wedge_is_what_fails_whenever_the_broker_looks_again() -> None:
    coordinator = Coordinator(WAITING)
    assert is_wedged(calls(coordinator), "g") is False
    assert (coordinator.announced, coordinator.withdrawn) == (1, 1)
    coordinator.fails = True
    assert is_wedged(calls(coordinator), "g") is True
    assert (coordinator.announced, coordinator.withdrawn) == (3, 3)
    coordinator.refuses = True
    assert is_wedged(calls(coordinator), "g") is None


def test_a_group_at_rest_is_left_alone() -> None:
    coordinator = Coordinator(described(sent("m", WHOLE)))
    coordinator.fails = True
    assert is_wedged(calls(coordinator), "g") is False
    assert recover(coordinator, calls(coordinator), "g").removed == ()
    assert (coordinator.announced, coordinator.removed) == (0, [])


def test_a_group_that_comes_to_rest_meanwhile_is_not_stirred_up_again() -> None:
    coordinator = Coordinator(WAITING, described(sent("m", WHOLE)))
    coordinator.fails = True
    assert is_wedged(calls(coordinator), "g") is False
    assert (coordinator.announced, coordinator.withdrawn) == (1, 0)


def test_a_long_rebalance_loses_nobody() -> None:
    coordinator = Coordinator(WAITING)
    assert recover(coordinator, calls(coordinator), "g").removed == ()
    assert coordinator.removed == []


def test_members_are_removed_until_the_group_goes_on() -> None:
    members = (sent("left"), sent("m1"), sent("m2"), sent("m3"))
    coordinator = Coordinator(described(*members, state="PreparingRebalance"))
    coordinator.fails, coordinator.culprit = True, "m2"
    freed = recover(coordinator, calls(coordinator), "g")
    assert coordinator.removed == ["m1", "m2"]
    assert [m.id for m in freed.removed] == ["m1", "m2"]
    assert freed.culprit is not None
    assert freed.culprit.id == "m2"
    coordinator.culprit = ""
    assert recover(coordinator, calls(coordinator), "g").culprit is None


def test_members_of_a_group_that_another_process_has_freed_are_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    # It has begun before this one, and removes the culprit right after the first check of this one.
    checks = [True]
    monkeypatch.setattr(wedged_group, "is_wedged", lambda *_: bool(checks) and checks.pop())
    coordinator = Coordinator(described(sent("left"), sent("m3"), state="PreparingRebalance"))
    assert recover(coordinator, calls(coordinator), "g") == RecoveryResult()
    assert coordinator.removed == []


@pytest.mark.parametrize(
    ("lists", "brokers", "problem"),
    [
        pytest.param([OURS] * 3, (), "", id="on all brokers"),
        pytest.param([NAMED, OURS, OURS], (), "", id="by both names"),
        pytest.param([("uniform", "range")] * 3, (), "", id="on none"),
        pytest.param([OURS, ("uniform",), ()], (2,), "broker 2 has no assignor of rackassign", id="lacks"),
        pytest.param([("uniform", broker_plugin.CLASS)] * 3, (1, 2, 3), "another assignor before", id="later"),
        pytest.param([(broker_plugin.CLASS, broker_plugin.CLASS)] * 3, (1, 2, 3), "two assignors of one", id="twice"),
        pytest.param([(*OURS, "uniform"), OURS, OURS], (1,), "two assignors of one", id="one name"),
    ],
)
def test_the_assignors_of_all_brokers_are_the_same(
    lists: list[tuple[str, ...]], brokers: tuple[int, ...], problem: str
) -> None:
    found = [each for each in findings(watched(), with_lists(*lists)) if each.kind == "broker-assignors"]
    assert [each.brokers for each in found] == ([brokers] if brokers else [])
    assert all(problem in each.problem for each in found)


@pytest.mark.parametrize(("has", "ends"), [(OURS, False), (NAMED, True)])
def test_only_a_member_that_names_the_assignor_ends_where_it_lacks(has: tuple[str, ...], *, ends: bool) -> None:
    (found,) = findings(watched(), with_lists(has, has, ("uniform", "range")))
    assert ("ends for good" in found.problem, "no client names" in found.advice) == (ends, ends)


def test_a_group_that_the_plug_in_assigns_is_no_finding() -> None:
    served = group(member("new", classic=False), kind="consumer", strategy=broker_plugin.NAME)
    assert kinds(watched(served)) == []
