"""Quality over hundreds of changes, each planned from the result of the last: `python -m benchmarks.long_run`.

A sticky assignor starts from its earlier result. If it does not restore what a change has made cross-rack, locality
falls a little with each change, for the lifetime of the group.

Two brokers in each of three racks, partitions with one and two replicas. Members join and leave, also a whole rack of
them with its brokers; replicas are moved, and topics grow. The steps do not depend on the assignor, so all assignors
are compared on the same steps: rackassign, kafka-python's own, and Java's.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from rich.console import Console

from benchmarks.leader_join import cluster_of
from benchmarks.quality import Quality, count, readable, unevenness
from benchmarks.tables import Sheet, show, write_markdown
from rackassign.model import BalanceMode, Broker, Group, Member, Partition, Partitions, Topology
from rackassign.scenario import write_group
from rackassign.strategies import Options, plan_cooperative
from tests.helpers.java.assignor_peer import JavaPeer, JavaRaisedError, NoJdkError, PeerLostError

if TYPE_CHECKING:
    from typing_extensions import Self


RACKS = ("a", "b", "c")
BROKERS = {broker: RACKS[broker % len(RACKS)] for broker in range(2 * len(RACKS))}
FEWEST, MOST = 4, 16
"""Members, while all racks are up."""

COPARTITIONED = ("topic0", "topic1", "topic3")
"""Topics that `keep_together` keeps together."""

RACKLESS = 0.05
"""Of the members that join."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happened, and what there is now."""

    what: str
    group: Group


def keep_together(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps with three topics co-partitioned, whose numbers of partitions differ while one of them grows."""
    for step in steps:
        yield replace(step, group=replace(step.group, copartition=(COPARTITIONED,)))


class Churn:
    """The history of one cluster and one group."""

    def __init__(self, seed: int, *, mixed: bool, topics: int = 6, partitions: int = 16) -> None:
        self._chance = random.Random(seed)
        self._mixed = mixed
        self._copies = {f"topic{i}": 1 + i % 2 for i in range(topics)}
        self._replicas = {
            name: [self._placed(copies) for _ in range(self._chance.randint(partitions // 2, partitions))]
            for name, copies in self._copies.items()
        }
        self._down: str | None = None
        self._lost: list[Member] = []
        self._born = 0
        self._members: list[Member] = []
        for _ in range((FEWEST + MOST) // 2):
            self._join()

    def steps(self, count: int) -> Iterator[Step]:
        """Yield the start and then so many changes."""
        yield Step("start", self._group())
        for _ in range(count):
            yield Step(self._change(), self._group())

    def _group(self) -> Group:
        up = {broker for broker, rack in BROKERS.items() if rack != self._down}
        # A broker that is down is gone from the metadata with its rack, and another copy leads if there is one.
        topics = {
            name: tuple(Partition(r, next((b for b in r if b in up), None)) for r in replicas)
            for name, replicas in self._replicas.items()
        }
        return Group(Topology(tuple(Broker(b, BROKERS[b]) for b in sorted(up)), topics), tuple(self._members))

    def _change(self) -> str:
        kinds = {"join": 25, "leave": 25, "restart": 10, "replicas move": 20, "growth": 10, "rack": 10}
        kind = self._chance.choices(list(kinds), list(kinds.values()))[0]
        if kind == "rack":
            return self._rack()
        if kind in {"join", "leave"}:
            # At either end the other thing happens.
            if len(self._members) >= MOST or (kind == "leave" and len(self._members) > FEWEST):
                self._leave()
                return "leave"
            self._join()
            return "join"
        if kind == "restart":
            left = self._leave()
            self._join(like=left)
        elif kind == "replicas move":
            replicas = self._replicas[name := self._chance.choice(list(self._replicas))]
            for partition in self._chance.sample(range(len(replicas)), self._chance.randint(1, len(replicas))):
                replicas[partition] = self._placed(self._copies[name])
        else:
            name = self._chance.choice(list(self._replicas))
            self._replicas[name] += [self._placed(self._copies[name]) for _ in range(self._chance.randint(1, 3))]
        return kind

    def _rack(self) -> str:
        if self._down is not None:
            self._down = None
            for member in self._lost:
                self._join(like=member)
            return "rack back"
        down = self._chance.choice(RACKS)
        left = [member for member in self._members if member.rack != down]
        if not left:
            self._join()
            return "join"
        self._lost = [member for member in self._members if member.rack == down]
        self._down, self._members = down, left
        return "rack loss"

    def _join(self, like: Member | None = None) -> None:
        self._born += 1
        member = f"member{self._born:04}"
        if like is not None:
            # A new process of the same sort, which knows nothing of the old one.
            self._members.append(replace(like, id=member))
            return
        racks = [rack for rack in RACKS if rack != self._down]
        rack = None if self._chance.random() < RACKLESS else self._chance.choice(racks)
        self._members.append(Member(member, self._read(), rack))

    def _leave(self) -> Member:
        return self._members.pop(self._chance.randrange(len(self._members)))

    def _read(self) -> frozenset[str]:
        names = list(self._replicas)
        if not self._mixed:
            return frozenset(names)
        if self._chance.random() < 0.5:
            # Half of them are instances of one of two applications.
            return frozenset(names[::2] if self._chance.random() < 0.5 else names[: len(names) // 2])
        return frozenset(self._chance.sample(names, self._chance.randint(1, len(names))))

    def _placed(self, copies: int) -> tuple[int, ...]:
        racks = self._chance.sample(RACKS, copies)
        return tuple(self._chance.choice([b for b, on in BROKERS.items() if on == rack]) for rack in racks)


TIMEOUT_S = 20.0
"""Java's general builder may go round in circles for ever."""


class NoAnswerError(Exception):
    """The assignor raised, or did not come to an end."""


class Leader(Protocol):
    """Decides for a group."""

    name: str
    # Whether members keep what they own while they join, and what moves is withheld first.
    cooperative: bool

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Return what each member gets in this rebalance.

        Raises:
            NoAnswerError: There is no answer.
        """


class Ours:
    """`plan_cooperative`."""

    cooperative = True

    def __init__(self, options: Options | None = None, kind: str = "") -> None:
        self._options = options or Options()
        self.name = f"rackassign cooperative-sticky{kind}"

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Plan."""
        return plan_cooperative(group, self._options).assignment


class KafkaPython:
    """An assignor of kafka-python: told of each member's last assignment, then asked, as its coordinator does it."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.name = f"kafka-python {kind.name}"
        self.cooperative = kind is CooperativeStickyAssignor

    @classmethod
    def both(cls) -> tuple[KafkaPython, KafkaPython]:
        """Return the cooperative and the eager one."""
        return cls(CooperativeStickyAssignor), cls(StickyPartitionAssignor)

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Send all joins over the wire and let the leader decide."""
        joined = []
        for member in group.members:
            assignor = self._kind()
            if member.generation is not None:
                owned = [(topic, list(ids)) for topic, ids in member.owned.items()]
                # Version 3 has all the fields there are.
                assignor.on_assignment(ConsumerProtocolAssignment(3, owned, b""), member.generation)
            sent = ConsumerProtocolSubscription.decode(assignor.metadata(sorted(member.topics)).encode())
            joined.append(
                JoinGroupResponse.JoinGroupResponseMember(member_id=member.id, group_instance_id=None, metadata=sent)
            )
        decided = self._kind().assign(cluster_of(group.topology), joined)
        return {
            member: {topic: tuple(sorted(ids)) for topic, ids in answer.assigned_partitions}
            for member, answer in decided.items()
        }


class Java:
    """Kafka's `CooperativeStickyAssignor`. For a `with` block."""

    name = "Java cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._peer: JavaPeer | None = None

    def __enter__(self) -> Self:
        self._peer = JavaPeer().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._peer is not None:
            self._peer.__exit__()
            self._peer = None

    def assign(self, group: Group) -> Mapping[str, Partitions]:
        """Ask; a JVM that gives no answer is replaced."""
        if self._peer is None:
            self._peer = JavaPeer().__enter__()
        try:
            return self._peer.assign(write_group(group), "cooperative-sticky", timeout_s=TIMEOUT_S).assignment
        except JavaRaisedError as error:
            raise NoAnswerError(str(error)) from None
        except PeerLostError as error:
            self.__exit__()
            raise NoAnswerError(str(error)) from None


STEPS = 500
SEED = 2026
MOST_REBALANCES = 10

OPTIONS: tuple[tuple[BalanceMode, bool], ...] = (("topic", False), ("total", True), ("topic", True))
"""Options that the other assignors lack: what is balanced, and whether there are co-partitioned topics."""

HEADINGS = (
    "assignor",
    "cross beyond the optimum: mean",
    "worst",
    "first fifth",
    "last fifth",
    "moves",
    "needed",
    "less even, steps",
    "rebalances: mean",
    "most",
    "not settled",
    "unowned",
    "no answer",
)


@dataclass(frozen=True, slots=True)
class Settled:
    """How a step ended."""

    what: str
    before: Group
    after: Mapping[str, Partitions]
    quality: Quality
    best: Quality
    rebalances: int
    settled: bool
    # Partitions that nobody has after it.
    unowned: int
    less_even: bool
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Decay:
    """All steps of one assignor, summed up."""

    name: str
    mean: float
    worst: int
    early: float
    late: float
    moves: int
    needed: int
    # Steps after which loads were less even than they could be.
    uneven: int
    rebalances: float
    most: int
    # Steps that had not ended after `MOST_REBALANCES`.
    unsettled: int
    # Most partitions that nobody had after a step.
    unowned: int
    # Steps in which the assignor gave no answer.
    unanswered: int

    def row(self) -> tuple[str, ...]:
        """Spell it out as the table shows it."""
        return tuple(f"{value:.2f}" if isinstance(value, float) else str(value) for value in asdict(self).values())


def lived_through(leader: Leader, steps: Iterable[Step], options: Options | None = None) -> list[Settled]:
    """Let a leader settle one change after the other, each from where the last one ended."""
    # `options`: of the optimum that each step is held against; the defaults if omitted.
    done: list[Settled] = []
    owned: Mapping[str, Partitions] = {}
    generation = 0
    for step in steps:
        settled = settle(leader, step, owned, generation, options or Options())
        generation += settled.rebalances
        owned = settled.after
        done.append(settled)
    return done


def settle(leader: Leader, step: Step, owned: Mapping[str, Partitions], generation: int, options: Options) -> Settled:
    """Rebalance until nobody has to give anything up any more."""
    before = now = owning(step.group, owned, generation)
    moved = rounds = 0
    settled = False
    while not settled and rounds < MOST_REBALANCES:
        try:
            given = leader.assign(now)
        except NoAnswerError:
            break
        rounds += 1
        given_up = Quality.of(now, given).moves
        moved += given_up
        # A cooperative member that must give something up joins again when it has; an eager one has it all anew.
        settled = given_up == 0 or not leader.cooperative
        now = owning(step.group, given, generation + rounds)
    after = {member.id: member.owned for member in now.members}
    plan = plan_cooperative(before, options)
    even, best_even = (unevenness(before, given, options.balance) for given in (after, plan.target))
    return Settled(
        what=step.what,
        before=before,
        after=after,
        quality=replace(Quality.of(before, after), moves=moved),
        best=Quality.of(before, plan.target),
        rebalances=rounds,
        settled=settled,
        unowned=readable(before) - count(after),
        less_even=even > best_even,
        answered=settled or rounds == MOST_REBALANCES,
    )


def owning(group: Group, owned: Mapping[str, Partitions], generation: int) -> Group:
    """Return the group as its members join; those that were not there before own nothing and know no generation."""

    def joining(member: Member) -> Member:
        if member.id not in owned:
            return member
        return replace(member, owned=owned[member.id], generation=generation)

    return replace(group, members=tuple(joining(member) for member in group.members))


def summed_up(name: str, done: Sequence[Settled]) -> Decay:
    """Sum up all steps but the start, which nobody had to be sticky in."""
    steps = done[1:]
    beyond = [step.quality.cross - step.best.cross for step in steps]
    fifth = max(1, len(steps) // 5)
    return Decay(
        name=name,
        mean=sum(beyond) / len(beyond),
        worst=max(beyond),
        early=sum(beyond[:fifth]) / fifth,
        late=sum(beyond[-fifth:]) / fifth,
        moves=sum(step.quality.moves for step in steps),
        needed=sum(step.best.moves for step in steps),
        uneven=sum(step.less_even for step in steps),
        rebalances=sum(step.rebalances for step in steps) / len(steps),
        most=max(step.rebalances for step in steps),
        unsettled=sum(not step.settled and step.answered for step in steps),
        unowned=max(step.unowned for step in steps),
        unanswered=sum(not step.answered for step in steps),
    )


def _with_options(balance: BalanceMode, *, together: bool) -> Ours:
    kind = ', balance="topic"' if balance == "topic" else ""
    return Ours(Options(balance=balance), kind + (", co-partitioned" if together else ""))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_run", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="changes (%(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of all that happens (%(default)s)")
    parser.add_argument("--no-java", action="store_true", help="without Java's assignor")
    parser.add_argument("--json", metavar="FILE", type=Path, help="for machines")
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="the document to write the tables into, between its marks"
    )
    options = parser.parse_args()
    sheets: list[Sheet] = []
    result: dict[str, list[dict[str, object]]] = {}
    progress = Console(stderr=True)
    with ExitStack() as held, progress.status("") as status:
        leaders: list[Leader] = [Ours(), *KafkaPython.both()]
        missing = ""
        if not options.no_java:
            try:
                leaders.append(held.enter_context(Java()))
            except NoJdkError as error:
                missing = f"; no Java: {error}"
        for mixed in (False, True):
            kind = "mixed subscriptions" if mixed else "equal subscriptions"
            rows: list[Decay] = []
            for leader in leaders:
                status.update(f"{kind}: {leader.name}")
                history = Churn(options.seed, mixed=mixed).steps(options.steps)
                rows.append(summed_up(leader.name, lived_through(leader, history)))
            # Mixed subscriptions have parts of the co-partitioned topics, which are not kept together then.
            for balance, together in [option for option in OPTIONS if not (mixed and option[1])]:
                ours = _with_options(balance, together=together)
                status.update(f"{kind}: {ours.name}")
                history = Churn(options.seed, mixed=mixed).steps(options.steps)
                history = keep_together(history) if together else history
                rows.append(summed_up(ours.name, lived_through(ours, history, Options(balance=balance))))
            result[kind] = [asdict(row) for row in rows]
            sheets.append(Sheet(f"{options.steps} changes, {kind}{missing}", HEADINGS, [row.row() for row in rows]))
    show(sheets)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    if options.markdown is not None:
        write_markdown(options.markdown, "decay", sheets)


if __name__ == "__main__":
    main()
