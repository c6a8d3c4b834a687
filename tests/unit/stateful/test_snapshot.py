"""States that are read beside the member that changes them: in other threads, and in other processes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

from rackassign.model import TopicPartition
from rackassign.stateful import INT, STR, State, StateSnapshot, Store, StoreError, open_state
from rackassign.stateful._state_directory import StateDirectory
from tests.helpers.faulty_files import overwrite
from tests.helpers.tasks import Record, Task

numbers = Store("numbers", INT, STR)


def process(record: Record, state: State) -> None:
    """Keep a pair of values equal in each commit, and many keys besides."""
    for key in (b"left", b"right"):
        state.put(key, b"%d" % record.offset)
    state[numbers].put(record.offset, "x" * 500)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    folder = StateDirectory(tmp_path)
    folder.open_existing({"t": "id"})
    folder.open(TopicPartition("t", 0)).close()
    folder.close()
    (file,) = tmp_path.glob("*.sqlite")
    return Task(file, process, [numbers])


def feed(task: Task, number: int, *, commits: bool = True) -> None:
    start = task.run.next_offset("t")
    task.play([Record(start + each) for each in range(number)], commits=commits)


def shown(task: Task) -> StateSnapshot:
    return StateSnapshot(task.file.file, {"numbers": numbers})


def test_a_snapshot_is_the_last_commit_and_does_not_change(task: Task) -> None:
    feed(task, 100)
    with shown(task) as state:
        assert (state.offsets, state.time_ms, state.get(b"left"), state[numbers].get(99)) == (
            *({"t": 100}, -1),
            *(b"99", "x" * 500),
        )
        rows = state[numbers].items()
        assert [key for key, _ in islice(rows, 70)] == list(range(70))
        feed(task, 100)
        assert [key for key, _ in rows] == list(range(70, 100))
        assert state.get(b"right") == b"99"
    feed(task, 5, commits=False)
    with shown(task) as state:
        assert (state.get(b"right"), state.offsets, task.state.get(b"right")) == (b"199", {"t": 200}, b"204")


def test_other_threads_read_whole_commits_while_the_member_works(task: Task) -> None:
    problems: list[object] = []
    stop = threading.Event()
    reads = 0

    def read() -> None:
        nonlocal reads
        try:
            while not stop.is_set():
                with shown(task) as state:
                    last = int(state.get(b"left") or -1)
                    found = (state.get(b"right"), state.offsets.get("t", 0), sum(1 for _ in state[numbers].items()))
                    if found != (b"%d" % last if last >= 0 else None, last + 1, last + 1):
                        problems.append((last, found))
                reads += 1
        except BaseException as error:  # noqa: BLE001 - of a thread
            problems.append(error)

    feed(task, 1)
    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number in range(1000):
            feed(task, 2)
            if reads > 30 and number > 100:
                break
    finally:
        stop.set()
        thread.join()
    assert problems == []
    assert reads


def test_another_process_reads_a_state_beside_its_member(task: Task, tmp_path: Path) -> None:
    text = (
        "import sys; from rackassign.stateful import open_state, Store, INT, STR\n"
        "with open_state(sys.argv[1], ('t', 0), [Store('numbers', INT, STR)]) as state:\n"
        "    print(state.get(b'left'), state.offsets, sum(1 for _ in state['numbers'].items()))\n"
    )
    feed(task, 3)
    told = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)], check=True, capture_output=True, text=True, timeout=300
    )
    assert told.stdout.strip() == "b'2' {'t': 3} 3"
    feed(task, 5)
    assert task.state.get(b"left") == b"7"


def test_a_state_is_read_while_no_member_runs_and_left_as_it_is(task: Task, tmp_path: Path) -> None:
    feed(task, 4)
    task.file.close()
    (file,) = tmp_path.glob("*.sqlite")
    before = file.read_bytes()
    for _ in range(2):
        with open_state(tmp_path, ("t", 0), [numbers]) as state:
            assert state.get(b"left") == b"3"
            assert state.written_ms > 0
            with pytest.raises(StoreError, match="is read here, and changed by its member alone"):
                state.put(b"left", b"0")
            with pytest.raises(StoreError, match="changed by its member alone"):
                state[numbers].delete(1)
    assert file.read_bytes() == before


def test_what_cannot_be_read_is_named(task: Task, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(StoreError, match="is not the state_dir of a StatefulConsumer"):
        open_state(other, ("t", 0))
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        open_state(tmp_path / "none", ("t", 0))
    feed(task, 2000)
    task.file.close()
    with pytest.raises(StoreError, match="t-1 has no local state"):
        open_state(tmp_path, ("t", 1))
    (file,) = tmp_path.glob("*.sqlite")
    overwrite(file)
    with pytest.raises(StoreError), open_state(tmp_path, ("t", 0), [numbers]) as state:
        list(state[numbers].items())
    file.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreError, match="cannot be read: file is not a database"):
        open_state(tmp_path, ("t", 0))


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    made = sqlite3.connect(file)
    made.executescript("PRAGMA user_version = 99; CREATE TABLE about (name, value)")
    made.close()
    with pytest.raises(StoreError, match="has format 99, only 4 can be read"):
        StateSnapshot(file, {})


def test_a_reader_delays_no_commit_and_the_log_is_emptied_behind_it(tmp_path: Path) -> None:
    task = Task(tmp_path / "x.sqlite", lambda r, state: state.put(b"%d" % r.offset, b"x" * 100_000))
    log = tmp_path / "x.sqlite-wal"
    feed(task, 10)
    with StateSnapshot(task.file.file, {}) as state:
        for _ in range(10):
            feed(task, 20)
        assert log.stat().st_size > 16 << 20
        assert len(list(state.items())) == 10
    for _ in range(5):
        feed(task, 20)
    assert log.stat().st_size < 8 << 20
    assert len(list(task.state.items())) == 310
