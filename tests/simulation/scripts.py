"""Scripts: what happens in a run besides what clients and brokers do by themselves, made from a seed and cut down.

A script is a setup and a list of events with their times, and a run of it is always the same. A failing script is cut
down by leaving events out, and by making the network regular, for as long as the same rule is violated. What is left
is printed in a form that can be pasted into a test.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.simulation import aiokafka_clients, kafka_python
from tests.simulation.aiokafka_member import AiokafkaMember
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.group import Group
from tests.simulation.kafka_python_member import KafkaPythonMember
from tests.simulation.member import GROUP, Library, Member, MemberOptions, Strategy
from tests.simulation.stand_ins import Replacement, installed
from tests.simulation.watchers import Watchers
from tests.simulation.world import Violation, World

Happening = tuple[Any, ...]
"""Time in seconds, name, and arguments."""

SETTLE_S = 35.0
"""Seconds without a fault after which a group has to be settled: a rebalance timeout, a session, and metadata."""

LAST_RECORDS_S = 27.0

_AROUND_A_JOIN, _LEAVES = 0.4, 0.75
"""How often a script begins with what loses most easily what was read, and how often each other member leaves then."""

_LIBRARIES: tuple[Library, ...] = ("kafka-python", "aiokafka", "aiokafka", "both")
_STRATEGIES: Mapping[Library, tuple[Strategy, ...]] = {
    "kafka-python": ("cooperative", "cooperative", "sticky", "range"),
    "aiokafka": ("cooperative", "sticky", "range"),
    "both": ("cooperative", "sticky"),
}

RACKS = ("a", "b", "c")
_APIS = (
    *("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "Fetch", "Metadata", "FindCoordinator"),
    "LeaveGroup",
)


@dataclass(frozen=True, slots=True)
class Script:
    """A setup and what happens."""

    happenings: tuple[Happening, ...]
    options: MemberOptions = field(default_factory=MemberOptions)
    members: int = 3
    partitions: tuple[int, ...] = (6,)
    seed: int = 0
    noise: bool = True
    # Limit for each record, from when it was written until it is processed.
    within_s: float | None = None
    # Members with kafka-python's own assignor, which claims what it has lost.
    stubborn: tuple[int, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"        {happening!r},\n" for happening in self.happenings)
        return (
            f"Script(\n    (\n{lines}    ),\n    {self.options!r},\n    members={self.members}, "
            f"partitions={self.partitions}, seed={self.seed}, noise={self.noise}, "
            f"within_s={self.within_s}, stubborn={self.stubborn},\n)"
        )


@dataclass(frozen=True, slots=True)
class Result:
    """How a run has ended."""

    violation: Violation | None
    events: int
    pairs: Counter[tuple[str, str]]
    trace: str
    log: tuple[str, ...] = ()


def from_seed(seed: int, options: MemberOptions | None = None) -> Script:
    """Make the script of a seed."""
    rng = random.Random(seed)
    if options is None:
        # Drawn apart, so that most of what happens is the same whatever the library.
        of_library = random.Random(f"{seed}/library")
        library = of_library.choice(_LIBRARIES)
        options = MemberOptions(
            library=library,
            strategy=of_library.choice(_STRATEGIES[library]),
            client=rng.choice(("consumer", "attached")),
            commit=rng.choice(("sync", "explicit", "auto", "async", "listener")),
            static=rng.random() < 0.25,
            poll_ms=rng.choice((0, 500, 1000, 3000)),
            max_records=rng.choice((5, 50, 500)),
        )
    weights = dict(_WEIGHTS)
    if rng.random() < 0.4:
        weights = {name: weight for name, weight in _WEIGHTS.items() if name not in FAULTS}
    if options.static and options.library != "kafka-python":
        # aiokafka has no case for it: both join again and again, and both read (see the tests).
        weights.pop("twin", None)
    # A few kinds of events in each script: with all of them the rare ones seldom meet.
    weights = {name: weights[name] for name in rng.sample(sorted(weights), rng.randint(3, len(weights)))}
    members, partitions = rng.randint(2, 4), tuple(rng.randint(2, 8) for _ in range(rng.choice((1, 1, 2))))
    now, happenings = 0.0, list[Happening]()
    if weights.keys() & FAULTS and rng.random() < _AROUND_A_JOIN:
        happenings = _around_a_join(rng, members, partitions)
        now = happenings[-1][0]
    for _ in range(rng.randint(0 if happenings else 4, 24 - len(happenings))):
        # Many things happen close together, so that what one has started is not over when the next one comes.
        now = round(now + (rng.expovariate(4.0) if rng.random() < 0.6 else rng.uniform(0.5, 6.0)), 3)
        happenings.append((now, *happening(rng, weights, members, partitions)))
    return Script(tuple(happenings), options, members, partitions, seed)


FAULTS = frozenset(
    {"kill", "twin", "remove", "pause", "drop", "delay", "kill_broker", "start_broker", "move_coordinator", "rack"}
    | {"overwork", "lose", "freeze", "move_transactions"}
)
"""What may cost a member its membership or a commit. Without these, each record is processed once."""

_WEIGHTS = {
    "kill": 4,
    "stop": 3,
    "start": 8,
    "twin": 1,
    "remove": 3,
    "pause": 6,
    "work": 3,
    "overwork": 3,
    "drop": 3,
    "delay": 8,
    "kill_broker": 2,
    "start_broker": 3,
    "lead": 3,
    "reassign": 3,
    "move_coordinator": 2,
    "refresh": 3,
    "produce": 6,
    "add_partitions": 1,
    "rack": 2,
}


def happening(rng: random.Random, weights: Mapping[str, int], members: int, partitions: Sequence[int]) -> Happening:
    member, broker = rng.randrange(members), rng.randint(1, 3)
    topic = rng.randrange(len(partitions))
    index = rng.randrange(partitions[topic])
    seconds = round(rng.choice((0.05, 0.5, 2.0, 4.0, 7.0)) * rng.uniform(0.7, 1.3), 3)
    name = rng.choices(list(weights), list(weights.values()))[0]
    arguments: dict[str, Happening] = {
        "pause": (member, round(seconds * rng.choice((1, 1, 2)), 3)),
        "work": (member, min(seconds, 4.0)),
        "overwork": (member, round(seconds + 4.5, 3)),
        "delay": (member, rng.choice(_APIS), rng.choice(("request", "response")), seconds),
        "kill_broker": (broker,),
        "start_broker": (broker,),
        "move_coordinator": (broker,),
        "lead": (topic, index, broker),
        "reassign": (topic, index, tuple(rng.sample((1, 2, 3), 2))),
        "produce": (topic, index, rng.randint(1, 40)),
        "add_partitions": (topic,),
        "rack": (member, rng.choice(RACKS)),
    }
    return (name, *arguments.get(name, (member,)))


def _around_a_join(rng: random.Random, members: int, partitions: Sequence[int]) -> list[Happening]:
    """Let a member stand still in a join that another one holds up, while others read on, and perhaps leave to it."""
    still, slow = rng.sample(range(members), 2)
    others = [each for each in range(members + 1) if each != still]
    begun = rng.uniform(2.5, 4.0)
    happenings: list[Happening] = [
        (begun - rng.uniform(0, 0.5), "work", slow, round(rng.uniform(1, 4), 3)),
        (begun, "start", members),
        (begun + rng.uniform(0.3, 2.5), "pause", still, round(rng.uniform(8, 14), 3)),
    ]
    for _ in range(rng.randint(3, 8)):
        topic = rng.randrange(len(partitions))
        records = (topic, rng.randrange(partitions[topic]), rng.randint(1, 20))
        happenings.append((begun + rng.uniform(0, 12), "produce", *records))
    leaves = begun + rng.uniform(9, 13)
    happenings += [(leaves + rng.uniform(0, 0.5), "stop", each) for each in others if rng.random() < _LEAVES]
    happenings.append((begun + 20.0, "refresh", still))
    return sorted((round(at, 3), *rest) for at, *rest in happenings)


class Run:
    """One run of a script."""

    settle_s, last_records_s = SETTLE_S, LAST_RECORDS_S

    def __init__(self, script: Script, *, log: bool = False) -> None:
        self.script = script
        self.world = World(script.seed, noise=script.noise)
        if log:
            self.world.log = []
        once = script.options.commit != "async" and not any(each[1] in FAULTS for each in script.happenings)
        self.watchers = self._new_watchers(once=once)
        self.topics = {f"topic-{i}": number for i, number in enumerate(script.partitions)}
        self.cluster = self._new_cluster()
        self.current: dict[int, Member] = {}
        self._started = 0
        self._racks = {i: RACKS[i % 3] for i in range(script.members)}

    def _new_watchers(self, *, once: bool) -> Watchers:
        return Watchers(self.world, once=once, within_s=self.script.within_s)

    def _new_cluster(self) -> SimulatedCluster:
        return SimulatedCluster(self.world, RACKS, self.watchers, self.topics)

    def go(self) -> Result:
        with installed(self.world, self._replacements()):
            try:
                self._play()
            finally:
                for member in self.watchers.members:
                    if not member.dead:
                        member.kill()
        violation = self.world.problems[0] if self.world.problems else None
        log = tuple(self.world.log or ())
        return Result(violation, self.world.events, self.world.pairs, self.world.trace(), log)

    def _replacements(self) -> Iterable[Replacement]:
        yield from kafka_python.replacements(self.world)
        yield from aiokafka_clients.replacements(self.world)

    def _play(self) -> None:
        for i in range(self.script.members):
            self.world.at(0.01 * i, "start", partial(self._do, "start", i))
        for topic, number in self.topics.items():
            for index in range(number):
                self.cluster.produce(topic, index, 10)
        end = 0.0
        for at, name, *arguments in self.script.happenings:
            self.world.at(at, name, partial(self._do, name, *arguments))
            end = max(end, at)
        self.world.at(end + 0.001, "heal", self._heal)
        calm = end + self.settle_s
        self.world.run(calm)
        if not self.world.problems:
            group = self.cluster.groups.get(GROUP)
            generation = group.generation if group is not None else 0
            self.watchers.settled(self.cluster, group)
            self.world.run(calm + 5.0)
            if group is not None and group.generation != generation and not self.world.problems:
                self.world.violated("no rebalance that nobody needs", f"{generation} became {group.generation}")
            if not self.world.problems:
                self.watchers.settled(self.cluster, group)
            if not self.world.problems and group is not None:
                self._planned(group)

    def _planned(self, group: Group) -> None:
        self.watchers.planned(self.cluster, group)

    def _heal(self) -> None:
        self.cluster.forget_delays()
        self.cluster.unlisted.clear()
        for member in self.current.values():
            member.paused_until = self.world.now
        for broker in self.cluster.brokers:
            self.cluster.start_broker(broker)
        # An application that commits later than it reads repeats a commit that has failed with its next records.
        self.world.later(self.last_records_s, "last records", self._last_records)
        if all(member.dead or member.ended or member.stopping for member in self.current.values()):
            self._do("start", 0)

    def _last_records(self) -> None:
        for topic in self.topics:
            for partition in self.cluster.topics[topic]:
                self.cluster.produce(topic, partition.index, 1)

    def _do(self, name: str, *arguments: Any) -> None:
        self.world.note(name, repr(arguments))
        # What is no method here happens to brokers alone.
        happens = getattr(self, f"_{name}", None) or getattr(self.cluster, name)
        happens(*arguments)

    def _living(self, member: int) -> Member | None:
        found = self.current.get(member)
        return None if found is None or found.dead or found.ended else found

    def _start(self, number: int) -> None:
        if self._living(number) is None:
            self._twin(number)

    def _twin(self, number: int) -> None:
        """Start a member beside one that may have its name."""
        self._started += 1
        rack = self._racks.get(number, RACKS[number % 3])
        member = self._new_member(number, f"m{number}#{self._started}", rack)
        self.current[number] = member
        self.watchers.members.append(member)
        member.start()

    def _new_member(self, number: int, name: str, rack: str | None) -> Any:
        options = self.script.options
        if number in self.script.stubborn:
            options = replace(options, client="patched", without=("claim_current_assignment",))
        with_aiokafka = options.library == "aiokafka" or (options.library == "both" and number % 2 == 1)
        kind: type[Member] = AiokafkaMember if with_aiokafka else KafkaPythonMember
        return kind(self.world, name, self.cluster, self.watchers, options, rack, tuple(self.topics))

    def _kill(self, number: int) -> None:
        member = self._living(number)
        if member is not None:
            for link in [each for each in self.cluster.links if each.client is member]:
                link.close()
            member.kill()

    def _remove(self, number: int) -> None:
        """Remove a member from its group, as an admin may."""
        member, group = self._living(number), self.cluster.groups.get(GROUP)
        if member is not None and member.consumer is not None and group is not None:
            group.leave(member.member_id(), None)

    def _stop(self, number: int) -> None:
        member = self._living(number)
        if member is not None:
            member.stopping = True

    def _rack(self, number: int, rack: str) -> None:
        self._kill(number)
        self._racks[number] = rack
        self._start(number)

    def _pause(self, number: int, seconds: float) -> None:
        member = self._living(number)
        if member is not None:
            member.pause(seconds)

    def _work(self, number: int, seconds: float) -> None:
        member = self._living(number)
        if member is not None:
            member.work_s = seconds

    _overwork = _work

    def _call(self, number: int, method: str) -> None:
        """Let the application call something before its next poll."""
        member = self._living(number)
        if member is not None:
            member.calls.append(method)

    def _interrupt(self, number: int, records: int) -> None:
        """Let the handler of a signal raise while a poll takes records, after so many."""
        member = self._living(number)
        if member is not None:
            member.interrupted_after = records

    def _malform(self, number: int) -> None:
        """Let a member join with metadata that are none."""
        self.cluster.malformed.add(self.current[number].name)

    def _refuse_joins(self) -> None:
        """Let the group become one of the new protocol, and be of the former one again before they are repeated."""
        self.cluster.groups[GROUP].refuse_joins()

    def _drop(self, number: int) -> None:
        for link in [each for each in self.cluster.links if each.client is self.current.get(number)]:
            link.lose()

    def _delay(self, number: int, api: str, kind: str, seconds: float) -> None:
        member = self._living(number)
        if member is not None:
            self.cluster.delay_next(member.name, api, kind, seconds)

    def _refresh(self, number: int) -> None:
        member = self._living(number)
        if member is not None:
            member.refresh_metadata()

    def _unlist(self, node: int) -> None:
        """Let metadata name a broker as leader, and not list it."""
        self.cluster.unlisted.add(node)

    def _lead(self, topic: int, index: int, node: int) -> None:
        partition = self.cluster.topics[f"topic-{topic}"][index]
        if node in partition.replicas and not self.cluster.brokers[node].dead:
            self.cluster.lead(partition, node)

    def _reassign(self, topic: int, index: int, replicas: Sequence[int]) -> None:
        self.cluster.reassign(f"topic-{topic}", index, list(replicas))

    def _move_coordinator(self, node: int) -> None:
        self.cluster.move_coordinator(GROUP, node)

    def _produce(self, topic: int, index: int, number: int) -> None:
        self.cluster.produce(f"topic-{topic}", index, number)

    def _add_partitions(self, topic: int) -> None:
        name = f"topic-{topic}"
        self.cluster.add_partitions(name, len(self.cluster.topics[name]) + 1)

    def _delete_topic(self, topic: int) -> None:
        self.cluster.delete_topic(f"topic-{topic}")


def run(script: Script, *, log: bool = False) -> Result:
    return Run(script, log=log).go()


def shrink(script: Script, rule: str, attempts: int = 400, play: Callable[[Script], Result] = run) -> Script:
    """Cut a failing script down to the fewest events that violate the same rule."""
    left = attempts

    def fails(candidate: Script) -> bool:
        nonlocal left
        if left <= 0:
            return False
        left -= 1
        violation = play(candidate).violation
        return violation is not None and violation.rule == rule

    for simpler in (replace(script, noise=False), replace(script, options=replace(script.options, max_records=500))):
        if fails(simpler):
            script = simpler
    size = max(1, len(script.happenings) // 2)
    while True:
        start = 0
        shorter = False
        while start < len(script.happenings):
            rest = script.happenings[:start] + script.happenings[start + size :]
            candidate = replace(script, happenings=rest)
            if fails(candidate):
                script, shorter = candidate, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    for members in range(1, script.members):
        of_others = any(each[1] in _OF_MEMBER and each[2] >= members for each in script.happenings)
        if not of_others and fails(replace(script, members=members)):
            return replace(script, members=members)
    return script


def held(script: Script, attempts: int, play: Callable[[Script], Result] = run) -> Result:
    """Run a script; fail with what it violates, and with the fewest events that do."""
    result = play(script)
    if result.violation is not None:
        raise AssertionError(f"{result.violation}\n{shrink(script, result.violation.rule, attempts, play)}")
    return result


_OF_MEMBER = frozenset(
    {"kill", "stop", "start", "twin", "remove", "pause", "work", "overwork", "drop", "delay", "refresh", "rack"}
    | {"lose", "refresh_producer"}
    | {"call", "interrupt", "malform"}
)
