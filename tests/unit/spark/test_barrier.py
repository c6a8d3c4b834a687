"""Tasks that run at once and share out splits: what they agree on, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.spark._barrier import announce, assign_splits, first_split, read_barrier, read_together, task_count
from rackassign.spark._splits import OffsetRange, Split


def split(number: int, racks: str, size: int = 100) -> Split:
    return Split(OffsetRange(TopicPartition("t", number), 0, 10), tuple(racks), size, 1)


class Together:
    """Hands texts to all tasks, as a barrier does."""

    def __init__(self, tasks: int) -> None:
        self._texts = [""] * tasks
        self._barrier = threading.Barrier(tasks)

    def of(self, task: int) -> Callable[[str], Sequence[str]]:
        def gather(text: str) -> Sequence[str]:
            self._texts[task] = text
            self._barrier.wait(60)
            texts = list(self._texts)
            self._barrier.wait(60)
            return texts

        return gather


def together(splits: Sequence[Split], racks: Sequence[Callable[[], str | None]]) -> list[list[Split]]:
    meeting = Together(len(racks))
    with ThreadPoolExecutor(len(racks)) as pool:
        tasks = range(len(racks))
        return list(pool.map(lambda task: read_here(splits, task, racks, meeting), tasks))


class Batch(list[Split]):
    nbytes = 1


def read_here(
    splits: Sequence[Split], task: int, racks: Sequence[Callable[[], str | None]], meeting: Together
) -> list[Split]:
    """Read as a task does; what comes of a split is that split, twice."""
    told = announce(splits, task, len(racks), racks[task])

    def rows_of(share: Sequence[Split]) -> Any:
        return iter([Batch([each]) for each in share for _ in range(2)])

    rows: Any = read_together(splits, task, told, meeting.of(task), rows_of)
    read = [each for batch in rows for each in batch]
    assert read[::2] == read[1::2]
    return read[::2]


def test_tasks_agree_on_who_reads_what() -> None:
    splits = [split(number, ("ab", "bc", "ca")[number % 3]) for number in range(12)]
    read = together(splits, [lambda: "a", lambda: "b", lambda: "c", lambda: "c"])
    assert sorted(each.range.tp.partition for share in read for each in share) == list(range(12))
    assert all(rack in each.racks for rack, share in zip("abcc", read, strict=True) for each in share)
    assert sorted(map(len, read)) == [3, 3, 3, 3]


def test_one_task_without_a_rack_that_must_have_one_is_told_by_all() -> None:
    def none() -> str | None:
        raise ConfigError("onMissingRack: fail: NO_RACK is not set on this executor")

    meeting = Together(2)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(read_here, [], task, (none, lambda: "a"), meeting) for task in (0, 1)]
        for each in asked:
            with pytest.raises(ConfigError, match="task 0: onMissingRack: fail: NO_RACK is not set"):
                each.result(60)


def test_large_and_small_splits_are_even_by_bytes() -> None:
    sizes = [900, 100, 100, 100, 100, 100, 100, 100, 100, 100]
    shares = assign_splits([split(number, "a", size) for number, size in enumerate(sizes)], ["a", "a"])
    assert sorted(sum(sizes[number] for number in share) for share in shares) == [900, 900]


def test_what_nobody_has_at_home_is_read_all_the_same() -> None:
    assert assign_splits([], ["a", None]) == [[], []]
    splits = [split(0, "x"), split(1, ""), split(2, "a"), split(3, "a")]
    assert sorted(map(len, assign_splits(splits, ["a", None]))) == [2, 2]
    assert sorted(map(len, assign_splits(splits, [None, None]))) == [2, 2]


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(0, 10**9)), max_size=12),
    st.lists(st.sampled_from([*"abcd", None]), min_size=1, max_size=5),
)
def test_each_split_is_read_once(told: list[tuple[set[str], int]], racks: list[str | None]) -> None:
    splits = [split(number, "".join(sorted(each)), size) for number, (each, size) in enumerate(told)]
    shares = assign_splits(splits, racks)
    assert len(shares) == len(racks)
    assert sorted(number for share in shares for number in share) == list(range(len(splits)))
    assert shares == assign_splits(splits, racks)


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(0, 10**6)), max_size=12),
    st.lists(st.sampled_from([*"abc", None]), min_size=1, max_size=5),
)
def test_what_is_begun_makes_nothing_less_local(told: list[tuple[set[str], int]], racks: list[str | None]) -> None:
    splits = [split(number, "".join(sorted(each)), size) for number, (each, size) in enumerate(told)]

    def local(shares: list[list[int]]) -> int:
        return sum(
            splits[n].size for rack, share in zip(racks, shares, strict=True) for n in share if rack in splits[n].racks
        )

    begins = [first_split(splits, task, len(racks), rack) for task, rack in enumerate(racks)]
    begun = {task: number for task, number in enumerate(begins) if number is not None}
    assert len(set(begun.values())) == len(begun)
    shares = assign_splits(splits, racks, begun)
    assert sorted(number for share in shares for number in share) == list(range(len(splits)))
    assert local(shares) >= local(assign_splits(splits, racks))
    read = together(splits, [lambda rack=rack: rack for rack in racks])  # type: ignore[misc]
    assert sorted(each.range.tp.partition for share in read for each in share) == list(range(len(splits)))


def test_what_was_begun_in_vain_is_given_up() -> None:
    # Task 0 begins with what only task 1 could read at home besides; its own other one is no worse for it.
    splits = [split(0, "ac"), split(1, "x"), split(2, "ab")]
    assert first_split(splits, 0, 2, "a") == 0
    read = together([splits[0], splits[2]], [lambda: "a", lambda: "c"])
    assert [[each.range.tp.partition for each in share] for share in read] == [[2], [0]]


def test_too_few_slots_are_told_after_waiting_for_more() -> None:
    with pytest.raises(
        ConfigError, match="tasks: 3 tasks have to run at the same time, but there are 2 slots; use fewer"
    ):
        task_count(3, lambda: 2, timeout_s=0)
    with pytest.raises(ConfigError, match="tasks: 1 tasks have to run at the same time, but there are 0 slots"):
        task_count(0, lambda: 0, timeout_s=0)
    with pytest.raises(ConfigError, match="tasks: must be set"):
        task_count(0, lambda: None)
    come = iter((0, 1, 3))
    assert task_count(3, lambda: next(come), timeout_s=60) == 3
    assert (task_count(0, lambda: 4), task_count(2, lambda: 4), task_count(7, lambda: None)) == (4, 2, 7)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"columns": "value"}, 'columns: expected a list of names, got "value"'),
        ({"tasks": "four"}, "tasks: expected a whole number"),
        ({"tasks": 0}, "tasks: expected a whole number from 1"),
        ({"tasks": 1.5}, "tasks: expected a whole number"),
    ],
)
def test_arguments_of_another_type_are_named(more: dict[str, Any], told: str) -> None:
    spark: Any = object()
    with pytest.raises(ConfigError, match=told):
        read_barrier(spark, {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, **more)
