"""Whatever storage does in between, at each of its steps: each record counts once, here and in the changelog."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.stateful import StatefulConsumer, StateStore, StoreError
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.faulty_files import FULL, FaultyFiles
from tests.helpers.memory_directory import memory_directory
from tests.helpers.stateful_consumers import FIRST, count, counted, drain, give, member, pause, settle


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which would end the test run if it came where it is not expected."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "full": lambda: sqlite3.OperationalError(FULL),
    "malformed": lambda: sqlite3.DatabaseError("database disk image is malformed"),
    "io": lambda: sqlite3.OperationalError("disk I/O error"),
    "files": lambda: sqlite3.OperationalError("unable to open database file"),
    "interrupt": Interrupted,
}


class Faults:
    """Errors at steps that are counted from now on."""

    def __init__(self) -> None:
        self.at: dict[int, str] = {}
        self.step = 0

    def __call__(self, _: str, __: str) -> BaseException | None:
        self.step += 1
        kind = self.at.pop(self.step, None)
        return None if kind is None else ERRORS[kind]()

    def plan(self, steps: dict[int, str]) -> None:
        self.at, self.step = dict(steps), 0


def process(record: Record, store: StateStore) -> None:
    count(record, store)
    previous = b"%d" % (record.offset - 1)
    if store.get(previous) is not None:
        store.delete(previous)
    store.put(b"%d" % record.offset, b"")
    assert len(list(store.items())) == 2


def expected(records: int) -> dict[bytes, bytes]:
    return {b"%d" % (records - 1): b"", b"n": b"%d" % records} if records else {}


moves = st.lists(
    st.sampled_from(["feed", "pause", "restart", "rebalance", "poll"])
    | st.tuples(
        st.sampled_from(["before", "after"]),
        st.dictionaries(st.integers(1, 40), st.sampled_from(list(ERRORS)), min_size=1, max_size=4),
    ),
    max_size=14,
)


@given(moves)
@settings(max_examples=examples(150), deadline=None)
def test_the_state_is_that_of_the_input(moves: list[str | tuple[str, dict[int, str]]]) -> None:
    fed = [0, 0]
    with pytest.MonkeyPatch.context() as patch, memory_directory() as folder:
        kafka, files = Kafka().installed(patch), FaultyFiles().installed(patch)
        kafka.make("t")
        files.before, files.after = before, after = Faults(), Faults()
        one = started(Path(folder) / "1", Faults())
        for move in [*moves, "feed"]:
            if move == "feed":
                for partition in range(2):
                    kafka.feed(partition, 2)
                    fed[partition] += 2
            elif move == "pause":
                pause(one)
            elif move == "restart":
                # A fault that was planned may come with the end: everything is closed all the same.
                with suppress(Interrupted):
                    one.close()
                one = started(Path(folder) / "1", before)
            elif move == "rebalance":
                give(one, 1)
                drain(one, Interrupted)
                give(one, 0, 1)
            elif isinstance(move, tuple):
                (before if move[0] == "before" else after).plan(move[1])
            settle(one, Interrupted)
        for fault in (before, after):
            fault.plan({})
        settle(one)
        assert [counted(one, partition) for partition in range(2)] == fed
        assert dict(one.store(FIRST).items()) == expected(fed[0])
        assert len(list((Path(folder) / "1").glob("*.damaged"))) <= 2
        one.close()
        other = started(Path(folder) / "2", before)
        settle(other)
        assert dict(other.store(FIRST).items()) == expected(fed[0])
        other.close()


def started(folder: Path, faults: Faults) -> StatefulConsumer:
    """Start a member, again if its files could not be opened."""
    while True:
        try:
            one = member(folder, process=process)
        except (StoreError, Interrupted):
            assert faults.step
            continue
        give(one, 0, 1)
        return one


@pytest.mark.parametrize("step", range(1, 16))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["full", "io"])
def test_a_state_whose_clearing_fails_after_a_pause_is_used_only_once_that_succeeds(
    kafka: Kafka, tmp_path: Path, files: FaultyFiles, step: int, when: str, kind: str
) -> None:
    fault = Faults()
    with member(tmp_path) as one:
        give(one, 0, 1)
        kafka.feed(0, 3)
        kafka.feed(1, 3)
        drain(one)
        pause(one)
        fault.plan({step: kind})
        setattr(files, when, fault)
        kafka.feed(0, 2)
        kafka.feed(1, 2)
        settle(one)
        assert [counted(one, partition) for partition in range(2)] == [5, 5]
    with member(tmp_path / "2") as other:
        give(other, 0, 1)
        settle(other)
        assert [counted(other, partition) for partition in range(2)] == [5, 5]


def test_a_partition_whose_clearing_fails_is_neither_processed_nor_taken_over_and_others_are(
    kafka: Kafka, tmp_path: Path, files: FaultyFiles
) -> None:
    with member(tmp_path) as one:
        give(one, 0, 1)
        kafka.feed(0, 3)
        kafka.feed(1, 3)
        drain(one)
        pause(one)
        files.before = lambda file, text: (
            sqlite3.OperationalError(FULL) if file.startswith("t-0") and text.startswith("BEGIN;") else None
        )
        kafka.feed(0, 2)
        kafka.feed(1, 2)
        settle(one)
        assert {tp.partition for tp in one.active_partitions()} == {1}
        assert FIRST not in one._known.positions
        assert counted(one, 1) == 5
        with pytest.raises(StoreError, match="too old"):
            one.store(FIRST).get(b"n")
        files.before = lambda *_: None
        settle(one)
        assert counted(one) == 5
