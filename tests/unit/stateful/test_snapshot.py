"""States that are read beside the member that changes them: in other threads, and in other processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rackassign.model import TopicPartition
from rackassign.stateful import INT, STR, State, StateSnapshot, Store, StoreError, open_state
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.faulty_files import overwrite
from tests.helpers.stateful_consumers import FIRST, drain, give, member

numbers = Store("numbers", INT, STR)


def process(record: Record, state: State) -> None:
    """Keep a pair of values equal in each commit, and many keys besides."""
    for key in (b"left", b"right"):
        state.put(key, b"%d" % record.offset)
    state[numbers].put(record.offset, "x" * 500)


def started(folder: Path, **more: Any) -> Any:
    one = member(folder, **{"process": process, "stores": [numbers], **more})
    give(one, 0)
    drain(one)
    return one


def test_a_snapshot_is_the_last_commit_and_does_not_change(kafka: Kafka, tmp_path: Path) -> None:
    with started(tmp_path) as one:
        kafka.feed(0, 100)
        drain(one)
        with one.state(FIRST) as state:
            assert (state.offsets, state.get(b"left"), state[numbers].get(99)) == ({"t": 100}, b"99", "x" * 500)
            rows = state[numbers].items()
            assert [key for key, _ in islice(rows, 70)] == list(range(70))
            kafka.feed(0, 100)
            drain(one)
            assert [key for key, _ in rows] == list(range(70, 100))
            assert state.get(b"right") == b"99"
        with one.state(("t", 0)) as state:
            assert (state.get(b"right"), state.offsets) == (b"199", {"t": 200})


def test_what_is_not_committed_yet_is_not_in_it(kafka: Kafka, tmp_path: Path) -> None:
    with started(tmp_path, commit_interval_ms=60_000) as one:
        kafka.feed(0, 1)
        drain(one)
        one.commit()
        kafka.feed(0, 5)
        drain(one)
        with one.state(FIRST) as state:
            assert (state.get(b"left"), one.store(FIRST).get(b"left")) == (b"0", b"5")
        one.commit()
        with one.state(FIRST) as state:
            assert state.get(b"left") == b"5"


def test_other_threads_read_whole_commits_while_the_member_works(kafka: Kafka, tmp_path: Path) -> None:
    problems: list[object] = []
    stop = threading.Event()
    reads = [0]

    def read() -> None:
        try:
            while not stop.is_set():
                with one.state(FIRST) as state:
                    last = int(state.get(b"left") or -1)
                    found = (state.get(b"right"), state.offsets.get("t", 0), sum(1 for _ in state[numbers].items()))
                    if found != (b"%d" % last if last >= 0 else None, last + 1, last + 1):
                        problems.append((last, found))
                reads[0] += 1
        except BaseException as error:  # noqa: BLE001 - of a thread
            problems.append(error)

    with started(tmp_path, max_poll_records=3) as one:
        kafka.feed(0, 1)
        drain(one)
        thread = threading.Thread(target=read)
        thread.start()
        try:
            for _ in range(1000):
                kafka.feed(0, 2)
                one.poll(0)
                if reads[0] > 30 and _ > 100:
                    break
        finally:
            stop.set()
            thread.join()
    assert problems == []
    assert reads[0]


def test_another_process_reads_a_state_beside_its_member(kafka: Kafka, tmp_path: Path) -> None:
    text = (
        "import sys; from rackassign.stateful import open_state, Store, INT, STR\n"
        "with open_state(sys.argv[1], ('t', 0), [Store('numbers', INT, STR)]) as state:\n"
        "    print(state.get(b'left'), state.offsets, sum(1 for _ in state['numbers'].items()))\n"
    )
    with started(tmp_path) as one:
        for records in (3, 5):
            kafka.feed(0, records)
            drain(one)
            told = subprocess.run(
                [sys.executable, "-c", text, str(tmp_path)], check=True, capture_output=True, text=True, timeout=300
            )
            end = records if records == 3 else 8
            assert told.stdout.strip() == f"b'{end - 1}' {{'t': {end}}} {end}"
        drain(one)
        assert one.store(FIRST).get(b"left") == b"7"


def test_a_state_is_read_while_no_member_runs_and_left_as_it_is(kafka: Kafka, tmp_path: Path) -> None:
    kafka.feed(0, 4)
    started(tmp_path).close()
    (file,) = tmp_path.glob("*.sqlite")
    before = file.read_bytes()
    for _ in range(2):
        with open_state(tmp_path, FIRST, [numbers]) as state:
            assert state.get(b"left") == b"3"
            assert state.written_ms > 0
            with pytest.raises(StoreError, match="is read here, and changed by its member alone"):
                state.put(b"left", b"0")
            with pytest.raises(StoreError, match="changed by its member alone"):
                state[numbers].delete(1)
    assert file.read_bytes() == before
    with started(tmp_path) as one:
        assert one.store(FIRST).get(b"left") == b"3"


def test_what_cannot_be_read_is_named(kafka: Kafka, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not the state_dir of a StatefulConsumer"):
        open_state(tmp_path, FIRST)
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        open_state(tmp_path / "none", FIRST)
    kafka.feed(0, 2000)
    started(tmp_path).close()
    with pytest.raises(StoreError, match="t-1 has no local state"):
        open_state(tmp_path, TopicPartition("t", 1))
    (file,) = tmp_path.glob("*.sqlite")
    overwrite(file)
    with pytest.raises(StoreError), open_state(tmp_path, FIRST, [numbers]) as state:
        list(state[numbers].items())
    file.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreError, match="cannot be read: file is not a database"):
        open_state(tmp_path, FIRST)
    with started(tmp_path / "2") as one, pytest.raises(StoreError, match="t-7 has no local state"):
        one.state(TopicPartition("t", 7))


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    made = sqlite3.connect(file)
    made.executescript("PRAGMA user_version = 99; CREATE TABLE about (name, value)")
    made.close()
    with pytest.raises(StoreError, match="has format 99, only 4 can be read"):
        StateSnapshot(file, {})


def test_a_reader_delays_no_commit_and_the_log_is_emptied_behind_it(kafka: Kafka, tmp_path: Path) -> None:
    def log_bytes() -> int:
        return (next(tmp_path.glob("*.sqlite-wal"))).stat().st_size

    with started(tmp_path, process=lambda r, state: state.put(b"%d" % r.offset, b"x" * 100_000)) as one:
        kafka.feed(0, 10)
        drain(one)
        with one.state(FIRST) as state:
            for _ in range(10):
                kafka.feed(0, 20)
                drain(one)
            assert log_bytes() > 16 << 20
            assert len(list(state.items())) == 10
        for _ in range(5):
            kafka.feed(0, 20)
            drain(one)
        assert log_bytes() < 8 << 20
        assert len(list(one.store(FIRST).items())) == 310
