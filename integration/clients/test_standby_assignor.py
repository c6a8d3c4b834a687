"""`StandbyAwareAssignor` by itself, on real brokers: where copies go, who is told, who takes over."""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from rackassign import RackAwareConsumer, StandbyAwareAssignor
from rackassign.model import TopicPartition
from rackassign.strategies.standby import StandbyOptions
from rackassign.testing import Cluster
from rackassign.testing.harness import wait_until
from rackassign.testing.pytest_plugin import MakeTopic
from rackassign.wire import Subscription
from rackassign.wire.streams import StreamsSubscriptionInfo, TaskId, encode_streams
from tests.helpers.kafka.assignment_recorder import Given, note_assignments, state_of
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.machine_speed import scaled_ms

pytestmark = [pytest.mark.brokers, pytest.mark.local]

SIX = ("ax", "ay", "bx", "by", "cx", "cy")

AT_ONCE = 100
"""Partitions that may warm up at the same time, where that is not what is looked at."""

HEARTBEAT_MS = 50
"""So that members learn of each rebalance at once."""

JOINS = 20
"""Of the member that says nothing sensible."""

END, ACCEPTABLE = 50_000, StandbyOptions().acceptable_recovery_lag

Copies = frozenset[TopicPartition]


class StandbyMember:
    """A member: zone and cluster are the letters of its name, the zone is its rack."""

    def __init__(
        self,
        crew: StandbyGroup,
        name: str,
        kind: type[StandbyAwareAssignor] = StandbyAwareAssignor,
        client_tags: Mapping[str, str] | None = None,
    ) -> None:
        self.told: Copies = frozenset()
        self.faults: list[str] = []
        self.given: list[Given] = []
        self.at = 0
        """How far all of its copies are."""
        self.assignor = kind(
            name[0],
            client_tags={"zone": name[0], "cluster": name[1]} if client_tags is None else client_tags,
            # Tags over which copies are spread must be among a member's own.
            standbys=crew.options if client_tags is None else StandbyOptions(),
            positions=lambda: dict.fromkeys(self.assignor.standbys, self.at),
            ends=lambda: crew.ends,
            on_standbys=self._note,
        )
        self.consumer = RackAwareConsumer(
            crew.topic,
            client_rack=name[0],
            bootstrap_servers=crew.bootstrap,
            group_id=crew.group,
            partition_assignment_strategy=[self.assignor],
            **{**CONSUMER, "heartbeat_interval_ms": HEARTBEAT_MS},
        )
        note_assignments(self.consumer, self.given.append)

    def _note(self, added: Copies, removed: Copies) -> None:
        # What is raised here only gets a warning.
        if added & self.told or removed - self.told or not added | removed:
            self.faults.append(f"{sorted(self.told)}: {sorted(added)} more, {sorted(removed)} less")
        self.told = self.told - removed | added
        if self.told != self.assignor.standbys:
            self.faults.append(f"told {sorted(self.told)}, has {sorted(self.assignor.standbys)}")


class StandbyGroup:
    """Members of one group, polled one after the other."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int, options: StandbyOptions) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.options = options
        self.ends: dict[TopicPartition, int] = {}
        self.members: dict[str, StandbyMember] = {}

    def start(self, *names: str, **options: Any) -> None:
        for name in names:
            self.members[name] = StandbyMember(self, name, **options)

    def end(self, *names: str) -> None:
        for name in names:
            self.members.pop(name).consumer.close(timeout_ms=scaled_ms(5000))

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for member in self.members.values():
                all_of_them.callback(member.consumer.close, timeout_ms=scaled_ms(5000))

    def resting(self) -> bool:
        """Poll all once; tell whether they own the topic between them and none means to join again."""
        for member in self.members.values():
            member.consumer.poll(timeout_ms=10)
        states = [state_of(member.consumer) for member in self.members.values()]
        owned = sorted(place.partition for state in states for place in state.owned)
        return (
            all(state.resting for state in states)
            and len({state.generation for state in states}) == 1
            and owned == list(range(self.partitions))
        )

    def settle(self, copies: int) -> None:
        """Wait until all run as many as the others, and so many copies of each partition are kept."""

        def look() -> bool:
            if not self.resting():
                return False
            loads = Counter(self.owners().values())
            runs = [loads[name] for name in self.members]
            keeps = self.holders()
            return max(runs) - min(runs) <= 1 and all(len(keeps[p]) == copies for p in range(self.partitions))

        try:
            wait_until(look, f"even loads and {copies} copies of each")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; run by {self.owners()}, kept by {dict(self.holders())}") from None
        self.check_told()

    def another_round(self, name: str = "") -> None:
        """Have a member, the first if none is named, ask for a rebalance, and wait until that is over."""
        member = self.members[name or next(iter(self.members))]
        before = member.assignor.generation
        member.assignor.request_rejoin()
        wait_until(lambda: self.resting() and member.assignor.generation > before, "another round")

    def check_told(self) -> None:
        """What members were told of copies adds up, at each change, to what they say they keep."""
        assert {name: member.faults for name, member in self.members.items() if member.faults} == {}
        assert {name: member.told for name, member in self.members.items()} == self.keeps()

    def owners(self) -> dict[int, str]:
        return {tp.partition: name for name, member in self.members.items() for tp in member.consumer.assignment()}

    def keeps(self) -> dict[str, Copies]:
        return {name: member.assignor.standbys for name, member in self.members.items()}

    def holders(self) -> defaultdict[int, list[str]]:
        """Return who keeps a copy of each partition."""
        found: defaultdict[int, list[str]] = defaultdict(list)
        for name, places in self.keeps().items():
            for place in places:
                found[place.partition].append(name)
        return found

    def at(self, letter: int) -> dict[int, list[str]]:
        """Return the zones (0) or clusters (1) of each partition: first the owner's, then those of its copies."""
        keeps = self.holders()
        return {p: [owner[letter], *(name[letter] for name in keeps[p])] for p, owner in self.owners().items()}


MakeCrew = Callable[..., StandbyGroup]


@pytest.fixture
def make_crew(rack_cluster: Cluster, make_topic: MakeTopic, unique_name: Callable[[], str]) -> Iterator[MakeCrew]:
    with ExitStack() as opened:

        def make(partitions: int, standbys: int, tags: tuple[str, ...] = ("zone",), **options: Any) -> StandbyGroup:
            topic = make_topic(replicas=[[1, 2], [2, 3], [3, 1]] * (partitions // 3))
            chosen = StandbyOptions(standbys, tags, **{"max_warmup_replicas": AT_ONCE, **options})
            crew = StandbyGroup(rack_cluster.bootstrap, unique_name(), topic, partitions, chosen)
            opened.callback(crew.close)
            return crew

        yield make


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """Return what looks up the warnings in which a text is."""
    caplog.set_level(logging.WARNING, "rackassign")
    return lambda text: [m for r in caplog.records if text in (m := r.getMessage())]


def test_nothing_is_crowded_into_the_zone_that_is_there(
    make_crew: MakeCrew, warnings_of: Callable[[str], list[str]]
) -> None:
    crew = make_crew(6, 1, forced_tag_values={"zone": ["a", "b"]})
    crew.start("ax", "ay")
    crew.settle(0)
    for _ in range(3):
        crew.another_round()
        assert not crew.holders()
    (said,) = warnings_of("cannot be placed")
    assert "6 standbys of 6 partitions cannot be placed" in said
    crew.start("bx", "by")
    crew.settle(1)
    assert all(sorted(zones) == ["a", "b"] for zones in crew.at(0).values())
    crew.another_round()
    assert warnings_of("cannot be placed") == [said]


@pytest.mark.long
def test_what_members_are_told_adds_up_whoever_comes_and_goes(make_crew: MakeCrew) -> None:
    crew = make_crew(12, 1)
    crew.start(*SIX)
    crew.settle(1)
    for leaving, coming in ((["ax"], []), ([], ["ax"]), (["by", "cx"], []), (["ay"], ["cz", "by"])):
        crew.end(*leaving)
        crew.start(*coming)
        crew.settle(1)
        assert all(len(set(zones)) == 2 for zones in crew.at(0).values())
    before = crew.keeps()
    for name in crew.members:
        crew.another_round(name)
    assert crew.keeps() == before
    crew.check_told()


def test_only_what_has_to_move_moves(make_crew: MakeCrew) -> None:
    crew = make_crew(6, 1)
    crew.start(*SIX)
    crew.settle(1)
    before = crew.keeps()
    # Who comes as the seventh runs nothing, and one copy is its share.
    crew.start("az")
    wait_until(lambda: crew.resting() and bool(crew.members["az"].told), "a copy for who runs nothing")
    crew.settle(1)
    (copy,) = crew.members["az"].told
    assert [place for name in SIX for place in before[name] - crew.members[name].told] == [copy]
    # Who goes takes one along.
    there = crew.keeps()
    crew.end("az")
    crew.settle(1)
    assert all(crew.members[name].told >= there[name] for name in SIX)


def garbage(topic: str, seed: int) -> Iterator[bytes]:
    """Yield user data without end: of no sense at all, cut short, of other versions, or true to form and absurd."""
    dice = random.Random(seed)
    tasks = [TaskId(group, p, name) for group in (0, -1) for p in range(-1, 14) for name in (topic, None, "elsewhere")]
    absurd = {task: dice.choice((-1 << 63, -3, -2, 0, (1 << 63) - 1)) for task in tasks}
    sound = encode_streams(StreamsSubscriptionInfo(task_offset_sums=absurd, tags={"zone": "z" * 300, "": "\U0001f980"}))
    yield from (
        b"",
        b"\0\0\0\x0b",
        b"\xff" * 40,
        b"\0\0\0\x63" * 2,
        b"\0\0\0\x07" + sound[4:],
        sound,
    )
    while True:
        data = bytearray(sound)
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        yield bytes(data[: dice.choice((len(data), dice.randrange(len(data))))])


class Hostile(StandbyAwareAssignor):
    """Says of itself the next thing that is garbage, at each join."""

    said = 0

    def _joining(self, topics: Iterable[str]) -> Subscription:
        sent = super()._joining(topics)
        self.garbage = getattr(self, "garbage", None) or garbage(sent.topics[0], 708)
        self.said += 1
        return replace(sent, user_data=next(self.garbage))


@pytest.mark.long
def test_beside_members_that_say_nothing_sensible_all_is_assigned(
    make_crew: MakeCrew, warnings_of: Callable[[str], list[str]]
) -> None:
    crew = make_crew(12, 1, ("zone", "cluster"))
    crew.start(*SIX)
    crew.settle(1)
    assert all(len(set(zones)) == 2 for zones in crew.at(0).values())
    assert all(len(set(clusters)) == 2 for clusters in crew.at(1).values())
    crew.start("bz", kind=Hostile)
    crew.start("cz", client_tags={})
    hostile = crew.members["bz"].assignor
    assert isinstance(hostile, Hostile)
    while hostile.said < JOINS:
        crew.another_round()
    # Each leader says it once.
    assert len(warnings_of("cannot be read")) == 1
    crew.end("ax", "by")
    wait_until(lambda: crew.resting() and len(crew.holders()) == crew.partitions, "owners and copies of all")
    crew.check_told()
    assert warnings_of("assignment failed") == []


def test_who_is_cold_warms_up_first_and_who_is_warm_takes_over(make_crew: MakeCrew) -> None:
    crew = make_crew(6, 0, max_warmup_replicas=2)
    crew.ends = {TopicPartition(crew.topic, p): END for p in range(6)}
    crew.start("ax")
    crew.settle(0)
    crew.start("by")
    new = crew.members["by"]
    wait_until(lambda: crew.resting() and bool(new.told), "something to warm up")
    for at in (0, END - ACCEPTABLE - 1):
        new.at = at
        crew.another_round("by")
        assert set(crew.owners().values()) == {"ax"}
        assert len(new.told) == 2
    first = {place.partition for place in new.told}
    new.at = END - ACCEPTABLE
    # Nobody else asks for a round.
    wait_until(lambda: crew.resting() and not new.told, "all that is to move")
    owners = crew.owners()
    assert Counter(owners.values()) == {"ax": 3, "by": 3}
    assert {owners[p] for p in first} == {"by"}
    crew.check_told()


def test_of_two_copies_the_warm_one_takes_over_at_once(make_crew: MakeCrew) -> None:
    crew = make_crew(6, 2)
    crew.ends = {TopicPartition(crew.topic, p): END for p in range(6)}
    crew.start("ax", "bx", "cx")
    for member in crew.members.values():
        member.at = END
    crew.settle(2)
    cold, warm = crew.members["cx"], crew.members["bx"]
    cold.at = 0
    had = crew.owners()
    since = warm.assignor.generation
    crew.end("ax")
    wait_until(lambda: crew.resting() and warm.assignor.generation > since, "two members")
    given = {member: next(g for g in member.given if g.generation > since) for member in (warm, cold)}
    assert given[warm].generation == given[cold].generation
    assert {place.partition for place in given[warm].owned} > {p for p, name in had.items() if name == "ax"}
    assert {had[place.partition] for place in given[cold].owned} == {"cx"}
    cold.at = END
    crew.settle(1)
