"""The assignor inside the internals, without brokers."""

from __future__ import annotations

import copy
import functools
import logging
import pickle
import re
from collections.abc import Callable
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from rackassign import (
    FetchMeter,
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    StandbyAwareAssignor,
    attach,
)
from rackassign.admin.describe import warn_of_selectors
from rackassign.assignor.base import warn_on_rack_mismatch, with_rack
from rackassign.assignor.subscriptions import decode_join
from rackassign.clients import aiokafka
from rackassign.clients.fetch_metrics import ENOUGH, FetchedPartition, FollowerFetchCheck
from rackassign.clients.kafka_python import internals
from rackassign.clients.kafka_python._consumer import _patch_names
from rackassign.clients.kafka_python.internals.traffic import observe_fetches
from rackassign.clients.kafka_python.patches import PATCHES
from rackassign.clients.kafka_python.patches.patch import install
from rackassign.errors import ConfigError
from rackassign.model import Partition, TopicPartition
from rackassign.text import WarnOnce
from rackassign.wire import Subscription, encode_subscription
from tests.helpers.fakes.kafka_python import THREE_RACKS, BrokenCluster, FakeCluster, given_out, member


def test_the_rack_comes_from_the_environment_if_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", " b ")
    assert RackAwareRangeAssignor().rack == "b"
    assert RackAwareRangeAssignor(rack=None).rack is None
    assert RackAwareRangeAssignor(rack="").rack is None
    assert RackAwareRangeAssignor(rack="a").rack == "a"
    monkeypatch.delenv("RACKASSIGN_RACK")
    assert RackAwareRangeAssignor().rack is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rack": 7}, "rack must be a string or None, got 7"),
        ({"rack": b"a"}, "rack must be a string or None, got b'a'"),
        ({"rack": "\ud800"}, "rack cannot be sent: .* cannot be written as UTF-8"),
        ({"rack": "x" * 40_000}, "rack cannot be sent: a string of 40000 bytes"),
        ({"rack": "a", "locality": "near"}, "locality must be one of any-replica, leader, got 'near'"),
        ({"rack": "a", "name": ""}, 'name must be text of 1 to 32767 bytes, got ""'),
        ({"rack": "a", "name": "\ud800"}, "name must be text of 1 to 32767 bytes, got"),
        ({"rack": "a", "name": "x" * 40_000}, 'name must be text of 1 to 32767 bytes, got "xxx'),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RackAwareRangeAssignor(**options)


def test_leader_mode_reads_the_leaders() -> None:
    cluster = FakeCluster({1: "a", 2: "b"}, {"t": [[1, 2], [2, 1]]})
    cluster._partitions["t"][0].leader_id = 2
    cluster._partitions["t"][1].leader_id = 1
    members = [member("m1", ["t"], rack="a"), member("m2", ["t"], rack="b")]
    answer = RackAwareRangeAssignor(rack="a", locality="leader").assign(cluster, members)
    assert given_out(answer) == {"m1": [("t", 1)], "m2": [("t", 0)]}


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"topics": None}, id="null topics"),
        pytest.param({"topics": [None, "t"]}, id="a null topic"),
        pytest.param({"topics": ["t", "t"]}, id="a topic twice"),
        pytest.param({"owned_partitions": None}, id="null owned"),
        pytest.param({"owned_partitions": [("t", None), ("t", [0, 0, -1]), ("u", [7])]}, id="absurd owned"),
        pytest.param({"generation_id": -9}, id="a generation below -1"),
        pytest.param({"user_data": b"\xff" * 100}, id="another assignor's user data"),
        pytest.param({"rack": ""}, id="an empty rack"),
    ],
)
def test_an_odd_member_costs_the_group_nothing(odd: dict[str, Any], warnings: pytest.LogCaptureFixture) -> None:
    fields: dict[str, Any] = {"topics": ["t"], "rack": "b"} | odd
    members = [member("good", ["t"], rack="a"), member("odd", **fields)]
    answer = given_out(RackAwareRangeAssignor(rack="a").assign(THREE_RACKS, members))
    assert sorted(answer["good"] + answer["odd"]) == [("t", 0), ("t", 1), ("t", 2)]
    assert "failed" not in warnings.text


def test_whatever_goes_wrong_the_group_gets_a_plain_range_and_one_warning(
    warnings: pytest.LogCaptureFixture,
) -> None:
    cluster = BrokenCluster({}, {"t": [[1]] * 5, "u": [[1]]})
    members = [
        member("m1", ["t", "u", "later"]),
        member("m2", ["t"]),
        member("m3", None),
        member("m4", ["u"], instance="static"),
    ]
    assignor = RackAwareRangeAssignor(rack="a")
    for _ in range(3):
        assert given_out(assignor.assign(cluster, members)) == {
            "m1": [("t", 0), ("t", 1), ("t", 2)],
            "m2": [("t", 3), ("t", 4)],
            "m3": [],
            "m4": [("u", 0)],
        }
    assert [record.levelname for record in warnings.records] == ["WARNING"]
    assert "plain assignment" in warnings.text
    assert "RuntimeError: changed" in warnings.text


def test_what_metadata_leave_out_is_unknown_and_owned_all_the_same() -> None:
    cluster = FakeCluster({1: "a"}, {"t": [[1, 2], [2, 1], [2], [], [1], [1, 2]], "u": [[1]] * 1000})
    del cluster._partitions["t"][4]
    topology = internals.topology(cluster, ["t", "gone"])
    one = Partition((1, 2), 1)
    assert topology.topics == {"t": (one, Partition((2, 1), 2), Partition((2,), 2), Partition(()), Partition(()), one)}
    # Equal ones are one object.
    assert len({id(partition) for partition in internals.topology(cluster, ["u"]).topics["u"]}) == 1
    members = [member("m1", ["t", "gone"], rack="a"), member("m2", ["t"], rack="b"), member("m3", ["gone"], rack="b")]
    answer = RackAwareRangeAssignor(rack="a").assign(cluster, members)
    assert sorted(chain.from_iterable(given_out(answer).values())) == [("t", p) for p in range(6)]


@pytest.mark.parametrize(
    ("racks", "members_racks", "message"),
    [
        ({1: None}, ["a", "b"], "no broker has a rack"),
        ({1: "a", 2: "b"}, [None, None], "no member of the group sends a rack"),
        ({1: "a", 2: "b"}, ["a", None], "1 of 2 members send no rack: m1"),
        ({1: "a", 2: "b"}, ["a", "A"], "rack 'A' of member m1 matches no broker, .* racks of brokers: a, b"),
    ],
)
def test_what_keeps_racks_from_being_of_use_is_said_once(
    racks: dict[int, str | None], members_racks: list[str | None], message: str, warnings: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(racks, {"t": [[1], [2]]})
    members = [member(f"m{i}", ["t"], rack=rack) for i, rack in enumerate(members_racks)]
    assignor = RackAwareRangeAssignor(rack="a")
    for _ in range(2):
        assignor.assign(cluster, members)
    (record,) = warnings.records
    assert re.search(message, record.getMessage())


def test_attach_takes_a_consumer_and_known_names_only() -> None:
    with pytest.raises(ConfigError, match="attach takes a KafkaConsumer, got str"):
        attach("consumer")
    with pytest.raises(
        ConfigError, match="there is no patch 'keep'; there are tolerate_malformed_metadata, keep_completed_join"
    ):
        attach(KafkaConsumer.__new__(KafkaConsumer), disable_patches=["keep"])
    for names in ("resume_paused_fetches", 5):
        with pytest.raises(ConfigError, match="disable_patches must be a list of names, got"):
            attach(KafkaConsumer.__new__(KafkaConsumer), disable_patches=names)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="meter must be a FetchMeter, got <class"):
        attach(KafkaConsumer.__new__(KafkaConsumer), meter=FetchMeter)  # type: ignore[arg-type]
    # What can be read only once is read once.
    assert _patch_names(name for name in ["resume_paused_fetches"]) == {"resume_paused_fetches"}


class Changed:
    """A coordinator of some later kafka-python."""

    def __init__(self) -> None:
        self.rejoining = False

    def need_rejoin(self, why: str) -> bool:
        return bool(why)

    def _perform_assignment(self, response: object) -> object:
        return response


def test_on_a_changed_host_patches_stay_off_and_say_so_once(warnings: pytest.LogCaptureFixture) -> None:
    coordinator = Changed()
    once = WarnOnce(logging.getLogger("rackassign.test"))
    for _ in range(2):
        install(SimpleNamespace(_coordinator=coordinator), PATCHES, once)
    messages = [record.getMessage() for record in warnings.records]
    assert len(messages) == len(PATCHES)
    for patch, message in zip(PATCHES, messages, strict=True):
        assert f"patch {patch.name} is off" in message
    assert coordinator.need_rejoin("yes")
    assert "need_rejoin" not in vars(coordinator)


def test_without_a_coordinator_or_a_fetcher_nothing_is_touched(warnings: pytest.LogCaptureFixture) -> None:
    once = WarnOnce(logging.getLogger("rackassign.test"))
    install(SimpleNamespace(), PATCHES, once)
    observe_fetches(SimpleNamespace(), FetchMeter(), once, key="meter")
    assert [record.levelname for record in warnings.records] == ["WARNING"] * (len(PATCHES) + 1)


def test_every_patch_names_the_test_that_proves_it(request: pytest.FixtureRequest) -> None:
    for patch in PATCHES:
        file, _, name = patch.proof.partition("::")
        assert f"def {name}(" in (request.config.rootpath / file).read_text()


class Fetcher:
    """As much of kafka-python's `Fetcher` as a meter meets."""

    def __init__(self) -> None:
        self.handled: list[object] = []

    def _handle_fetch_response(self, node_id: int, fetch_offsets: object, send_time: float, response: object) -> None:
        del node_id, fetch_offsets, send_time
        self.handled.append(response)


def response(records: bytes | None, *, preferred: int = -1) -> SimpleNamespace:
    partition = SimpleNamespace(partition_index=3, records=records, preferred_read_replica=preferred)
    return SimpleNamespace(responses=[SimpleNamespace(topic="t", partitions=[partition])])


def test_a_response_that_cannot_be_observed_is_read_all_the_same(warnings: pytest.LogCaptureFixture) -> None:
    fetcher = Fetcher()
    meter = FetchMeter()
    once = WarnOnce(logging.getLogger("rackassign.test"))
    for _ in range(2):
        observe_fetches(SimpleNamespace(_fetcher=fetcher), meter, once, key=meter)
    responses = [response(b"12345"), response(None, preferred=0), response(b"12345"), "odd"]
    for each in responses:
        fetcher._handle_fetch_response(1, {}, 0.0, each)
    assert fetcher.handled == responses
    assert meter.bytes_by_partition() == {(1, TopicPartition("t", 3)): 10}
    assert meter.bytes_by_broker() == {1: 10}
    assert meter.responses_by_broker() == {1: 3}
    assert len(warnings.records) == 1


def fetch(size: int, preferred: int | None = None) -> list[FetchedPartition]:
    return [FetchedPartition(TopicPartition("t", 0), size, 1, preferred)]


FAR, NEAR = (2, fetch(10)), (1, fetch(10))


@pytest.mark.parametrize(
    ("rack", "racks", "read", "told"),
    [
        ("a", {"a", "b"}, [FAR, (2, fetch(0)), NEAR] * (ENOUGH - 1), []),
        ("a", {"a", "b"}, [FAR] * (ENOUGH + 2), ["replica.selector.class"]),
        # One named follower shows that the selector is there.
        ("a", {"a"}, [(2, fetch(0, preferred=0)), *[FAR] * 2 * ENOUGH], []),
        ("A", {"b", "a"}, [FAR] * 2 * ENOUGH, ["client_rack 'A' is the rack of no broker.*racks of brokers: a, b$"]),
        ("A", set(), [FAR] * 2 * ENOUGH, ["client_rack 'A' is the rack of no broker.*racks of brokers: none$"]),
    ],
)
def test_reading_from_afar_with_a_replica_at_hand_is_said_once(
    rack: str, racks: set[str], read: list[Any], told: list[str], warnings: pytest.LogCaptureFixture
) -> None:
    check = FollowerFetchCheck(rack, lambda: racks, lambda broker, _: broker == 2)
    for each in read:
        check(*each)
    assert len(warnings.messages) == len(told)
    assert all(map(re.search, told, warnings.messages))


def test_the_selector_is_looked_at_after_a_start_in_an_outage_of_the_rack(warnings: pytest.LogCaptureFixture) -> None:
    racks = {"b"}
    check = FollowerFetchCheck("a", lambda: racks, lambda *_: True)
    check(2, fetch(10))
    racks.add("a")
    for _ in range(ENOUGH):
        check(2, fetch(10))
    first, second = (record.getMessage() for record in warnings.records)
    assert "is the rack of no broker" in first
    assert "replica.selector.class" in second


@pytest.mark.parametrize(
    ("isr", "broker", "expected"),
    [([1, 2], 2, True), ([2], 2, False), ([1, 2], 1, False), ([1, 2], 3, False), ([1, 2], 9, False)],
)
def test_a_near_replica_is_one_in_sync_in_our_rack(isr: list[int], broker: int, *, expected: bool) -> None:
    cluster = FakeCluster({1: "a", 2: "b", 3: None}, {"t": [[2, 1]]})
    cluster._partitions["t"][0].isr_nodes = isr
    assert internals.missed_local_replica(cluster, "a", broker, TopicPartition("t", 0)) is expected
    assert not internals.missed_local_replica(cluster, "a", broker, TopicPartition("t", 7))


@pytest.mark.parametrize(
    ("assignor", "client_rack", "message", "follows"),
    [
        (RackAwareRangeAssignor(rack="a"), "a", None, True),
        (RackAwareRangeAssignor(rack="a"), "", "'a' but client_rack is not set", False),
        (RackAwareRangeAssignor(rack="a"), "b", "'a' but client_rack is 'b'", True),
        (RackAwareRangeAssignor(rack=None), "b", "'b' but the assignor has no rack", True),
        (object(), "b", None, True),
        (RackAwareRangeAssignor(rack="a", locality="leader"), "", None, False),
        (object(), "", None, False),
    ],
)
def test_a_client_rack_that_is_not_the_assignor_s_is_told(
    assignor: object, client_rack: str, message: str | None, warnings: pytest.LogCaptureFixture, *, follows: bool
) -> None:
    assert warn_on_rack_mismatch([assignor], client_rack, WarnOnce(logging.getLogger("rackassign.test"))) is follows
    told = [record.getMessage() for record in warnings.records]
    assert len(told) == (message is not None)
    assert all(message is not None and message in each for each in told)


def test_brokers_without_a_selector_are_told(warnings: pytest.LogCaptureFixture) -> None:
    once = WarnOnce(logging.getLogger("rackassign.test"))
    warn_of_selectors({1: "x.RackAwareReplicaSelector", 2: "com.example.Own"}, once)
    assert not warnings.records
    warn_of_selectors({1: "x.RackAwareReplicaSelector", 3: None, 2: ""}, once)
    assert "brokers 2, 3 have no replica.selector.class" in warnings.text


def test_auto_of_an_assignor_is_detected_and_no_rack_of_this_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = ["a", None]
    monkeypatch.setattr("rackassign.assignor.member.detect_rack", lambda *, network: found.pop(0) if network else "env")
    assert RackAwareRangeAssignor(rack="auto").rack == "a"
    with pytest.raises(ConfigError, match='rack="auto" found no rack: set RACKASSIGN_RACK'):
        RackAwareCooperativeStickyAssignor(rack="auto")
    assert RackAwareRangeAssignor().rack == "env"
    assert RackAwareRangeAssignor(rack=None).rack is RackAwareRangeAssignor(rack="").rack is None


def test_a_subclass_with_an_assign_of_its_own_gets_the_members_as_they_are() -> None:
    """With `tolerate_malformed_metadata` on, subscriptions are decoded and sanitised by us; our own need no more."""
    ours = RackAwareRangeAssignor(rack="a")

    class Own(RackAwareRangeAssignor):
        def assign(self, cluster: Any, members: Any) -> Any:
            return super().assign(cluster, members)

    class Named(RackAwareRangeAssignor):
        name = "named"

    class Traced(RackAwareRangeAssignor):
        @functools.wraps(RackAwareRangeAssignor.assign)
        def assign(self, cluster: Any, members: Any) -> Any:  # type: ignore[override]
            return super().assign(cluster, members)

    sent = encode_subscription(Subscription(("t",), rack="b"))
    for assignor, whole in ((ours, False), (Named(rack="a"), False), (Own(rack="a"), True), (Traced(rack="a"), True)):
        members = [SimpleNamespace(member_id=f"m{i}", metadata=sent) for i in range(3)]
        read = decode_join(members, assignor, WarnOnce(logging.getLogger("rackassign.test")))
        assert [member.metadata == sent for member in members] == [whole] * 3
        assert [subscription.rack for subscription in read.subscriptions.values()] == ["b"] * 3
        assert (len(read), read.joined is read) == ((3, True) if whole else (1, False))


@pytest.mark.parametrize("patched", [True, False])
def test_a_join_that_is_decoded_before_kafka_python_is_assigned_as_one_that_it_decodes(
    *, patched: bool, warnings: pytest.LogCaptureFixture
) -> None:
    """kafka-python lists and decodes one member, with the topics of all, and every member gets its assignment."""
    cluster = FakeCluster({1: "a", 2: "b"}, {"t": [[1], [2]], "u": [[2]], "v": [[1]]})
    sent = {
        "m1": Subscription(("t", "u"), None, {"t": (0,)}, 3, "a"),
        "m2": Subscription(("t", "v"), None, {"t": (1, 1), "v": (-4, 0)}, 3, "b"),
        "m3": Subscription(("t",), None, {}, -1, None),
    }
    members: Any = [
        SimpleNamespace(member_id=name, group_instance_id=None, metadata=encode_subscription(of))
        for name, of in sent.items()
    ]
    assignor = RackAwareCooperativeStickyAssignor(rack="a")
    if patched:
        members = decode_join(members, assignor, WarnOnce(logging.getLogger("rackassign.test")))
    for each in members:
        each.metadata = ConsumerProtocolSubscription.decode(each.metadata)
    topics = {topic for each in members for topic in each.metadata.topics}
    assert (len(members), topics) == (1 if patched else 3, {"t", "u", "v"})
    # One of m1 and m2 revokes its partition of t, which m3 gets after that. Both are equally good.
    assert given_out(assignor.assign(cluster, members)) in (
        {"m1": [("t", 0), ("u", 0)], "m2": [("v", 0)], "m3": []},
        {"m1": [("u", 0)], "m2": [("t", 1), ("v", 0)], "m3": []},
    )
    assert "failed" not in warnings.text


def test_a_join_that_is_decoded_before_kafka_python_is_assigned_also_if_planning_fails(
    monkeypatch: pytest.MonkeyPatch, warnings: pytest.LogCaptureFixture
) -> None:
    sent = encode_subscription(Subscription(("t",), rack="b"))
    members: Any = [SimpleNamespace(member_id=f"m{i}", group_instance_id=None, metadata=sent) for i in range(3)]
    assignor = RackAwareCooperativeStickyAssignor(rack="a")
    monkeypatch.setattr(assignor._planner, "prepare", None)
    join = decode_join(members, assignor, WarnOnce(logging.getLogger("rackassign.test")))
    assert sorted(map(len, given_out(assignor.assign(THREE_RACKS, join)).values())) == [1, 1, 1]
    assert "failed; the group gets a plain assignment" in warnings.text


def test_a_class_of_ours_gets_the_consumer_s_rack_and_an_instance_keeps_its_own() -> None:
    assert with_rack(RackAwareRangeAssignor, "a").rack == "a"
    assert with_rack(RackAwareRangeAssignor(rack="b"), "a").rack == "b"
    assert with_rack(dict, "a") is dict


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([RackAwareRangeAssignor, RangePartitionAssignor], "of each name there must be one assignor, got .* 'range'"),
        ([aiokafka.RackAwareRangeAssignor], "is one for another client, import it from rackassign.clients.kafka"),
    ],
)
def test_assignors_that_would_not_assign_are_refused(chosen: list[Any], message: str) -> None:
    """Of assignors with one name kafka-python uses the last, so racks would not count."""
    with pytest.raises(ConfigError, match=message):
        RackAwareConsumer("t", partition_assignment_strategy=chosen)


def test_the_name_of_a_subclass_counts() -> None:
    class Named(RackAwareCooperativeStickyAssignor):
        name = "ours-alone"

    assert Named(rack="a").name == "ours-alone"
    assert Named(rack="a", name="told").name == "told"
    assert RackAwareCooperativeStickyAssignor(rack="a").name == "cooperative-sticky"

    class Standby(StandbyAwareAssignor):
        name = "our-standby"

    assert Standby("a").name == "our-standby"
    assert StandbyAwareAssignor("a").name == "rackassign-standby"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_assignor_says_why_it_cannot_be_copied(copied: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="belongs to one consumer and can be neither copied nor pickled"):
        copied(RackAwareRangeAssignor(rack="a"))
