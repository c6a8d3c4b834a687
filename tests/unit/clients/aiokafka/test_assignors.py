"""The assignors inside aiokafka, without brokers."""

from __future__ import annotations

import asyncio
import logging
import pydoc
import subprocess
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from rackassign.clients.aiokafka import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
    internals,
)
from rackassign.model import Partition, TopicPartition
from rackassign.text import WarnOnce
from rackassign.wire import (
    Subscription,
    decode_assignment,
    decode_subscription,
)
from tests.helpers.fakes.aiokafka import Coordinator, cluster_of, joined, led, sends, three_racks

KINDS: list[Any] = [RackAwareRangeAssignor, RackAwareStickyAssignor, RackAwareCooperativeStickyAssignor]


def complete(coordinator: Coordinator, given: Mapping[str, Sequence[int]]) -> None:
    assignment = ConsumerProtocolMemberAssignment(0, [(topic, list(ids)) for topic, ids in given.items()], b"")
    asyncio.run(_completed(coordinator, assignment))


async def _completed(coordinator: Coordinator, assignment: Any) -> None:
    coordinator._assignors[0].on_assignment(assignment)


def partitions(given: Mapping[str, Sequence[TopicPartition]], member: str) -> list[int]:
    return [place.partition for place in given[member] if place.topic == "t"]


@pytest.mark.parametrize("version", [2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_leader_reads_the_racks_that_aiokafka_does_not(
    kind: Any, version: int, warnings: pytest.LogCaptureFixture
) -> None:
    leader = Coordinator(three_racks(), kind(rack="a"))
    sent = {name: sends(rack=rack) for name, rack in {"m1": "c", "m2": "b", "m3": "a"}.items()}
    assert leader.lead(sent, version=version) == {"m1": [("t", 2)], "m2": [("t", 1)], "m3": [("t", 0)]}
    assert leader._group_subscription == {"t"}
    assert not warnings.records


def test_beside_an_assignor_of_ours_another_one_reads_clean_members() -> None:
    leader = Coordinator(three_racks(), RangePartitionAssignor, RackAwareRangeAssignor(rack="a", name="ours"))
    leader.join({"t"})
    members = [("m1", None, sends(rack="a")), ("bad", None, b"")]
    answer = asyncio.run(led(leader, joined("range", members)))
    assert {name: len(each.partitions()) for name, each in answer.items()} == {"m1": 3, "bad": 0}  # type: ignore[attr-defined]


def test_static_members_keep_their_place_by_instance_id() -> None:
    cluster = cluster_of({1: None}, {"t": [[1], [1]]})
    leader = Coordinator(cluster, RackAwareRangeAssignor(rack=None))
    leader.join({"t"})
    members = [("m1", "second", sends()), ("m2", "first", sends())]
    answer = asyncio.run(led(leader, joined("range", members)))
    assert {name: decode_assignment(data).partitions for name, data in answer.items()} == {
        "m1": {"t": (1,)},
        "m2": {"t": (0,)},
    }


def test_replicas_and_leaders_are_read_and_bootstrap_servers_are_no_brokers() -> None:
    cluster = cluster_of({1: "a", 3: ""}, {"t": [[1, 2], [2, 1], []]})
    del cluster._partitions["t"][1]
    read = internals.topology(cluster, ["t", "gone"])
    assert read.topics == {"t": (Partition((1, 2), 1), Partition(()), Partition(()))}
    assert {broker.id: broker.rack for broker in read.brokers} == {1: "a", 3: None}
    assert internals.brokers(ClusterMetadata(bootstrap_servers=["h:9092"])) == ()


def test_a_class_becomes_an_instance_of_each_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [Coordinator(three_racks(), RackAwareStickyAssignor, RangePartitionAssignor) for _ in range(2)]
    for member, rack in zip(both, "ab", strict=True):
        monkeypatch.setenv("RACKASSIGN_RACK", rack)
        member.join({"t"})
    made = [member._assignors[0] for member in both]
    assert [type(assignor) for assignor in made] == [RackAwareStickyAssignor] * 2
    assert [assignor.rack for assignor in made] == ["a", "b"]
    assert [member._assignors[1] for member in both] == [RangePartitionAssignor] * 2
    assert decode_subscription(both[0].join({"t"})[0]).rack == "a"


def test_a_class_whose_consumer_cannot_be_told_works_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "a")
    assert decode_subscription(RackAwareRangeAssignor.metadata({"t"})).rack == "a"
    metadata = SimpleNamespace(subscription=["t"], user_data=None)
    answer = RackAwareRangeAssignor.assign(three_racks(), {"m1": metadata, "m2": metadata})
    assert sorted(sum((decode_assignment(data).partitions["t"] for data in answer.values()), ())) == [0, 1, 2]
    RackAwareRangeAssignor.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [0])], b""))


def test_a_rack_that_cannot_be_sent_does_not_end_the_consumer(
    monkeypatch: pytest.MonkeyPatch, warnings: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "x" * 40_000)
    assert decode_subscription(RackAwareRangeAssignor.metadata({"t"})).rack is None
    assert "no rack is sent" in warnings.text


def test_one_instance_for_two_consumers_is_told_of_and_one_after_the_other_is_not(
    warnings: pytest.LogCaptureFixture,
) -> None:
    assignor = RackAwareCooperativeStickyAssignor(rack="a")
    first, second = Coordinator(three_racks(), assignor), Coordinator(three_racks(), assignor)
    first.join({"t"})
    first.closed = True
    holds = sends(owned={"t": (0,)}, generation=4, rack="c")
    second.lead({"m1": sends(rack="a"), "m2": holds})
    complete(second, {})
    assert (first.asked, second.asked) == (0, 1)
    assert not warnings.records
    first.closed = False
    first.join({"t"})
    first.join({"t"})
    assert [record.getMessage() for record in warnings.records] == [
        "cooperative-sticky: two consumers use one assignor; create one for each"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leaves_what_aiokafka_calls(
    kind: Any, monkeypatch: pytest.MonkeyPatch, warnings: pytest.LogCaptureFixture
) -> None:
    assignor = kind(rack="a")
    member = Coordinator(three_racks(), assignor)
    monkeypatch.setattr(assignor, "_history", None)
    for _ in range(2):
        (sent,) = member.join({"t", "s"})
        assert decode_subscription(sent) == Subscription(("s", "t"), rack="a")
        complete(member, {"t": [0]})
    assert len(warnings.records) == 2


class Changed(Coordinator):
    """That of some later aiokafka."""

    async def _perform_assignment(self, response: Any, more: object = None) -> Any:
        del more
        return await super()._perform_assignment(response)


def test_on_a_changed_host_racks_are_not_read_and_that_is_said_once(warnings: pytest.LogCaptureFixture) -> None:
    leader = Changed(three_racks(), RackAwareRangeAssignor(rack="a"))
    for _ in range(2):
        given = leader.lead({"m1": sends(rack="c"), "m2": sends(rack="b"), "m3": sends(rack="a")})
        assert [partitions(given, name) for name in ("m1", "m2", "m3")] == [[0], [1], [2]]
    assert "_perform_assignment" not in vars(leader)
    assert len([r for r in warnings.records if "racks of members are not read" in r.getMessage()]) == 1


def test_a_join_that_cannot_be_read_is_led_as_the_host_would(warnings: pytest.LogCaptureFixture) -> None:
    leader = Coordinator(three_racks(), RackAwareRangeAssignor(rack="a"))
    leader.lead({"m1": sends(rack="c"), "old": sends(rack="a")})
    leader._lookup_assignor = None
    response = joined("range", [("m1", None, sends())])
    with pytest.raises(TypeError):
        asyncio.run(led(leader, response))
    assert response.members == [("m1", None, sends())]
    assert "members' metadata could not be read" in warnings.text


def test_listeners_that_are_another_thing_are_left_alone(warnings: pytest.LogCaptureFixture) -> None:
    internals.on_refresh(
        SimpleNamespace(_listeners=[]), lambda: None, WarnOnce(logging.getLogger("rackassign.t")), key=1
    )
    assert "changes of the metadata are not seen" in warnings.text


def test_a_listener_that_raises_does_not_end_the_refreshes(warnings: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("changed")

    cluster = three_racks()
    once = WarnOnce(logging.getLogger("rackassign.t"))
    for _ in range(2):
        internals.on_refresh(cluster, fail, once, key="k")
    assert len(cluster._listeners) == 1
    for listener in cluster._listeners:
        listener(cluster)
    assert "handling a metadata refresh failed" in warnings.text


def test_a_look_that_is_due_after_the_consumer_was_stopped_is_not_made() -> None:
    async def play() -> list[str]:
        made: list[str] = []
        over = asyncio.Event()
        stopped, running = Coordinator(three_racks()), Coordinator(three_racks())
        stopped.closed = True
        internals.Membership(stopped).call_later(0, lambda: made.append("stopped"))
        internals.Membership(running).call_later(0, lambda: made.append("running"))
        internals.Membership(running).call_later(0.01, over.set)
        await over.wait()
        return made

    assert asyncio.run(play()) == ["running"]


def test_the_consumer_is_found_behind_the_call_and_behind_its_cluster() -> None:
    coordinator = Coordinator(three_racks())

    async def outer(self: Coordinator) -> internals.Membership | None:
        assert self is coordinator
        return await inner(object())

    def inner(self: object) -> Coroutine[Any, Any, internals.Membership | None]:
        del self

        async def ask() -> internals.Membership | None:
            await asyncio.sleep(0)
            return internals.membership_from_stack()

        return ask()

    found = asyncio.run(outer(coordinator))
    assert found is not None
    assert found.coordinator is coordinator
    assert internals.membership_from_stack() is None
    assert internals.find_membership(coordinator._cluster).same_consumer(found)  # type: ignore[union-attr]


def test_all_that_a_plan_needs_is_loaded_on_the_thread_that_plans_and_by_no_follower() -> None:
    code = """
        import sys, threading
        from rackassign.clients.aiokafka import RackAwareCooperativeStickyAssignor
        from tests.helpers.fakes.aiokafka import Coordinator, sends, three_racks

        class Watch:
            def find_spec(self, name, path=None, target=None):
                if name == "numpy":
                    print("loaded by", threading.current_thread().name)

        sys.meta_path.insert(0, Watch())
        # Whether topics can be kept together is computed with the modules of a plan.
        coordinator = Coordinator(three_racks(), RackAwareCooperativeStickyAssignor("a", copartition=[["t", "u"]]))
        coordinator.join({"t"})
        print([thread.name for thread in threading.enumerate()], "numpy" in sys.modules)
        print(len(coordinator.lead({"m1": sends(rack="a"), "m2": sends(rack="b")})))
    """
    run = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout.splitlines() == ["['MainThread'] False", "loaded by rackassign-plan", "2"]
    assert "t, u are not kept together, because no member subscribes to u" in run.stderr


class Planning:
    """A coordinator that leads while its assignor plans on a thread, until a test lets it go on."""

    def __init__(self, rack: str | None) -> None:
        # `rack`: rack of its only member.
        self.assignor = RackAwareStickyAssignor(rack=rack)
        self.coordinator = Coordinator(three_racks(), self.assignor)
        self.coordinator._metadata_snapshot = {"t": 3}
        # As in each join that was requested, until aiokafka has sent the assignment.
        self.coordinator._rejoin_needed_fut = SimpleNamespace(done=lambda: True)
        self.go = threading.Event()
        prepare = self.assignor._planner.prepare

        def prepared(*given: Any) -> Any:
            planning = prepare(*given)
            return lambda limit_s: (self.go.wait(60), planning(limit_s))[1]

        self.assignor._planner.prepare = prepared  # type: ignore[assignment, method-assign]

    async def lead(self, *, changed: bool) -> None:
        self.coordinator.join({"t"})
        leading = asyncio.ensure_future(self._led())
        await asyncio.sleep(0)
        if changed:
            self.coordinator._metadata_snapshot = {"t": 4}
        self.go.set()
        await leading
        await asyncio.sleep(0)

    async def _led(self) -> None:
        member = "m1", None, sends(rack=self.assignor.rack)
        await self.coordinator._perform_assignment(joined("sticky", [member]))
        # aiokafka resets its request for a rejoin in the same step.
        self.coordinator.asked = 0


@pytest.mark.parametrize("rack", ["a", None])
@pytest.mark.parametrize("changed", [True, False])
def test_partitions_that_appear_while_the_leader_plans_are_asked_for(rack: str | None, *, changed: bool) -> None:
    planning = Planning(rack)
    asyncio.run(planning.lead(changed=changed))
    assert planning.coordinator.asked == changed


def test_without_a_thread_the_leader_plans_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    coordinator = Coordinator(three_racks(), RackAwareStickyAssignor(rack="a"))
    coordinator.join({"t"})
    monkeypatch.setattr(threading.Thread, "start", start)
    given = coordinator.lead({"m1": sends(rack="a"), "m2": sends(rack="b")})
    assert sorted(partitions(given, "m1") + partitions(given, "m2")) == [0, 1, 2]


def test_an_object_of_the_application_does_not_disturb_the_look_for_the_fetcher() -> None:
    class Careless:
        def __getattr__(self, name: str) -> Any:
            raise KeyError(name)

        async def run(self) -> None:
            await asyncio.sleep(60)

    async def look() -> str | None:
        task = asyncio.ensure_future(Careless().run())
        await asyncio.sleep(0)
        try:
            return internals.fetch_rack(internals.Membership(Coordinator(three_racks())))
        finally:
            task.cancel()

    assert asyncio.run(look()) is None


def test_a_class_whose_consumer_cannot_be_found_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    class Alone(RackAwareStickyAssignor):
        """A class of which no other test has logged anything."""

    for _ in range(3):
        assert Alone.metadata({"t"})
    assert ["cannot be found" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("kind", [RackAwareCooperativeStickyAssignor, RackAwareRangeAssignor, RackAwareStickyAssignor])
def test_help_describes_the_assignors(kind: type, caplog: pytest.LogCaptureFixture) -> None:
    described = pydoc.plain(pydoc.render_doc(kind))
    assert f"class {kind.__name__}" in described
    assert "metadata" in described
    assert caplog.messages == []
