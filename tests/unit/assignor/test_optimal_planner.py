"""Weights of the user, and what a leader presumes that does not know them."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping
from itertools import repeat
from typing import Any

import pytest

from rackassign import RackAwareCooperativeStickyAssignor, RackAwareStickyAssignor
from rackassign.assignor.optimal_planner import presumed_weights
from rackassign.errors import ConfigError
from rackassign.model import Broker, Group, Member, Partition, Partitions, Topology
from rackassign.wire import StickyData, encode_sticky
from tests.helpers.fakes.kafka_python import FakeCluster, FakeMembership, given_out, member

CLUSTER = FakeCluster({1: "a", 2: "b", 3: "c"}, {"t": [[1, 2, 3]] * 13})


class Weigher:
    """Returns what it is given, and counts."""

    def __init__(self, *answers: Mapping[str, list[float]] | None) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, int]] = []
        self.paused = 0

    def weigh(self, partition_counts: Mapping[str, int]) -> Mapping[str, list[float]] | None:
        self.asked.append(dict(partition_counts))
        return self.answers.pop(0)

    def pause(self) -> None:
        self.paused += 1


def group(*owned: Partitions, partitions: int = 6) -> Group:
    members = tuple(Member(f"m{i}", frozenset({"t"}), owned=some, generation=1) for i, some in enumerate(owned))
    return Group(Topology((Broker(1),), {"t": (Partition((1,), leader=1),) * partitions}), members)


def owning(*partitions: int) -> bytes:
    return encode_sticky(StickyData({"t": partitions}, 3))


def test_loads_are_presumed_to_be_equal_and_other_partitions_to_be_average() -> None:
    weights = presumed_weights(group({"t": (0,)}, {"t": (1, 2, 3)}, {}))
    assert weights == {"t": (2.0, 2 / 3, 2 / 3, 2 / 3, 1.0, 1.0)}
    assert presumed_weights(group({}, {})) == {}


def test_claims_that_cannot_be_true_presume_nothing() -> None:
    weights = presumed_weights(group({"t": (0, 77), "gone": (1,)}, {"t": (1,)}, {"t": (0,)}))
    assert weights["t"][2:] == (1.0,) * 4
    # Two claim partition 0: which of them counts does not depend on the order of the members.
    there = group({"t": (0, 1)}, {"t": (0,)})
    assert presumed_weights(there) == presumed_weights(Group(there.topology, there.members[::-1]))


def test_claims_of_a_former_generation_presume_nothing() -> None:
    there = group({"t": (0, 1, 2)}, {"t": (3, 4, 5)}, {})
    late = Member("m2", frozenset({"t"}), owned={"t": (0,)}, generation=0)
    assert presumed_weights(Group(there.topology, (*there.members[:2], late))) == presumed_weights(there)


@pytest.mark.parametrize("weights", [lambda: None, Weigher(None, None)])
def test_members_keep_what_they_have_while_weights_are_not_known(weights: Any) -> None:
    assignor = RackAwareStickyAssignor(rack="a", weights=weights)
    members = [
        member("m1", ["t"], user_data=owning(0)),
        member("m2", ["t"], user_data=owning(*range(1, 9))),
        member("m3", ["t"]),
    ]
    given = given_out(assignor.assign(CLUSTER, members[:2]))
    # Nothing but what nobody has is distributed, in equal parts although one has eight times as many partitions.
    assert given["m1"][0] == ("t", 0)
    assert given["m2"][:8] == [("t", partition) for partition in range(1, 9)]
    assert (len(given["m1"]) - 1, len(given["m2"]) - 8) == (2, 2)
    # One that has nothing gets its part.
    given = given_out(assignor.assign(CLUSTER, members))
    assert ("t", 0) in given["m1"]
    assert len(given["m3"]) >= 3


def test_a_weigher_is_asked_for_the_topics_of_the_group_and_pauses_once_another_leads() -> None:
    weigher = Weigher({"t": [12.0] + [1.0] * 12})
    assignor = RackAwareCooperativeStickyAssignor(rack="a", weights=weigher)
    assignor.bind(FakeMembership())
    members = [member("m1", ["t"]), member("m2", ["t"])]
    given = assignor.assign(CLUSTER, members)
    assert sorted(map(len, given_out(given).values())) == [1, 12]
    assert weigher.asked == [{"t": 13}]
    assignor.on_assignment(given["m1"], 1)
    assert weigher.paused == 0
    # The next generation is that of another leader.
    assignor.metadata({"t"})
    assignor.on_assignment(given["m1"], 2)
    assert weigher.paused == 1


@pytest.mark.parametrize("error", [CancelledError(), GeneratorExit(), StopIteration(), RecursionError()])
def test_whatever_the_function_and_a_weigher_raise_the_group_is_assigned(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """What is no `Exception` would end the IO thread of kafka-python, or the coordinator's task of aiokafka."""

    class Broken(Weigher):
        def weigh(self, partition_counts: Mapping[str, int]) -> Mapping[str, list[float]] | None:
            self.asked.append(dict(partition_counts))
            raise error

        def pause(self) -> None:
            raise error

    for weights in (Broken().pause, Broken()):
        assignor = RackAwareCooperativeStickyAssignor(rack="a", weights=weights)
        given = assignor.assign(CLUSTER, [member("m1", ["t"]), member("m2", ["t"])])
        assert sorted(map(len, given_out(given).values())) == [6, 7]
        for generation in (1, 2):
            assignor.on_assignment(given["m1"], generation)
    said = [each.partition(": ")[2] for each in caplog.messages]
    assert said.count("weights are not available; partitions are counted instead") == 2
    assert said.count("the weigher failed") == 1


def test_an_interrupt_of_the_user_is_none_of_the_function(caplog: pytest.LogCaptureFixture) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RackAwareStickyAssignor(rack="a", weights=interrupted).assign(CLUSTER, [member("m1", ["t"])])
    assert not caplog.messages


@pytest.mark.parametrize(
    ("weights", "misfit"),
    [
        ({"tt": [5.0] * 13}, "t has 13 partitions and 0 weights"),
        ({"t": [1.0, 2.0]}, "t has 13 partitions and 2 weights"),
        (lambda: {"t": [1.0] * 14}, "t has 13 partitions and 14 weights"),
        (Weigher({"zz": [1.0] * 13}, {"zz": [1.0] * 13}), "t has 13 partitions and 0 weights"),
        (Weigher({"t": [1.0]}, {"t": [1.0]}), "t has 13 partitions and 1 weights"),
    ],
)
def test_weights_that_do_not_fit_the_topics_are_named_once(
    caplog: pytest.LogCaptureFixture, weights: Any, misfit: str
) -> None:
    assignor = RackAwareStickyAssignor(rack="a", weights=weights)
    for _ in range(2):
        given = given_out(assignor.assign(CLUSTER, [member("m1", ["t"]), member("m2", ["t"])]))
        assert sum(map(len, given.values())) == 13
    assert [each for each in caplog.messages if "do not fit" in each] == [
        f"sticky: weights do not fit the topics of the group: {misfit}; a partition without a weight counts as 1"
    ]


def test_weights_without_a_length_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    # They can be read once, and some have no end.
    endless: Any
    for endless in (repeat(1.0), map(float, range(13))):
        with pytest.raises(ConfigError, match=r"weights\.t: expected a list of numbers"):
            RackAwareStickyAssignor(rack="a", weights={"t": endless})
        assignor = RackAwareStickyAssignor(rack="a", weights=lambda endless=endless: {"t": endless})
        assert sum(map(len, given_out(assignor.assign(CLUSTER, [member("m1", ["t"])])).values())) == 13
    assert "weights are not available; partitions are counted instead" in caplog.text


@pytest.mark.parametrize("error", [None, TimeoutError("no answer")])
def test_a_slow_function_is_called_once_also_if_it_raises(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    calls: list[float] = []
    now = [0.0]
    monkeypatch.setattr("rackassign.assignor.member.time.monotonic", lambda: now[0])

    def slow() -> Mapping[str, list[float]]:
        calls.append(now[0])
        now[0] += 1000
        if error is not None:
            raise error
        return {"t": [1.0] * 13}

    assignor = RackAwareStickyAssignor(rack="a", weights=slow)
    for _ in range(3):
        given = given_out(assignor.assign(CLUSTER, [member("m1", ["t"]), member("m2", ["t"])]))
        assert sum(map(len, given.values())) == 13
    assert len(calls) == 1
    assert "the function is not called any more" in caplog.text


class Growing(dict[str, Any]):
    """Gets another topic whenever one is read, as from another thread."""

    def items(self) -> Any:
        for pair in super().items():
            yield pair
            self[f"t{len(self)}"] = [1.0]

    def get(self, topic: str, default: Any = None) -> Any:
        self[f"t{len(self)}"] = [1.0]
        return super().get(topic, default)


def test_weights_may_get_more_topics_while_they_are_read(caplog: pytest.LogCaptureFixture) -> None:
    growing = Growing({"t": [float(100 * (p == 0) + 1) for p in range(13)]})
    assignor = RackAwareStickyAssignor(rack="a", weights=lambda: growing)
    given = given_out(assignor.assign(CLUSTER, [member("m1", ["t"]), member("m2", ["t"])]))
    # The heavy one alone, as it is not if partitions are counted.
    assert sorted(map(len, given.values())) == [1, 12]
    assert "weights" not in caplog.text


@pytest.mark.parametrize("weights", [None, {}, lambda: None, {"t": [2.0] * 13, "another": [1.0]}])
def test_weights_that_fit_are_not_warned_of(caplog: pytest.LogCaptureFixture, weights: Any) -> None:
    RackAwareStickyAssignor(rack="a", weights=weights).assign(CLUSTER, [member("m1", ["t"])])
    assert not [each for each in caplog.messages if "do not fit" in each]
