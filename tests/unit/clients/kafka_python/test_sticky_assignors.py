"""The sticky and cooperative assignors inside the internals, without brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.util import WeakMethod

from rackassign import RackAwareCooperativeStickyAssignor, RackAwareStickyAssignor
from rackassign.clients.kafka_python import internals
from rackassign.errors import ConfigError
from rackassign.monitoring.byte_rates import ByteRates
from rackassign.solver.network_flow import SolverError
from rackassign.wire import StickyData, decode_sticky, decode_subscription, encode_sticky
from tests.helpers.fakes.kafka_python import (
    THREE_RACKS,
    BrokenCluster,
    FakeCluster,
    FakeCoordinator,
    FakeMembership,
    given_out,
    member,
)


def assignment(partitions: Mapping[str, list[int]]) -> ConsumerProtocolAssignment:
    return ConsumerProtocolAssignment(3, list(partitions.items()), None)


def cooperative(membership: FakeMembership | None = None, **options: Any) -> RackAwareCooperativeStickyAssignor:
    assignor = RackAwareCooperativeStickyAssignor(rack="a", **options)
    assignor.bind(membership or FakeMembership())
    return assignor


def test_names_and_protocols_are_the_standard_ones() -> None:
    assert (RackAwareStickyAssignor.name, RackAwareCooperativeStickyAssignor.name) == ("sticky", "cooperative-sticky")
    assert RackAwareStickyAssignor(rack="a").supported_protocols() == [RebalanceProtocol.EAGER]
    both = RackAwareCooperativeStickyAssignor(rack="a").supported_protocols()
    assert both == [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]


@pytest.mark.parametrize("kind", [RackAwareStickyAssignor, RackAwareCooperativeStickyAssignor])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_skew": -1}, "max_skew must be an integer, 0 or more, got -1"),
        ({"max_skew": 1.5}, "max_skew must be an integer, 0 or more, got 1.5"),
        ({"costs": {"a": {"b": -1}}}, r"costs.a.b: expected a finite number, 0 or more, got -1"),
        ({"costs": 7}, "costs: expected costs by rack, got 7"),
        ({"costs": {"a": 7}}, "costs.a: expected a cost for each rack, got 7"),
        ({"costs": {1: {"b": 2}}}, "costs: expected names of racks, got 1"),
        ({"costs": {"a": {2: 2}}}, "costs: expected names of racks, got 2"),
        ({"weights": {"t": [1, "x"]}}, r"weights.t\[1\]: expected a number"),
        ({"weights": 7}, "weights: expected lists of numbers by topic, a function .*, or a weigher, got 7"),
        ({"weights": ByteRates}, "weights: ByteRates is a class, pass an instance of it"),
        ({"weights": {("t", 0): 1.0}}, "weights: expected topics, got"),
        ({"weights": {"t": 1.0}}, "weights.t: expected a list of numbers, got 1.0"),
        ({"weights": {"t": {1.0, 2.0}}}, "weights.t: expected a list of numbers, got {1.0, 2.0}"),
        ({"weights": {"t": "12"}}, 'weights.t: expected a list of numbers, got "12"'),
        ({"weights": {"t": {0: 1.0}}}, "weights.t: expected a list of numbers, got an object of 1"),
        ({"weights": {"t": [10**400]}}, r"weights.t\[0\]: expected a finite number"),
        ({"costs": {"a": {"b": 10**400}}}, "costs.a.b: expected a finite number"),
        ({"weights": {"t": [1.0]}, "max_skew": 1}, "max_skew counts partitions"),
        ({"weights": {"t": [1.0]}, "balance": "topic"}, "counts partitions: it cannot be used together with weights"),
        ({"weight_tolerance": 0.1}, "weight_tolerance is a tolerance of sums of weights: it cannot be used without"),
        *(
            ({"weights": {"t": [1.0]}, "weight_tolerance": wrong}, "weight_tolerance must be a number from 0 to 1000")
            for wrong in (-0.1, float("nan"), float("inf"), True, "0.1", 10**400)
        ),
        ({"balance": "topics"}, 'balance must be one of total, topic, got "topics"'),
        ({"balance": "topic", "max_skew": 1}, 'cannot be used together with balance="topic"'),
        ({"copartition": ["orders", "payments"]}, r'copartition\[0\]: expected a list of topics, got "orders"'),
        ({"copartition": "orders"}, 'copartition: expected lists of topics, got "orders"'),
        ({"copartition": 7}, "copartition: expected lists of topics, got 7"),
        ({"copartition": None}, "copartition: expected lists of topics, got null"),
        ({"copartition": [["orders", ""]]}, r'copartition\[0\]\[0\]: expected a topic, got ""'),
        ({"copartition": [["orders"]]}, r"copartition\[0\]: expected two topics or more"),
        ({"copartition": [["a", "b"], ["b", "c"]]}, r'copartition\[1\]\[0\]: "b" is listed twice'),
        ({"copartition": [["a", 7]]}, "expected a topic, got 7"),
    ],
)
def test_an_option_that_cannot_work_is_refused(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(rack="a", **options)


def test_a_cooperative_member_claims_what_its_consumer_holds_of_its_topics() -> None:
    membership = FakeMembership({"t": (0, 2), "gone": (1,)})
    assignor = cooperative(membership)
    assignor.on_assignment(assignment({"t": [0, 1, 2], "gone": [1]}), 7)
    sent = decode_subscription(assignor.metadata({"t", "s"}).encode())
    assert (sent.topics, sent.owned, sent.generation, sent.rack) == (("s", "t"), {"t": (0, 2)}, 7, "a")
    membership.held = {}
    assert decode_subscription(assignor.metadata({"t"}).encode()).owned == {}


def test_a_member_that_nothing_is_known_of_claims_what_it_was_given() -> None:
    assignor = RackAwareCooperativeStickyAssignor(rack="a")
    assignor.on_assignment(assignment({"t": [1, 0], "gone": [1]}), 7)
    sent = decode_subscription(assignor.metadata({"t"}).encode())
    assert (sent.owned, sent.generation) == ({"t": (0, 1)}, 7)


def test_an_eager_member_claims_nothing() -> None:
    assignor = cooperative(FakeMembership({"t": (0,)}, cooperative=False))
    assignor.on_assignment(assignment({"t": [0]}), 7)
    assert decode_subscription(assignor.metadata({"t"}).encode()).owned == {}


def test_a_membership_that_raises_costs_the_claims_and_one_warning(warnings: pytest.LogCaptureFixture) -> None:
    membership = FakeMembership()
    membership.owned = None  # type: ignore[assignment, method-assign]
    assignor = cooperative(membership)
    for _ in range(2):
        assert decode_subscription(assignor.metadata({"t"}).encode()).owned == {}
    assert len(warnings.records) == 1
    assert "nothing is claimed" in warnings.text


def test_what_another_claims_is_withheld_and_the_next_round_asked_for_once() -> None:
    membership = FakeMembership()
    assignor = cooperative(membership)
    members = [
        member("m1", ["t"], rack="a", owned_partitions=[("t", [2])], generation_id=4),
        member("m3", ["t"], rack="c", owned_partitions=[("t", [0])], generation_id=4),
        member("m2", ["t"], rack="b"),
    ]
    assert given_out(assignor.assign(THREE_RACKS, members)) == {"m1": [], "m2": [("t", 1)], "m3": []}
    assert membership.asked == 0
    assignor.on_assignment(assignment({}), 5)
    assignor.on_assignment(assignment({}), 6)
    assert membership.asked == 1


def claims(generation: int = -1, *partitions: int, name: str = "m1", topic: str = "s", **more: Any) -> Any:
    owned = [("t", list(partitions or (0,)))]
    return member(name, [topic], **{"rack": "a", "owned_partitions": owned, "generation_id": generation, **more})


LIAR, HONEST = claims(), member("m2", ["t"], rack="b")
"""One that claims what it had before a loss or an unsubscribe, as kafka-python's own does for ever; and another."""


def rounds(assignor: RackAwareCooperativeStickyAssignor, members: list[Any], *generations: int) -> list[list[Any]]:
    """Let it lead in each generation, to the end; return what m2 gets."""
    given = []
    for generation in generations:
        assignor._member.membership.joining = generation  # type: ignore[union-attr]
        assignor.metadata({"t"})
        given.append([partition for _, partition in given_out(assignor.assign(THREE_RACKS, members))["m2"]])
        assignor.on_assignment(assignment({}), generation)
    return given


SOME, ALL = [1, 2], [0, 1, 2]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([([LIAR, HONEST], (5, 6, 7, 8), [SOME, SOME, ALL, ALL])], id="not a third time"),
        pytest.param([([LIAR, HONEST], (5, 6, 8), [SOME] * 3)], id="others led before the last"),
        pytest.param([([LIAR, HONEST], (5, 7, 8), [SOME] * 3)], id="others led after the first"),
        pytest.param([([LIAR, HONEST], (5, 7, 9), [SOME] * 3)], id="others led in between"),
        pytest.param(
            [([claims(name=f"l{each}"), HONEST], (each,), [SOME]) for each in range(5, 15)], id="one after the other"
        ),
        pytest.param(
            [
                ([member("m1", ["s"], rack="a"), HONEST], (5,), [ALL]),
                ([claims(5), HONEST], (6,), [ALL]),
                # What others were assigned is not its own by any generation.
                ([claims(4), HONEST], (7, 8), [ALL, ALL]),
            ],
            id="not of the very generation that did not give it",
        ),
        pytest.param([([claims(4), HONEST], (5, 6, 7, 8), [SOME] * 4)], id="what it missed and no member was assigned"),
        pytest.param([([claims(2**31 - 1), HONEST], (5, 6, 7), [SOME, SOME, ALL])], id="a generation to come is none"),
        pytest.param(
            [([claims(2**31 - 1), claims(4, *ALL, name="m2", topic="t", rack="b")], (5,), [ALL])],
            id="nor does it prevail over the claim of an owner",
        ),
        pytest.param(
            [
                ([member("i-1", ["t"], rack="a", instance="i"), member("m2", ["s"], rack="b")], (5,), [[]]),
                ([claims(5, *ALL, name="i-2", topic="t", rack="b", instance="i"), HONEST], (6,), [[]]),
            ],
            id="a static member that returns with another ID",
        ),
    ],
)
def test_a_claim_on_what_a_member_was_not_given_is_believed_for_a_while(
    steps: list[tuple[list[Any], tuple[int, ...], list[list[int]]]], warnings: pytest.LogCaptureFixture
) -> None:
    assignor = cooperative()
    for members, generations, expected in steps:
        assert rounds(assignor, members, *generations) == expected
    assert "keep claiming" not in warnings.text


def test_nor_when_planning_fails(warnings: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.assignor.base.build_group", None)
    assert rounds(cooperative(), [LIAR, HONEST], 5, 6, 7) == [[1, 2], [1, 2], [0, 1, 2]]
    assert "the group gets a plain assignment" in warnings.text


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("generation", [4, 5, 6, 7, 2**31 - 1, -1])
def test_a_newcomer_owns_nothing_whatever_it_claims(
    generation: int, *, fails: bool, warnings: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assignor = cooperative()
    rounds(assignor, [HONEST], 4, 5)
    if fails:
        monkeypatch.setattr("rackassign.assignor.base.build_group", None)
    owner = claims(5, *ALL, name="m2", topic="t", rack="b")
    newcomer = claims(generation, *ALL, name="m9")
    assert rounds(assignor, [owner, newcomer], 6) == [[0, 1, 2]]
    assert ("member m9 claims partitions that were not assigned to it" in warnings.text) is not fails


def test_an_answer_whose_end_the_leader_never_heard_is_held_against_nobody() -> None:
    """The others may have it: what they claim by it is theirs."""
    assignor = cooperative()
    assert rounds(assignor, [member("m1", ["t"]), HONEST], 4)
    assignor._member.membership.joining = 5  # type: ignore[union-attr]
    assignor.assign(THREE_RACKS, [LIAR, HONEST])
    assert rounds(assignor, [LIAR, HONEST], 6) == [[1, 2]]


def test_a_leader_does_not_ask_for_ever(warnings: pytest.LogCaptureFixture) -> None:
    membership = FakeMembership()
    membership.generation = lambda: None  # type: ignore[method-assign]
    rounds(cooperative(membership), [LIAR, HONEST], *range(5, 25))
    assert membership.asked == 5
    assert "keep claiming partitions that were not assigned to them: m1" in warnings.text


def test_an_assignment_that_never_came_through_has_no_consequences() -> None:
    """As when the group rebalances once more while the leader sends its answer."""
    membership = FakeMembership()
    assignor = cooperative(membership)
    members = [
        member("m1", ["t"], rack="b", owned_partitions=[("t", [0])], generation_id=4),
        member("m2", ["t"], rack="a", owned_partitions=[("t", [1])], generation_id=4),
    ]
    assignor.assign(THREE_RACKS, members)
    assignor.metadata({"t"})
    # Now another one leads, and gives m1 what it claims.
    assignor.on_assignment(assignment({}), 5)
    assert membership.asked == 0
    again = [member("m1", ["s"], rack="b", owned_partitions=[("t", [0])], generation_id=5), member("m2", ["t"])]
    assert given_out(assignor.assign(THREE_RACKS, again))["m2"] == [("t", 1), ("t", 2)]


def test_whatever_goes_wrong_nothing_claimed_is_handed_to_another(warnings: pytest.LogCaptureFixture) -> None:
    membership = FakeMembership()
    assignor = cooperative(membership)
    members = [
        member("m1", ["t", "u"], rack="a", owned_partitions=[("t", [0, 2, 9])], generation_id=4),
        member("m2", ["t", "u"], rack="b", owned_partitions=None),
    ]
    cluster = BrokenCluster({}, {"t": [[1], [1], [1]], "u": [[1]]})
    answer = given_out(assignor.assign(cluster, members))
    # Dealt out: t-0 and t-1 to m1, t-2 and u-0 to m2; t-2 is m1's still.
    assert answer == {"m1": [("t", 0), ("t", 1)], "m2": [("u", 0)]}
    assignor.on_assignment(assignment({}), 5)
    assert membership.asked == 1
    assert "the group gets a plain assignment" in warnings.text


def test_sticky_sends_what_it_had_and_reads_what_others_send(warnings: pytest.LogCaptureFixture) -> None:
    assignor = RackAwareStickyAssignor(rack="a")
    assert decode_subscription(assignor.metadata({"t"}).encode()).user_data is None
    assignor.on_assignment(assignment({"t": [2], "gone": [0]}), 9)
    sent = decode_subscription(assignor.metadata({"t"}).encode())
    assert (decode_sticky(sent.user_data), sent.owned) == (StickyData({"t": (2,)}, 9), {})
    members = [
        member("m1", ["t"], user_data=encode_sticky(StickyData({"t": (2,)}, 9))),
        member("m2", ["t"], user_data=encode_sticky(StickyData({"t": (0, 0)}))),
        member("m3", ["t"], user_data=b"\xff\xff"),
    ]
    assert given_out(assignor.assign(THREE_RACKS, members)) == {"m1": [("t", 2)], "m2": [("t", 0)], "m3": [("t", 1)]}
    assert "the last partitions of a member cannot be decoded" in warnings.text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([1, 2, 3], "weights: expected lists of numbers by topic, .* got an array of 3"),
        ({"t": 5}, "weights.t: expected a list of numbers, got 5"),
        ({"t": [1, float("nan"), 1]}, r"weights.t\[1\]: expected a finite number, 0 or more, got NaN"),
        ({"t": [1, -1, 1]}, r"weights.t\[1\]: expected a finite number, 0 or more, got -1"),
    ],
)
def test_weights_of_a_function_that_are_no_weights_are_named_once(
    answer: Any, reason: str, warnings: pytest.LogCaptureFixture
) -> None:
    assignor = RackAwareStickyAssignor(rack="a", weights=lambda: answer)
    for _ in range(2):
        given = given_out(assignor.assign(THREE_RACKS, [member("m1", ["t"], rack="a"), member("m2", ["t"], rack="c")]))
        assert sorted(map(len, given.values())) == [1, 2]
    (record,) = [record for record in warnings.records if "weights are not available" in record.message]
    assert record.exc_info is not None
    assert re.search(reason, str(record.exc_info[1]))


def test_costs_and_skew_decide() -> None:
    cluster = FakeCluster({1: "a", 2: "b", 3: "far"}, {"t": [[1], [1], [1], [2], [3], [3]]})
    members = [member("m1", ["t"], rack="a"), member("m2", ["t"], rack="b")]
    dear = RackAwareStickyAssignor(rack="a", costs={"a": {"far": 20}, "b": {"far": 2}})
    assert given_out(dear.assign(cluster, members))["m2"] == [("t", 3), ("t", 4), ("t", 5)]
    cluster = FakeCluster({1: "a", 2: "b"}, {"t": [[1], [1], [1], [2]]})
    assert len(given_out(RackAwareStickyAssignor(rack="a").assign(cluster, members))["m1"]) == 2
    assert len(given_out(RackAwareStickyAssignor(rack="a", max_skew=1).assign(cluster, members))["m1"]) == 3


def test_what_is_not_proven_is_said_once(warnings: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise SolverError("it does not hold")

    monkeypatch.setattr("rackassign.solver.network_flow.certified", fails)
    assignor = RackAwareStickyAssignor(rack="a")
    members = [member("m1", ["t"], rack="c"), member("m2", ["t"], rack="b"), member("m3", ["t"], rack="a")]
    for _ in range(2):
        assert given_out(assignor.assign(THREE_RACKS, members)) == {
            "m1": [("t", 2)],
            "m2": [("t", 1)],
            "m3": [("t", 0)],
        }
    assert [record.levelname for record in warnings.records] == ["WARNING"]
    assert "it does not hold" in warnings.text


@pytest.mark.parametrize("wrap", [WeakMethod, lambda method: method], ids=["as of 3.0", "bound"])
def test_a_leader_finds_its_consumer_behind_the_cluster(wrap: Any) -> None:
    coordinator = FakeCoordinator()
    found = internals.find_membership(SimpleNamespace(_listeners={print, wrap(coordinator.listen)}))
    assert found is not None
    assert found.owned() == {"t": (0, 2), "u": (1,)}
    assert found.cooperative()
    found.request_rejoin()
    assert coordinator.asked == 1
    same, other = (internals.membership_of(SimpleNamespace(_coordinator=c)) for c in (coordinator, FakeCoordinator()))
    assert same is not None
    assert other is not None
    assert (found.same_consumer(same), found.same_consumer(other)) == (True, False)
    coordinator._rebalance_protocol = RebalanceProtocol.EAGER
    assert not found.cooperative()


def test_an_instance_belongs_to_one_consumer() -> None:
    assignor = cooperative()
    with pytest.raises(ConfigError, match="belongs to one consumer: create one for each"):
        assignor.bind(FakeMembership())


def test_a_host_that_has_changed_has_no_membership() -> None:
    assert internals.membership_of(SimpleNamespace()) is None
    assert internals.find_membership(SimpleNamespace()) is None
    assert internals.find_membership(SimpleNamespace(_listeners={print, object().__str__})) is None


def test_topics_that_are_not_kept_together_are_reported_once(warnings: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster({1: "a"}, {"s": [[1]], "t": [[1], [1]]})
    assignor = RackAwareCooperativeStickyAssignor(rack="a", copartition=[["t", "s"]])
    for _ in range(2):
        given = given_out(assignor.assign(cluster, [member("m1", ["s", "t"]), member("m2", ["s", "t"])]))
        assert sorted(map(sorted, given.values())) == [[("s", 0), ("t", 0)], [("t", 1)]]
    reported = "co-partitioned topics have different numbers of partitions: s 1, t 2;"
    assert sum(reported in record.getMessage() for record in warnings.records) == 1


def test_a_member_does_not_look_for_each_topic_it_owns_in_all_that_it_subscribes_to() -> None:
    class Listed(tuple[str, ...]):
        __slots__ = ()

        def __contains__(self, _: object) -> bool:
            raise AssertionError(
                "15,000 topics in a list of 15,000 take seconds, in which the client does nothing else"
            )

    codec = RackAwareStickyAssignor(rack="a")._codec
    codec.on_assigned({"t": (0, 1), "gone": (0,)}, 3)
    sent = decode_sticky(codec.encode(Listed(("t", "u"))).user_data)
    assert sent == StickyData({"t": (0, 1)}, 3)
