"""What must hold of every history, whatever was done to the group."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rackassign.model import TopicPartition
from tests.helpers.machine_speed import scaled_s

from .effects import SESSION_S, rebalances, unexplained, unexplained_losses
from .history import Acked, Batch, Calm, Died, Dropped, Failed, Given, History, Note, Played, Result, Seen
from .schedule import TOPICS, Kind

SETTLE_S = scaled_s(30.0)
"""After all faults are undone the group comes to rest within this: a session for those that are gone, 13 s for the last
rebalance that moved replicas may ask for, two rounds of each; what is left is for a busy machine."""

STARTED_S = 600.0
"""The members have begun their work within this: a guard against hanging, since how long so many processes take to
start is a matter of the machine."""

QUIET_S = SESSION_S + scaled_s(2.0)
"""A group that has come to rest must be seen at rest for so long: whoever is still taken for a member would have been
put out meanwhile."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be: which rule is broken, and by what."""

    rule: str
    what: str


Rules = Mapping[str, Callable[[History], Iterator[str]]]
"""Their names, and what yields all that breaks them."""


def check(history: History, rules: Rules) -> list[Violation]:
    """Return all that is wrong with a history."""
    return [Violation(rule, what) for rule, broken in rules.items() for what in broken(history)]


def lost_records(history: History) -> Iterator[str]:
    """Every record that was acknowledged is processed at least once, and is the one that was sent."""
    processed: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for _, batch in history.of_members(Batch):
        processed[batch.place].update(zip(range(batch.first, batch.last + 1), batch.numbers, strict=False))
    missing: dict[TopicPartition, list[int]] = defaultdict(list)
    for acked in history.of(Acked):
        number = processed[acked.place].get(acked.offset)
        if number is None:
            missing[acked.place].append(acked.offset)
        elif number != acked.number:
            yield f"{_name(acked.place)} at {acked.offset}: {acked.number} was sent and {number} processed"
    for place, offsets in sorted(missing.items()):
        yield f"{_name(place)}: {len(offsets)} records, from {min(offsets)} to {max(offsets)}"


def two_owners(history: History) -> Iterator[str]:
    """In one generation no partition is given to two members."""
    owners: dict[tuple[int, TopicPartition], set[str]] = defaultdict(set)
    for name, given in history.of_members(Given):
        for place in given.owned:
            owners[given.generation, place].add(name)
    for (generation, place), names in sorted(owners.items()):
        if len(names) > 1:
            yield f"generation {generation}: {_name(place)} is owned by {' and '.join(sorted(names))}"


def skipped_records(history: History) -> Iterator[str]:
    """As long as a member has a partition it goes from offset to offset, and begins where somebody has been."""
    reached: dict[TopicPartition, int] = {}
    steps = [(*step, name) for name, notes in history.members.items() for step in _steps(notes)]
    for batch, owned, expected, name in sorted(steps, key=lambda step: step[0].at):
        begin = f"{name}, {_name(batch.place)} from {batch.first}"
        if not owned:
            yield f"{begin}: it does not have this partition"
        elif expected is not None and batch.first != expected:
            yield f"{begin}: {expected} was next"
        elif batch.first > reached.get(batch.place, 0):
            yield f"{begin}: nobody has been further than {reached.get(batch.place, 0)}"
        if len(batch.numbers) != batch.last - batch.first + 1:
            yield f"{begin}: {len(batch.numbers)} records up to {batch.last}"
        reached[batch.place] = max(batch.last + 1, reached.get(batch.place, 0))


def _steps(notes: Iterable[Note]) -> Iterator[tuple[Batch, bool, int | None]]:
    """Yield batches: whether the member has the partition, and which offset is next in its tenure; None: it begins."""
    tenures: dict[TopicPartition, int | None] = {}
    for entry in notes:
        if isinstance(entry, Given):
            tenures = {place: tenures.get(place) for place in entry.owned}
        elif isinstance(entry, Dropped):
            for place in entry.places:
                tenures.pop(place, None)
        elif isinstance(entry, Batch):
            yield entry, entry.place in tenures, tenures.get(entry.place)
            if entry.place in tenures:
                tenures[entry.place] = entry.last + 1


def unsettled(history: History) -> Iterator[str]:
    """After the last fault every partition has one owner in the end, and nothing changes any more."""
    calm = history.of(Calm)
    if not calm:
        yield "the faults were never undone"
        return
    seen = _seen_in_calm(history)
    last = seen[-1].given if seen else None
    if last is None:
        yield "the group is not stable at the end"
        return
    counts = Counter(place for owned in last.values() for place in owned)
    for place in sorted(everything(history) | set(counts)):
        if counts[place] != 1:
            yield f"{_name(place)} has {counts[place]} owners at the end"
    own = dict(_own_view(name, history.members.get(name, ())) for name in calm[-1].names)
    given = {member_id: tuple(sorted(owned)) for member_id, owned in last.items()}
    for member_id in sorted(own.keys() | given.keys()):
        if own.get(member_id) != given.get(member_id):
            yield f"{member_id} has {_names(own.get(member_id))}, the coordinator says {_names(given.get(member_id))}"
    since = _rest(history, seen)
    if seen[-1].at - since < QUIET_S:
        yield f"the group was seen at rest for {seen[-1].at - since:.1f} s only"


def late(history: History) -> Iterator[str]:
    """The group comes to rest in time after the last fault; before the first one, those who run a schedule wait."""
    starts = [each.began for each in history.of(Played) if each.event.kind is Kind.MEMBER_START]
    faults = [each.began for each in history.of(Played) if each.event.kind is not Kind.MEMBER_START]
    if starts and faults and min(faults) - min(starts) > STARTED_S:
        yield f"the members took {min(faults) - min(starts):.1f} s to begin their work"
    calm = history.of(Calm)
    seen = _seen_in_calm(history)
    if seen and (since := _rest(history, seen)) - calm[-1].at > SETTLE_S:
        yield f"the group came to rest {since - calm[-1].at:.1f} s after the last fault"


def _seen_in_calm(history: History) -> list[Seen]:
    begin = min((calm.at for calm in history.of(Calm)), default=float("inf"))
    return [look for look in history.of(Seen) if look.at >= begin]


def _rest(history: History, seen: list[Seen]) -> float:
    """Return the time from which on nothing changed."""
    since = seen[-1].at
    for look in reversed(seen):
        if look.given != seen[-1].given:
            break
        since = look.at
    return max([since, *(rebalance.at for rebalance in rebalances(history)[-1:])])


def _own_view(name: str, notes: Iterable[Note]) -> tuple[str, tuple[TopicPartition, ...]]:
    """Return the member ID of a process, and what it believes to have."""
    member_id, owned = name, set[TopicPartition]()
    for entry in notes:
        if isinstance(entry, Given):
            member_id, owned = entry.member_id, set(entry.owned)
        elif isinstance(entry, Dropped):
            owned -= set(entry.places)
    return member_id, tuple(sorted(owned))


def everything(history: History) -> set[TopicPartition]:
    """Return all partitions there are at the end."""
    added = [each.event for each in history.of(Played) if each.event.kind is Kind.PARTITION_ADD]
    first = {TopicPartition(topic, number) for topic, replicas in TOPICS.items() for number in range(len(replicas))}
    return first | {TopicPartition(event.target, event.partition) for event in added}


def needless_rebalances(history: History) -> Iterator[str]:
    """Every rebalance has a cause in the schedule."""
    begin = min((each.began for each in history.of(Played)), default=0.0)
    for rebalance in unexplained(history):
        idle = ", in which nothing changed" if rebalance.idle else ""
        yield f"generation {rebalance.generation}, {rebalance.at - begin:.1f} s after the start{idle}"


def needless_losses(history: History) -> Iterator[str]:
    """Nobody is put out of the group but for a silence in the schedule: its own, or a broker's."""
    begin = min((each.began for each in history.of(Played)), default=0.0)
    for name, at in unexplained_losses(history):
        yield f"{name}, {at - begin:.1f} s after the start"


def errors(history: History) -> Iterator[str]:
    """No member ends but as it was told to, and nothing is raised out of a consumer."""
    # The whole tracebacks are in the history.
    said = Counter((name, failed.error.strip().rpartition("\n")[2]) for name, failed in history.of_members(Failed))
    for (name, error), count in said.items():
        yield f"{name}, {count} times: {error}"
    for died in history.of(Died):
        yield f"{died.name} ended with {died.code}"


def lost_results(history: History) -> Iterator[str]:
    """Readers of committed records see a result of each record."""
    expected, found = _results(history)
    yield from _counted(expected - found)


def repeated_results(history: History) -> Iterator[str]:
    """They see no other one."""
    expected, found = _results(history)
    yield from _counted(found - expected)


def misnumbered_results(history: History) -> Iterator[str]:
    """A state that counts the records of each partition gives the numbers that counting each of them once gives."""
    found = Counter(each.number for each in history.of(Result) if each.committed and each.number is not None)
    sizes = Counter(acked.place for acked in history.of(Acked)).values()
    expected = Counter(number for size in sizes for number in range(1, size + 1))
    if found:
        yield from _counted((found - expected) + (expected - found))


def _results(history: History) -> tuple[Counter[str], Counter[str]]:
    """Return how often there should be each result, and how often readers of committed records see it."""
    expected = Counter(f"RECORD-{acked.number}" for acked in history.of(Acked))
    return expected, Counter(each.value for each in history.of(Result) if each.committed)


def _counted(wrong: Counter[Any]) -> Iterator[str]:
    if wrong:
        yield f"{wrong.total()}, among them {', '.join(map(str, [*wrong][:5]))}"


RULES: Rules = {
    "lost records": lost_records,
    "two owners": two_owners,
    "skipped records": skipped_records,
    "unsettled": unsettled,
    "late": late,
    "needless rebalance": needless_rebalances,
    "needless loss": needless_losses,
    "error": errors,
}
"""Of a group whose members note what they do."""

RESULT_RULES: Rules = {
    "lost results": lost_results,
    "repeated results": repeated_results,
    "misnumbered results": misnumbered_results,
}
"""Of members that write results in transactions."""

TIMED = frozenset({"late"})
"""Rules about how long something took: on a busy machine they are broken although nothing is wrong."""


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def _names(places: tuple[TopicPartition, ...] | None) -> str:
    return "nothing" if places is None else ", ".join(map(_name, places)) or "no partition"
