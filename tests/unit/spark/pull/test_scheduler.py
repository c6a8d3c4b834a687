"""Splits that are pulled: each is read by one task, every question has one answer, and what can be local is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.spark.pull import scheduler
from rackassign.spark.pull.scheduler import SchedulingStats, SplitScheduler, _apportioned, plan
from rackassign.spark.splits import OffsetRange, Split

RACKS = ("a", "b", "c")


def split(number: int, racks: tuple[str, ...], size: int = 100) -> Split:
    return Split(OffsetRange(TopicPartition("t", number), 0, 10), racks, size, 1)


def striped(count: int) -> list[Split]:
    return [split(number, tuple(sorted({RACKS[number % 3], RACKS[(number + 1) % 3]}))) for number in range(count)]


SPLITS = st.lists(
    st.tuples(st.sets(st.sampled_from(RACKS)), st.integers(0, 1000)).map(
        lambda pair: (tuple(sorted(pair[0])), pair[1])
    ),
    max_size=12,
).map(lambda drawn: [split(number, racks, size) for number, (racks, size) in enumerate(drawn)])
QUESTIONS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*RACKS, "z", None])), max_size=60)


@given(SPLITS, QUESTIONS, st.sampled_from([None, {"a": 2, "b": 1, None: 1}]))
def test_every_split_has_one_task_and_every_question_one_answer(
    splits: list[Split], questions: list[tuple[int, str | None]], slots: dict[str | None, int] | None
) -> None:
    deal = SplitScheduler(splits, 5, slots=slots)
    lists: dict[int, list[Split]] = {task: [] for task in range(5)}
    ended: set[int] = set()
    # The last questions are those of tasks that are run until they have no more.
    for task, rack in [*questions, *((task, "a") for task in range(5) for _ in range(len(splits) + 1))]:
        answer = deal.next_split(task, len(lists[task]), rack)
        assert answer != "wait"
        if answer is None:
            ended.add(task)
        else:
            assert task not in ended
            lists[task].append(answer)
        # Whoever asks again, from wherever, is told the same.
        for number, told in enumerate(lists[task]):
            assert deal.next_split(task, number, "c") == told
    dealt = [each.range.tp.partition for told in lists.values() for each in told]
    assert sorted(dealt) == list(range(len(splits)))
    found = deal.stats()
    assert found.local + found.stolen + found.unknown == sum(each.size for each in splits)
    assert deal.unassigned() == 0


@given(SPLITS, st.integers(1, 3))
def test_with_a_bound_every_split_finds_room(splits: list[Split], each: int) -> None:
    tasks = max(1, -(-len(splits) // each))
    deal = SplitScheduler(splits, tasks, max_splits_per_task=each)
    for task in range(tasks):
        dealt = 0
        while deal.next_split(task, dealt, "b") is not None:
            dealt += 1
        assert dealt <= each
    assert deal.unassigned() == 0


@pytest.mark.parametrize("order", ["abc", "cab", "aabbcc", "abcabc"])
def test_tasks_that_come_evenly_read_all_at_home(order: str) -> None:
    deal = SplitScheduler(striped(12), len(order))
    asked: Counter[int] = Counter()
    while deal.unassigned():
        for task, rack in enumerate(order):
            if deal.next_split(task, asked[task], rack) is not None:
                asked[task] += 1
    assert deal.stats() == SchedulingStats(local=1200)


def test_what_was_seen_before_saves_what_others_need() -> None:
    # Rack a could take all, and b only one of them.
    splits = [split(0, ("a",)), split(1, ("a", "b"))]
    knowing = SplitScheduler(splits, 2, slots={"a": 1, "b": 1})
    first = knowing.next_split(0, 0, "a")
    assert first == splits[0]
    assert knowing.next_split(1, 0, "b") == splits[1]
    assert knowing.stats() == SchedulingStats(local=200)


def test_what_cannot_be_local_is_taken_from_where_most_is_left() -> None:
    splits = [split(0, ("a",), 10), split(1, ("b",), 10), split(2, ("b",), 10)]
    deal = SplitScheduler(splits, 3, slots={"a": 1, "b": 1, "z": 1})
    stolen = deal.next_split(2, 0, "z")
    assert isinstance(stolen, Split)
    assert stolen.racks == ("b",)
    assert deal.stats() == SchedulingStats(stolen=10)
    assert deal.slots() == {"z": 1}


def test_a_task_waits_before_it_steals_and_each_time_anew() -> None:
    now = [0.0]
    splits = [split(number, ("a",)) for number in range(4)]
    deal = SplitScheduler(splits, 2, steal_after_s=5, clock=lambda: now[0])
    assert isinstance(deal.next_split(1, 0, "a"), Split)
    for number in range(2):
        assert deal.next_split(0, number, "b") == "wait"
        now[0] += 4
        assert deal.next_split(0, number, "b") == "wait"
        now[0] += 1
        assert isinstance(deal.next_split(0, number, "b"), Split)
    assert deal.next_split(0, 2, "b") == "wait"
    assert isinstance(deal.next_split(1, 1, "a"), Split)
    assert deal.next_split(0, 2, "b") is None
    assert deal.stats() == SchedulingStats(local=200, stolen=200)


def test_nobody_is_waited_for_who_has_not_come_in_all_that_time() -> None:
    now = [0.0]
    deal = SplitScheduler([split(number, ("a",)) for number in range(9)], 2, steal_after_s=5, clock=lambda: now[0])
    assert deal.next_split(0, 0, "b") == "wait"
    now[0] = 5
    assert all(isinstance(deal.next_split(0, number, "b"), Split) for number in range(8))
    # One comes all the same, and is waited for from then on.
    assert isinstance(deal.next_split(1, 0, "a"), Split)
    assert deal.next_split(1, 1, "a") is None


def test_tasks_that_start_together_do_not_wait_for_a_plan_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, plans = [0.0], 0

    def slow(splits: Mapping[int, Split], readers: Mapping[str | None, int]) -> dict[int, str]:
        nonlocal plans
        plans += 1
        now[0] += 0.3
        return plan(splits, readers)

    monkeypatch.setattr(scheduler, "plan", slow)
    deal = SplitScheduler(striped(400), 200, clock=lambda: now[0])
    # All but one are in one rack, so nearly each of them changes what is expected of the others.
    racks = ["b", *"a" * 199]
    for task, rack in enumerate(racks):
        assert deal.next_split(task, 0, rack) is not None
    assert now[0] < 5
    # The others are planned for as soon as there is time.
    before, now[0] = plans, now[0] + 60
    assert deal.next_split(7, 1, "a") is not None
    assert plans == before + 1
    assert deal.next_split(8, 1, "a") is not None
    assert plans == before + 1


def test_what_is_planned_is_local_and_even() -> None:
    planned = plan(dict(enumerate(striped(12))), {"a": 1, "b": 1, "c": 1})
    assert Counter(planned.values()) == {"a": 4, "b": 4, "c": 4}
    assert all(rack in striped(12)[number].racks for number, rack in planned.items())


def test_questions_that_make_no_sense_are_refused() -> None:
    deal = SplitScheduler(striped(3), 2)
    for task, number in ((2, 0), (-1, 0), (0, 1), (0, -1)):
        with pytest.raises(ConfigError, match="task"):
            deal.next_split(task, number, "a")
    with pytest.raises(ConfigError, match="tasks: 2 are too few for 3 splits"):
        SplitScheduler(striped(3), 2, max_splits_per_task=1)


@given(st.permutations("abc" * 4), st.permutations(range(12)))
def test_as_many_tasks_of_each_rack_read_all_at_home_in_whatever_order_they_come(
    order: list[str], places: list[int]
) -> None:
    splits = [striped(12)[place] for place in places]
    deal = SplitScheduler(splits, 12, max_splits_per_task=1, slots={"a": 4, "b": 4, "c": 4})
    for task, rack in enumerate(order):
        deal.next_split(task, 0, rack)
    assert deal.stats() == SchedulingStats(local=1200)


@given(st.lists(st.sampled_from("abc"), min_size=12, max_size=12))
def test_nearly_all_is_read_at_home_whoever_comes(order: list[str]) -> None:
    deal = SplitScheduler(striped(12), 12, max_splits_per_task=1)
    for task, rack in enumerate(order):
        deal.next_split(task, 0, rack)
    # Of each rack eight are local; more than that nobody could read at home.
    assert deal.stats().stolen <= 100 * (sum(max(0, order.count(rack) - 8) for rack in "abc") + 4)


@given(
    st.dictionaries(st.sampled_from([*RACKS, None]), st.integers(0, 5), min_size=1).filter(
        lambda each: any(each.values())
    ),
    st.dictionaries(st.sampled_from([*RACKS, None, "z"]), st.integers(1, 9)),
    st.integers(0, 60),
)
def test_tasks_that_have_not_come_are_expected_as_if_they_came_one_by_one(
    weights: dict[str | None, int], seen: dict[str | None, int], more: int
) -> None:
    tasks, whole = sum(seen.values()) + more, sum(weights.values())
    found: Counter[str | None] = Counter(seen)
    for _ in range(more):
        lacks = {rack: weights[rack] * tasks - found[rack] * whole for rack in sorted(weights, key=str)}
        found[max(lacks, key=lambda rack: lacks[rack])] += 1
    assert _apportioned(weights, seen, tasks) + Counter(seen) == found
