"""The assignor with standbys inside the internals, without brokers: what travels, and what goes wrong."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from rackassign import StandbyAwareAssignor
from rackassign.assignor import member as member_module
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.strategies.standby import StandbyOptions
from rackassign.wire.streams import ACTIVE_SUM, NO_REBALANCE, TaskId, decode_streams, decode_streams_assignment
from tests.helpers.fakes.kafka_python import FakeCluster, FakeMembership
from tests.helpers.fakes.kafka_python import member as joining_member

BOTH = ("zone", "cluster")
OPTIONS = StandbyOptions(1, BOTH)


def at(*partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", partition) for partition in partitions)


class StandbyMember:
    """A member: its assignor, and what it was told of copies."""

    def __init__(self, name: str, cluster: FakeCluster, **options: Any) -> None:
        self.name = name
        self.changes: list[tuple[frozenset[TopicPartition], frozenset[TopicPartition]]] = []
        self.have: dict[TopicPartition, int] = {}
        self.assignor = StandbyAwareAssignor(
            name[0],
            client_tags={"zone": name[0], "cluster": name[1]},
            **{"standbys": OPTIONS, "positions": lambda: self.have, **options},
            on_standbys=lambda added, removed: self.changes.append((added, removed)),
        )
        self.assignor.bind(FakeStandbyMembership(cluster))
        self.tied: FakeStandbyMembership = self.assignor._member.membership  # type: ignore[assignment]

    def joins(self) -> Any:
        sent = self.assignor.metadata(["t"])
        return joining_member(
            self.name,
            ["t"],
            rack=self.name[0],
            user_data=sent.user_data,
            owned_partitions=sent.owned_partitions,
            generation_id=sent.generation_id,
        )


class FakeStandbyMembership(FakeMembership):
    """A membership of any cluster; what is called later waits for the test."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.joining = None
        self.waiting: list[Callable[[], None]] = []
        self.delays: list[float] = []

    def cluster(self) -> FakeCluster:
        return self._cluster

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delays.append(delay_s)
        self.waiting.append(callback)


def cluster() -> FakeCluster:
    made = FakeCluster({1: "a", 2: "b", 3: "c"}, {"t": [[1, 2], [2, 3], [3, 1]] * 2})
    # Each member ties itself to it.
    made._listeners = set()
    return made


def a_round(
    members: list[StandbyMember], generation: int, *, others: Any = ()
) -> dict[str, ConsumerProtocolAssignment]:
    """A whole join, through bytes both ways; the first leads."""
    joined = [*(member.joins() for member in members), *others]
    answers = members[0].assignor.assign(members[0].tied.cluster(), joined)
    decoded = {name: ConsumerProtocolAssignment.decode(answer.encode()) for name, answer in answers.items()}
    for member in members:
        member.assignor.on_assignment(decoded[member.name], generation)
        given: dict[str, list[int]] = {}
        for topic, partition in decoded[member.name].partitions():
            given.setdefault(topic, []).append(partition)
        member.tied.held = {topic: tuple(sorted(ids)) for topic, ids in given.items()}
        member.have = dict.fromkeys(member.assignor.standbys, 100)
    return decoded


def test_members_learn_of_their_copies_and_the_warm_take_over() -> None:
    shared = cluster()
    members = [StandbyMember(name, shared) for name in ("ax", "ay", "bx", "by", "cx", "cy")]
    a_round(members, 1)
    owners = {p: member.name for member in members for p in member.tied.held["t"]}
    holders = {place.partition: member.name for member in members for place in member.assignor.standbys}
    assert sorted(owners) == sorted(holders) == list(range(6))
    assert all(owners[p][0] != holders[p][0] and owners[p][1] != holders[p][1] for p in range(6))
    assert all(member.changes == [(member.assignor.standbys, frozenset())] for member in members)
    sent = decode_streams(members[2].joins().metadata.user_data)
    assert sent.tags == {"zone": "b", "cluster": "x"}
    (mine,) = members[2].tied.held["t"]
    assert sent.task_offset_sums == {TaskId(0, mine, "t"): ACTIVE_SUM} | {
        TaskId(0, place.partition, "t"): 100 for place in members[2].assignor.standbys
    }

    a_round(members[2:], 2)
    for member in members[2:]:
        for partition in member.tied.held["t"]:
            assert owners[partition] == member.name or holders[partition] == member.name
    assert sorted(p for member in members[2:] for p in member.tied.held["t"]) == list(range(6))


def test_a_new_member_warms_up_and_asks_for_its_part_when_it_is() -> None:
    shared = cluster()
    ends = {TopicPartition("t", partition): 50_000 for partition in range(6)}
    members = [StandbyMember("ax", shared, ends=lambda: ends)]
    a_round(members, 1)
    assert members[0].tied.held == {"t": (0, 1, 2, 3, 4, 5)}
    members.append(StandbyMember("by", shared, ends=lambda: ends))
    decoded = a_round(members, 2)
    new = members[1]
    assert new.tied.held == {}
    assert decode_streams_assignment(decoded["by"].user_data).next_rebalance_ms == 0
    assert decode_streams_assignment(decoded["ax"].user_data).next_rebalance_ms == NO_REBALANCE
    # Far behind: looked at again and again, and nothing is asked for.
    for _ in range(3):
        new.tied.waiting.pop()()
    assert (new.tied.asked, len(new.tied.waiting)) == (0, 1)
    new.have = dict.fromkeys(new.assignor.standbys, 40_000)
    new.tied.waiting.pop()()
    assert (new.tied.asked, new.tied.waiting) == (1, [])
    for generation in range(3, 9):
        a_round(members, generation)
        new.have = dict.fromkeys(new.assignor.standbys, 50_000)
    assert [len(member.tied.held["t"]) for member in members] == [3, 3]


def test_rounds_that_a_leader_of_another_mind_answers_in_vain_are_asked_for_less_and_less(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "rackassign")
    shared = cluster()
    far = {TopicPartition("t", partition): 10**9 for partition in range(6)}
    members = [StandbyMember("ax", shared, ends=lambda: far), StandbyMember("by", shared), StandbyMember("cx", shared)]
    a_round(members[:1], 1)
    a_round(members, 2)
    warm = [member for member in members[1:] if member.tied.waiting or member.tied.asked]
    assert warm
    for generation in range(3, 30):
        # What one asks for is a round for all: it must not make the others ask at once.
        for member in warm:
            if member.tied.waiting:
                member.tied.waiting.pop()()
        asked = [member.tied.asked for member in warm]
        a_round(members, generation)
        assert [member.tied.asked for member in warm] == asked
    for member in warm:
        waits = member.tied.delays[member.tied.delays.index(2) :]
        assert waits == [2.0**n for n in range(1, 10)] + [600] * (len(waits) - 9)
    assert len([r for r in caplog.records if "not warm for the leader" in r.message]) == len(warm)


def test_what_waits_for_warmth_ends_with_the_next_round() -> None:
    shared = cluster()
    members = [StandbyMember("ax", shared)]
    a_round(members, 1)
    members.append(StandbyMember("by", shared, ends=lambda: {TopicPartition("t", p): 50_000 for p in range(6)}))
    a_round(members, 2)
    waits = members[1].tied.waiting.pop()
    members[1].assignor._copies.on_assigned(None)
    members[1].assignor._copies._awaited = at(0)
    waits()
    assert (members[1].tied.asked, members[1].tied.waiting) == (0, [])


def test_without_positions_what_is_kept_counts_as_warm() -> None:
    shared = cluster()
    members = [
        StandbyMember("ax", shared, positions=None),
        StandbyMember("bx", shared, positions=None),
        StandbyMember("cx", shared, positions=None),
    ]
    for numbers in ((0,), (0, 1), (0, 1, 2)):
        for generation in range(1, 12):
            a_round([members[number] for number in numbers], generation)
    assert [len(member.tied.held["t"]) for member in members] == [2, 2, 2]
    assert [len(member.assignor.standbys) for member in members] == [2, 2, 2]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("hadoop", ["all 2 members have zone=a, so all copies of a partition are there"]), ("strict", [])],
)
def test_a_single_value_of_a_tag_is_reported_once(
    rule: Any, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    shared = cluster()
    options = StandbyOptions(1, BOTH, rule=rule)
    members = [StandbyMember(name, shared, standbys=options) for name in ("ax", "ay")]
    for generation in (1, 2):
        a_round(members, generation)
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert [message for message in said if "so all copies" in message] == expected


def test_a_member_without_the_tags_and_what_has_no_place_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rackassign")
    shared = cluster()
    members = [StandbyMember("ax", shared), StandbyMember("by", shared)]
    plain = StandbyAwareAssignor("c", client_tags={"zone": "c"})
    plain.bind(FakeStandbyMembership(shared))
    for generation in (1, 2, 3):
        a_round(members[:1], generation)
    a_round(members, 4)
    for generation in (5, 6):
        sent = plain.metadata(["t"])
        a_round(members, generation, others=[joining_member("cx", ["t"], rack="c", user_data=sent.user_data)])
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert (
        said.count("6 standbys of 6 partitions cannot be placed: there are too few members, or values of their tags")
        == 1
    )
    assert (
        said.count("0 standbys of 0 partitions cannot be placed: there are too few members, or values of their tags")
        == 1
    )
    assert (
        said.count(
            "1 members do not have all of the tags zone, cluster, so their copies are not separated from others: cx"
        )
        == 1
    )


@pytest.mark.parametrize("broken", ["ends", "changelog"])
def test_what_the_leader_s_functions_raise_moves_nothing(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "rackassign")

    works = [True]

    def fails(*_: object) -> Any:
        if works[0]:
            return {"ends": {}, "changelog": "t-changelog"}[broken]
        raise RuntimeError("the owner's")

    shared = cluster()
    members = [StandbyMember("ax", shared, **{broken: fails}), StandbyMember("by", shared), StandbyMember("cx", shared)]
    a_round(members, 1)
    before = [member.tied.held for member in members]
    works[0] = False
    a_round(members, 2)
    assert [member.tied.held for member in members] == before
    assert {
        "ends": "the ends of changelogs are not available",
        "changelog": "the copies to keep cannot be sent to members",
    }[broken] in caplog.text


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"positions": 5}, "positions must be a function, got 5"),
        ({"ends": None}, "ends must be a function, got null"),
        ({"on_standbys": 5}, "on_standbys must be a function, got 5"),
        ({"changelog": "x"}, 'changelog must be a function, got "x"'),
        ({"client_tags": {"zone": None}}, 'client_tags must be strings, got "zone" with null'),
        ({"client_tags": {"": ""}}, 'client_tags must not be empty, got "" with ""'),
        ({"client_tags": {"zone": ""}}, 'client_tags must not be empty, got "zone" with ""'),
        ({"client_tags": {"": "a"}}, 'client_tags must not be empty, got "" with "a"'),
        ({"client_tags": {"zone": 3}}, 'client_tags must be strings, got "zone" with 3'),
        ({"client_tags": "zone"}, 'client_tags must be keys with values, got "zone"'),
        # What `os.environ` has of a variable whose bytes are not UTF-8.
        ({"client_tags": {"zone": "\udce4"}}, r'client_tags cannot be sent as UTF-8: "zone" with "\\udce4"'),
        ({"standbys": 1}, "standbys must be StandbyOptions, got 1"),
    ],
)
def test_typos_are_told(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        StandbyAwareAssignor("a", **given)


@pytest.mark.parametrize("garbage", [b"", b"\0\0\0\x0b", b"\xff" * 40, None])
def test_a_member_that_says_nothing_sensible_gets_its_part_all_the_same(
    garbage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "rackassign")
    members = [StandbyMember("ax", cluster())]
    for generation in (1, 2):
        decoded = a_round(members, generation, others=[joining_member("odd", ["t"], rack="b", user_data=garbage)])
    assert sorted(tp[1] for told in decoded.values() for tp in told.partitions()) == list(range(6))
    said = [record for record in caplog.records if "tags of member odd cannot be read" in record.message]
    assert len(said) == 1


@pytest.mark.parametrize("error", [RuntimeError("the owner's"), CancelledError()])
def test_what_the_owner_s_functions_raise_costs_nothing_but_a_warning(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    caplog.set_level(logging.WARNING, "rackassign")

    def fails(*_: object) -> Any:
        raise error

    shared = cluster()
    broken = StandbyAwareAssignor(
        "b", client_tags={"zone": "b", "cluster": "x"}, standbys=OPTIONS, positions=fails, ends=fails, on_standbys=fails
    )
    member = StandbyMember("by", shared)
    broken.bind(FakeStandbyMembership(shared))
    for generation in (1, 2):
        sent = broken.metadata(["t"])
        other = joining_member("bx", ["t"], rack="b", user_data=sent.user_data)
        decoded = a_round([member], generation, others=[other])
        broken.on_assignment(decoded["bx"], generation)
        assert decode_streams(sent.user_data).tags == {"zone": "b", "cluster": "x"}
    assert broken.standbys
    said = [record.message.partition(": ")[2] for record in caplog.records if "bx" not in record.message]
    assert [message for message in said if "zone=b" not in message][:2] == [
        "the positions of copies are not available",
        "on_standbys raised",
    ]
    # As the leader: the group gets its assignment, though ends are not known.
    answers = broken.assign(shared, [joining_member("bx", ["t"]), joining_member("by", ["t"])])
    assert sorted(tp[1] for told in answers.values() for tp in told.partitions()) == list(range(6))


def test_what_cannot_be_read_leaves_copies_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "rackassign")
    members = [StandbyMember("ax", cluster()), StandbyMember("by", cluster())]
    a_round(members, 1)
    before = members[1].assignor.standbys
    assert before
    for nothing in (None, b"", b"\0\0\0\x0b\xff"):
        members[1].assignor._copies.on_assigned(nothing)
    assert members[1].assignor.standbys == before
    assert "the copies to keep cannot be decoded" in caplog.text


def test_it_is_cooperative_and_has_a_name_of_its_own() -> None:
    assignor = StandbyAwareAssignor("a", client_tags={"zone": "a"})
    assert assignor.name == "rackassign-standby"
    assert assignor.supported_protocols() == [RebalanceProtocol.COOPERATIVE]
    with pytest.raises(ConfigError, match="doesn't have corresponding tag set"):
        StandbyAwareAssignor("a", client_tags={"zone": "a"}, standbys=OPTIONS)
    with pytest.raises(ConfigError, match="At most 5 client tags"):
        StandbyAwareAssignor("a", client_tags={str(n): "v" for n in range(6)})


def test_positions_may_get_more_copies_while_they_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    class Growing(dict[TopicPartition, int]):
        def items(self) -> Any:
            for pair in super().items():
                yield pair
                self[TopicPartition("t", len(self))] = 1

    cluster = FakeCluster({1: "a"}, {"t": [[1]] * 4})
    of = StandbyMember("a1", cluster)
    of.have = Growing({TopicPartition("t", 0): 7})
    info = decode_streams(of.joins().metadata.user_data)
    assert info.task_offset_sums == {TaskId(0, 0, "t"): 7}
    assert not caplog.records


def test_ends_that_take_too_long_are_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, asked = [0.0], []

    def ends() -> dict[TopicPartition, int]:
        asked.append(1)
        now[0] += 1000.0
        return {}

    monkeypatch.setattr(member_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cluster = FakeCluster({1: "a"}, {"t": [[1]] * 4})
    of = StandbyMember("a1", cluster, ends=ends)
    for _ in range(3):
        assert of.assignor.assign(cluster, [of.joins()])
    assert len(asked) == 1
    assert "the function is not called any more" in caplog.text
