"""What an audit finds in how replicas lie, and does not find in a sound cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from rackassign.admin.admin_client import AuthorizationError
from rackassign.admin.describe import DescribedTopic
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import Broker, Partition, TopicPartition
from rackassign.placement.audit import Audit, Load, audit
from rackassign.placement.cluster_state import ClusterState, Throttles, describe_cluster_state, with_rates

BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("aabbcc", 1))
TWO_ZONES = tuple(Broker(i, rack) for i, rack in enumerate("aaabbb", 1))
THREE_AND_ONE = tuple(Broker(i, rack) for i, rack in enumerate("aaaab", 1))
SOUND = [[1, 3, 5], [4, 6, 2], [5, 1, 3]]


def topic(rows: Sequence[Sequence[int]], **more: Any) -> DescribedTopic:
    made = {"in_sync": tuple(map(tuple, rows)), "offline": ((),) * len(rows), **more}
    return DescribedTopic(tuple(Partition(tuple(row), row[0]) for row in rows), **made)


def state(rows: Sequence[Sequence[int]] = SOUND, *, min_isr: int = 2, **more: Any) -> ClusterState:
    found = {
        name: more.pop(name) for name in ("brokers", "in_flight", "differing", "throttles", "silent") if name in more
    }
    return ClusterState(found.pop("brokers", BROKERS), {"t": topic(rows, **more)}, {"t": min_isr}, **found)


def kinds(of: Audit) -> dict[str, list[int]]:
    return {finding.kind: [place.partition for place in finding.partitions] for finding in of.findings}


def test_nothing_is_found_in_a_sound_cluster() -> None:
    seen = audit(state(), want_rf=3)
    assert seen.findings == ()
    assert seen.is_consistent
    assert (seen.topics, seen.partitions) == (1, 3)
    assert seen.by_broker[1] == Load(1, 2, 1 / 3, 2 / 9)
    assert seen.by_rack == {"a": Load(1, 3, 1 / 3, 1 / 3), "b": Load(1, 3, 1 / 3, 1 / 3), "c": Load(1, 3, 1 / 3, 1 / 3)}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (state([[1, 2, 3]]), {"shared-rack": [0]}),
        (state([[1, 2, 3]], brokers=tuple(Broker(i, "a") for i in (1, 2, 3))), {}),
        # Two racks and three copies: two of them must share one.
        (state([[1, 2, 3]], brokers=tuple(Broker(i, r) for i, r in enumerate("aab", 1))), {}),
        # Two zones: three copies in one and one in the other. Three: three, one and one.
        (state([[1, 2, 3, 4], [1, 2, 4, 5]], brokers=TWO_ZONES), {"shared-rack": [0]}),
        (state([[1, 2, 7, 3, 5], [1, 2, 3, 4, 5]], brokers=(*BROKERS, Broker(7, "a"))), {"shared-rack": [0]}),
        # A rack has no further broker for a copy.
        (state([[1, 2, 3, 5], [1, 2, 3, 4]], brokers=THREE_AND_ONE), {"shared-rack": [1]}),
        (state([[1, 3, 5]], min_isr=3), {"min-isr-is-rf": [0]}),
        (state([[1, 3, 5]], min_isr=4), {"min-isr-above-rf": [0]}),
        (state([[1]], min_isr=1), {}),
        (state([[1, 3, 5]], in_sync=((1, 3),)), {"at-min-isr": [0], "under-replicated": [0]}),
        (state([[1, 3, 5]], in_sync=((1, 3),), offline=((5,),)), {"at-min-isr": [0], "offline-replica": [0]}),
        # Nothing is missing while a replica is being added.
        (
            state([[1, 3]], in_sync=((1,),), min_isr=1, in_flight=frozenset({TopicPartition("t", 0)})),
            {"in-flight": [0]},
        ),
        (state([[1, 3, 5]], in_sync=((1,),), offline=((3, 5),)), {"under-min-isr": [0], "offline-replica": [0]}),
        (state(SOUND, differing=("x",)), {"views-differ": []}),
        (state(SOUND, silent=(3,)), {"broker-silent": []}),
        (state(SOUND, throttles=Throttles(topics=("t",))), {"throttle-left": []}),
        (state(SOUND, throttles=Throttles(brokers=(2,))), {"throttle-left": []}),
        (state(SOUND, throttles=Throttles(everywhere=True)), {"throttle-left": []}),
        # It may be what holds that reassignment back.
        (state(throttles=Throttles(("t",), (1,)), in_flight=frozenset({TopicPartition("u", 0)})), {"in-flight": [0]}),
    ],
)
def test_what_is_wrong_is_found(seen: ClusterState, found: dict[str, list[int]]) -> None:
    assert kinds(audit(seen)) == found


def test_a_rack_that_is_down_is_no_rack_to_move_to() -> None:
    rows, b_down = [[1, 2, 5]], tuple(replace(broker, fenced=broker.rack == "b") for broker in BROKERS)
    assert kinds(audit(state(rows, brokers=b_down))) == {"broker-fenced": []}
    half = (*BROKERS[:2], replace(BROKERS[2], fenced=True), *BROKERS[3:])
    assert kinds(audit(state(rows, brokers=half))) == {"shared-rack": [0], "broker-fenced": []}


def test_what_min_isr_above_the_replicas_does_is_said_for_old_brokers_and_new_ones() -> None:
    (finding,) = audit(state([[1, 3, 5]], min_isr=4)).findings
    assert "4.3 does" in finding.problem
    assert "older ones refuse every write with acks=all" in finding.problem


@pytest.mark.parametrize(("min_isr", "want", "kind"), [(1, 3, "rf-below"), (2, None, "min-isr-is-rf")])
def test_advice_to_add_replicas_is_for_the_topics_that_lack_them(min_isr: int, want: int | None, kind: str) -> None:
    """Without --topic, those with more replicas would lose some, and Kafka's own would be left out."""
    (finding,) = audit(state([[1, 3]], min_isr=min_isr), want_rf=want).findings
    assert finding.kind == kind
    assert "`reassign plan --topic TOPIC --replication-factor " in finding.advice


def test_leaders_are_held_against_the_preferred_ones() -> None:
    moved = state()
    led = tuple(replace(p, leader=leader) for p, leader in zip(moved.topics["t"].partitions, (1, 6, None), strict=True))
    seen = replace(moved, topics={"t": replace(moved.topics["t"], partitions=led)})
    assert kinds(audit(seen)) == {"no-leader": [2], "leader-not-preferred": [1]}


def test_fewer_copies_than_wanted_are_found() -> None:
    assert kinds(audit(state([[1, 3], [3, 5, 1]], min_isr=1), want_rf=3)) == {"rf-below": [0]}


def test_more_copies_than_wanted_are_found() -> None:
    assert kinds(audit(state([[1, 3], [3, 5, 1]], min_isr=1), want_rf=2)) == {"rf-above": [1]}


def test_a_broker_without_replicas_is_named_with_its_share_if_all_topics_are_known() -> None:
    rows = [[1, 3, 5], [4, 5, 2]] * 3
    (finding,) = audit(state(rows)).findings
    assert (finding.kind, finding.brokers) == ("broker-empty", (6,))
    assert finding.advice == "`reassign plan --rebalance` copies about 3 replicas to each"
    assert audit(state(rows), all_topics=False).findings == ()


def test_in_an_outage_of_a_rack_waiting_comes_before_one_advice_to_remove_brokers() -> None:
    brokers = tuple(replace(broker, fenced=broker.rack == "c") for broker in BROKERS)
    found = audit(state([[1, 3, 5]], brokers=brokers, in_sync=((1, 3),), offline=((5,),)), all_topics=False).findings
    assert [finding.kind for finding in found] == ["at-min-isr", "offline-replica", "broker-fenced"]
    assert ["--remove-broker" in finding.advice for finding in found] == [False, False, True]
    assert found[-1].advice.startswith("wait until rack c is back")


def test_what_is_in_flight_is_told_and_not_judged() -> None:
    seen = state([[1, 2, 3, 4]], min_isr=4, in_flight=frozenset({TopicPartition("t", 0)}))
    assert kinds(audit(seen, want_rf=5)) == {"in-flight": [0]}


def test_brokers_that_are_odd_are_named() -> None:
    odd = (replace(BROKERS[0], rack=None), replace(BROKERS[1], fenced=True), *BROKERS[2:5])
    seen = audit(state(SOUND, brokers=odd))
    named = {finding.kind: finding.brokers for finding in seen.findings}
    assert named == {"broker-without-rack": (1,), "broker-fenced": (2,), "broker-unknown": (6,)}
    assert seen.by_rack[None].replicas == 3
    nowhere = audit(state([[1, 2, 3]], brokers=tuple(replace(broker, rack=None) for broker in BROKERS)))
    assert [finding.problem for finding in nowhere.findings] == ["no broker has a rack"]


def test_a_broker_with_nothing_is_listed() -> None:
    seen = audit(state([[1, 3, 5]]))
    assert seen.by_broker[6] == Load(0, 0, 0.0, 0.0)
    assert audit(ClusterState(BROKERS, {})).by_rack["a"] == Load(0, 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("rows", "remembered", "found"),
    [
        # Broker 9 is gone; with nothing known of it, nothing is said of where it was.
        ([[1, 9, 5]], {}, {"broker-unknown": [0]}),
        ([[1, 9, 5]], {9: None}, {"broker-unknown": [0]}),
        ([[1, 9, 5]], {9: "b"}, {"broker-unknown": [0]}),
        ([[1, 9, 5]], {9: "a"}, {"broker-unknown": [0], "shared-rack": [0]}),
        # The rack it was in has no broker any more: it counts where it is named, and nobody else must use it.
        ([[1, 3, 5, 9], [1, 2, 9], [1, 3, 5]], {9: "d"}, {"broker-unknown": [0], "shared-rack": [1]}),
        ([[1, 2, 3, 5]], {9: "d"}, {}),
        # What is told now counts, not what was remembered.
        ([[1, 3, 5]], {1: "c"}, {}),
    ],
)
def test_brokers_that_are_gone_count_where_they_were(
    rows: list[list[int]], remembered: dict[int, str | None], found: dict[str, list[int]]
) -> None:
    seen = audit(state(rows).with_known_racks(remembered))
    assert {kind: partitions or [0] for kind, partitions in kinds(seen).items()} == found
    of_it = sum(broker == 9 or BROKERS[broker - 1].rack == remembered.get(9) for row in rows for broker in row)
    assert seen.by_rack.get(remembered.get(9), Load(0, 0, 0.0, 0.0)).replicas == of_it


def test_a_broker_that_is_gone_is_named_with_its_rack() -> None:
    (finding,) = audit(state([[1, 9, 5]]).with_known_racks({9: "b"})).findings
    assert finding.problem == "replicas on brokers that are not (or no longer) registered: 9 (in b)"
    # Old brokers do not list a broker that is down for a minute, which should not be replaced.
    assert finding.advice.startswith("before Kafka 4.0 they may only be offline: bring those back")


def test_what_is_throttled_is_named() -> None:
    throttles = Throttles(("t", "u"), (1, 2), everywhere=True)
    (finding,) = audit(state(throttles=throttles)).findings
    assert "set for 2 topics, broker 1, broker 2, all brokers, but no reassignment is in progress" in finding.problem
    assert (finding.topics, finding.brokers) == (("t", "u"), (1, 2))


class Brokers:
    """Two brokers, that are asked in turn."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        first: dict[str, DescribedTopic],
        second: dict[str, DescribedTopic] | None = None,
        configs: dict[str, dict[str, str]] | None = None,
    ) -> None:
        # `second`: what the second knows; the same if left out.
        # `configs`: what is told of the configuration of topics; all of all if left out.
        self.views = {1: first, 2: first if second is None else second}
        self.configs = configs
        self.rates: dict[int, tuple[dict[str, str], dict[str, str]] | Exception] = {}
        module = "rackassign.placement.cluster_state"
        monkeypatch.setattr(f"{module}.list_brokers", lambda _: BROKERS[:2])
        monkeypatch.setattr(f"{module}.describe_topics_on", self.topics_of)
        monkeypatch.setattr(f"{module}.topic_configs", self.topic_configs)
        monkeypatch.setattr(f"{module}.broker_configs", self.broker_configs)
        monkeypatch.setattr(f"{module}.ReassignmentAdmin.list_reassignments", lambda _: {})
        monkeypatch.setattr(f"{module}.time.sleep", lambda _: None)

    def topics_of(self, _: object, broker: int, names: list[str] | None) -> dict[str, DescribedTopic]:
        view = self.views[broker]
        return view if names is None else {name: view.get(name, UNKNOWN) for name in names}

    def topic_configs(self, _: object, names: Sequence[str], __: object) -> dict[str, dict[str, str]]:
        return {name: {"min.insync.replicas": "2"} for name in names} if self.configs is None else self.configs

    def broker_configs(self, _: object, broker: int, __: object) -> tuple[dict[str, str], dict[str, str]]:
        told = self.rates.get(broker, ({}, {}))
        if isinstance(told, Exception):
            raise told
        return told


UNKNOWN = DescribedTopic(problem="UnknownTopicOrPartitionError", unknown=True)
REFUSED = DescribedTopic(problem="not allowed: DESCRIBE on topic t", refused=True)
THERE = topic(SOUND)


def test_kafka_s_own_topics_are_seen_unless_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, {"t": THERE, "__consumer_offsets": topic([[1, 2]], internal=True)})
    seen = describe_cluster_state(None)
    assert list(seen.topics) == ["__consumer_offsets", "t"]
    assert kinds(audit(replace(seen, brokers=BROKERS)))["shared-rack"] == [0]
    assert list(describe_cluster_state(None, ["t"]).topics) == ["t"]


def test_a_topic_that_does_not_exist_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, {"t": THERE})
    assert list(describe_cluster_state(None, ["t"]).topics) == ["t"]
    with pytest.raises(ConfigError, match=r'^topic "typo", "x" does not exist in this cluster$'):
        describe_cluster_state(None, ["x", "t", "typo"])


def test_a_topic_that_one_broker_does_not_know_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    for first, second in (({"t": THERE}, {}), ({}, {"t": THERE})):
        Brokers(monkeypatch, first, second)
        assert describe_cluster_state(None, ["t"]).differing == ("t",)
    # Nor does it vanish if the broker that is asked for its configuration does not know it.
    Brokers(monkeypatch, {"t": THERE}, configs={})
    seen = describe_cluster_state(None)
    assert (seen.differing, seen.min_isr) == (("t",), {})


def test_a_topic_that_is_not_described_in_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, {"t": DescribedTopic(problem="not all of its partitions are listed")})
    assert not audit(describe_cluster_state(None)).is_consistent


def test_a_topic_that_may_not_be_described_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, {"t": THERE}, {"t": REFUSED})
    with pytest.raises(AuthorizationError, match=r"^not allowed: DESCRIBE on topic t$"):
        describe_cluster_state(None, ["t"])


def test_rates_are_told_by_where_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = {"leader.replication.throttled.rate": "1000"}
    cluster = Brokers(monkeypatch, {"t": THERE})
    seen = describe_cluster_state(None)
    assert with_rates(None, seen).throttles == Throttles()
    cluster.rates = {1: (rate, {}), 2: KafkaConnectionError()}
    found = with_rates(None, seen)
    assert (found.throttles, found.silent) == (Throttles(brokers=(1,)), (2,))
    cluster.rates = dict.fromkeys((1, 2), (rate, rate))
    assert with_rates(None, seen).throttles == Throttles(everywhere=True)
    cluster.rates = {2: AuthorizationError("DESCRIBE_CONFIGS", "the cluster")}
    with pytest.raises(AuthorizationError):
        with_rates(None, seen)


def test_no_broker_at_all_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    Brokers(monkeypatch, {})
    monkeypatch.setattr("rackassign.placement.cluster_state.list_brokers", lambda _: ())
    with pytest.raises(KafkaUnavailableError, match="no broker responds with its metadata"):
        describe_cluster_state(None)
