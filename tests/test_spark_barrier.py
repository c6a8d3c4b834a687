"""Tasks that run at once and share out splits: what they agree on, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.spark.barrier import agreed, room, shared_out
from rackassign.spark.ranges import Range, Split


def split(number: int, racks: str, size: int = 100) -> Split:
    return Split(Range(TopicPartition("t", number), 0, 10), tuple(racks), size, 1)


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
        return list(pool.map(lambda task: agreed(splits, task, racks[task], meeting.of(task)), tasks))


def test_tasks_agree_on_who_reads_what() -> None:
    splits = [split(number, ("ab", "bc", "ca")[number % 3]) for number in range(12)]
    read = together(splits, [lambda: "a", lambda: "b", lambda: "c", lambda: "c"])
    assert sorted(each.range.place.partition for share in read for each in share) == list(range(12))
    assert all(rack in each.racks for rack, share in zip("abcc", read, strict=True) for each in share)
    assert sorted(map(len, read)) == [3, 3, 3, 3]


def test_one_task_without_a_rack_that_must_have_one_is_told_by_all() -> None:
    def none() -> str | None:
        raise ConfigError("unknownRack: fail: NO_RACK is not set on this executor")

    meeting = Together(2)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(agreed, [], task, (none, lambda: "a")[task], meeting.of(task)) for task in (0, 1)]
        for each in asked:
            with pytest.raises(ConfigError, match="task 0: unknownRack: fail: NO_RACK is not set"):
                each.result(60)


def test_large_and_small_splits_are_even_by_bytes() -> None:
    sizes = [900, 100, 100, 100, 100, 100, 100, 100, 100, 100]
    shares = shared_out([split(number, "a", size) for number, size in enumerate(sizes)], ["a", "a"])
    assert sorted(sum(sizes[number] for number in share) for share in shares) == [900, 900]


def test_what_nobody_has_at_home_is_read_all_the_same() -> None:
    assert shared_out([], ["a", None]) == [[], []]
    splits = [split(0, "x"), split(1, ""), split(2, "a"), split(3, "a")]
    assert sorted(map(len, shared_out(splits, ["a", None]))) == [2, 2]
    assert sorted(map(len, shared_out(splits, [None, None]))) == [2, 2]


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(0, 10**9)), max_size=12),
    st.lists(st.sampled_from([*"abcd", None]), min_size=1, max_size=5),
)
def test_each_split_is_read_once(told: list[tuple[set[str], int]], racks: list[str | None]) -> None:
    splits = [split(number, "".join(sorted(each)), size) for number, (each, size) in enumerate(told)]
    shares = shared_out(splits, racks)
    assert len(shares) == len(racks)
    assert sorted(number for share in shares for number in share) == list(range(len(splits)))
    assert shares == shared_out(splits, racks)


def test_too_few_slots_are_told_after_waiting_for_more() -> None:
    with pytest.raises(ConfigError, match="tasks: 3 must run at once, and there is room for 2; take fewer"):
        room(3, lambda: 2, patience_s=0)
    with pytest.raises(ConfigError, match="tasks: 1 must run at once, and there is room for 0"):
        room(0, lambda: 0, patience_s=0)
    with pytest.raises(ConfigError, match="tasks: expected how many"):
        room(0, lambda: None)
    come = iter((0, 1, 3))
    assert room(3, lambda: next(come), patience_s=60) == 3
    assert (room(0, lambda: 4), room(2, lambda: 4), room(7, lambda: None)) == (4, 2, 7)
