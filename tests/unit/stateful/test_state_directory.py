"""Names, permissions and age of local files.

Local files with damaged pages: they are deleted, and nothing of their partitions or others is lost or doubled."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore, StoreError
from rackassign.stateful import _local_state as state_file
from rackassign.stateful._local_state import ElapsedTime
from rackassign.stateful._sqlite_file import DamagedError, SqliteFile
from rackassign.stateful._state_directory import StateDirectory
from rackassign.stateful.local_files import clean
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.faulty_files import FULL, PAGE, FaultyFiles, overwrite
from tests.helpers.stateful_consumers import FIRST, count, counted, drain, give, member, settle, together

CHANGE: dict[bytes, bytes | None] = {b"k": b"v"}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_state_is_for_its_owner_only(kafka: Kafka, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    for _ in range(2):
        with member(folder) as one:
            give(one, 0)
            kafka.feed(0, 3)
            drain(one)
            assert mode(folder) == 0o700
            assert {mode(file) for file in folder.iterdir()} == {0o600}
            assert len(list(folder.iterdir())) == 5


def test_a_file_of_another_program_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("theirs")
    StateDirectory(tmp_path).close()
    assert (tmp_path / "lock").read_text() == "theirs"
    target = tmp_path / "target"
    target.write_text("theirs")
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(StoreError, match="cannot be used"):
        StateDirectory(tmp_path)
    assert (target.read_text(), mode(target) & 0o044) == ("theirs", 0o044)


def test_a_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StateDirectory(tmp_path).close()

    def refused(*_: object) -> None:
        # As NFS without its lock service.
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(StoreError, match=r"cannot be locked: No locks available; use a directory on a local disk"):
        StateDirectory(tmp_path)
    with pytest.raises(StoreError, match=r"lock cannot be locked: No locks available"):
        clean(tmp_path)


def test_a_directory_of_all_users_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    StateDirectory(tmp_path).close()
    assert mode(tmp_path) == 0o777


def test_topics_with_long_names_have_files(tmp_path: Path) -> None:
    topics = ["t" * 249, "t" * 248 + "u", "t" * 150, "t" * 151]
    ids = dict.fromkeys(topics, "9a1f1f0e-6ad5-4f8c-8f0d-2d4b1f7e6a3c")
    tps = [TopicPartition(topic, 999_999) for topic in topics]
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing(ids)
    for tp in tps:
        state_directory.open(tp).apply(CHANGE, 5)
    state_directory.close()
    again = StateDirectory(tmp_path)
    again.open_existing(ids)
    assert again.positions() == dict.fromkeys(sorted(tps), 5)
    again.close()
    assert all(file.name.startswith("t" * 120) for file in tmp_path.glob("*.sqlite"))


def test_the_time_in_which_a_machine_is_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {"any": 0.0}
    monkeypatch.setattr(time, "clock_gettime", lambda _: clocks["any"])
    monkeypatch.setattr(time, "time", lambda: clocks.get("day", 1e9))
    elapsed = ElapsedTime()
    # The monotonic clock of this process does not matter, and neither does a time of day that is set back.
    clocks.update(any=50_000.0, day=1e9 - 1e6)
    assert elapsed.seconds() == 50_000.0
    elapsed.restart()
    # A virtual machine was paused: none of its clocks has counted, and the time of day was set.
    clocks["day"] += 60_000.0
    assert elapsed.seconds() == 60_000.0
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert state_file._CLOCK == time.CLOCK_BOOTTIME


def test_a_file_whose_changelog_has_no_new_records_is_not_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tp, now = TopicPartition("t", 0), time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing({"t": "1d"})
    state_directory.open(tp).apply(CHANGE, 5)
    for _ in range(3):
        now += 7 * 3600
        state_directory.confirm({tp: 5})
    state_directory.close()
    for later_h, positions in ((7, {tp: 5}), (7, {})):
        now += later_h * 3600
        again = StateDirectory(tmp_path)
        again.open_existing({"t": "1d"})
        assert again.positions() == positions
        again.close()


@pytest.mark.parametrize(("later_s", "positions"), [(25, {TopicPartition("t", 0): 5}), (35, {})])
def test_the_age_of_a_file_is_limited_by_how_long_its_changelog_keeps_deletions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float, positions: dict[TopicPartition, int]
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing({"t": "1d"})
    state_directory.open(TopicPartition("t", 0)).apply(CHANGE, 5)
    state_directory.close()
    now += later_s
    again = StateDirectory(tmp_path)
    again.deletes_ms = 60_000
    again.open_existing({"t": "1d"})
    assert again.positions() == positions
    again.close()


SECOND = TopicPartition("t", 1)
MANY = 4000
"""Records whose state is larger than SQLite's cache."""


def key_of(offset: int) -> bytes:
    return hashlib.sha256(b"%d" % offset).hexdigest().encode()


def keep(record: Record, store: StateStore) -> None:
    """Count records, and write a large value somewhere in the file."""
    count(record, store)
    key = key_of(record.offset % MANY)
    store.put(key, (store.get(key) or b"") + b"%1000d" % record.offset)


def kept(records: int) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {b"n": b"%d" % records}
    for offset in range(records):
        key = key_of(offset % MANY)
        state[key] = state.get(key, b"") + b"%1000d" % offset
    return state


def state_of(one: StatefulConsumer, tp: TopicPartition = FIRST) -> dict[bytes, bytes]:
    return dict(one.store(tp).items())


def file_of(one: StatefulConsumer) -> Path:
    return one._shelf.open(FIRST).file


def warnings(caplog: pytest.LogCaptureFixture, file: Path) -> list[str]:
    return [record.getMessage() for record in caplog.records if str(file) in record.getMessage()]


def check_damage(caplog: pytest.LogCaptureFixture, file: Path) -> None:
    """Check that a damaged file was deleted, with one warning, which names it."""
    assert file.stat().st_size > 300 * PAGE
    (text,) = warnings(caplog, file)
    assert "it is deleted, and the state of t-0 is restored from its changelog" in text


@pytest.mark.long
@pytest.mark.usefixtures("files")
def test_a_damaged_page_of_an_active_partition_costs_a_restore(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with member(tmp_path / "1", process=keep) as one:
        give(one, 0, 1)
        kafka.feed(0, MANY)
        kafka.feed(1, 5)
        drain(one)
        file = file_of(one)
        overwrite(file)
        kafka.feed(0, MANY)
        kafka.feed(1, 5)
        settle(one)
        assert state_of(one) == kept(2 * MANY)
        assert state_of(one, SECOND) == kept(10)
        check_damage(caplog, file)
        overwrite(file)
        kafka.feed(0, MANY)
        settle(one)
        assert state_of(one) == kept(3 * MANY)
    with member(tmp_path / "2", process=keep) as other:
        give(other, 0)
        settle(other)
        assert state_of(other) == kept(3 * MANY)


@pytest.mark.long
def test_a_damaged_page_of_a_standby_costs_a_restore(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with member(tmp_path / "1", process=keep) as one, member(tmp_path / "2", process=keep) as copy:
        give(one, 0, 1)
        copy._assignor._copies.kept = frozenset({FIRST, SECOND})
        give(copy)
        together(one)
        kafka.feed(0, MANY)
        drain(one)
        drain(copy)
        file = file_of(copy)
        overwrite(file)
        kafka.feed(0, MANY)
        kafka.feed(1, 5)
        drain(one)
        settle(copy)
        assert state_of(copy) == kept(2 * MANY)
        assert state_of(copy, SECOND) == kept(5)
        check_damage(caplog, file)
        assert copy._known.positions[FIRST] == copy._known.ends[FIRST]


@pytest.mark.parametrize("found", [pytest.param("by process", marks=pytest.mark.long), "at the start"])
def test_a_file_that_is_damaged_between_two_runs_costs_a_restore(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, found: str
) -> None:
    with member(tmp_path, process=keep) as one:
        give(one, 0)
        kafka.feed(0, MANY)
        drain(one)
        file = file_of(one)
    if found == "by process":
        overwrite(file)
    else:
        with file.open("r+b") as opened:
            opened.write(b"\xa5" * PAGE)
    kafka.feed(0, MANY)
    with member(tmp_path, process=keep) as one:
        give(one, 0)
        settle(one)
        assert state_of(one) == kept(2 * MANY)
        check_damage(caplog, file)


def test_a_file_that_is_damaged_is_closed_like_others(kafka: Kafka, tmp_path: Path) -> None:
    one = member(tmp_path, process=keep)
    give(one, 0)
    kafka.feed(0, MANY)
    drain(one)
    overwrite(file_of(one))
    one.close()
    assert not kafka.open
    with member(tmp_path, process=keep) as one:
        give(one, 0)
        kafka.feed(0, MANY)
        settle(one)
        assert state_of(one) == kept(2 * MANY)


def test_a_process_that_ignores_damage_changes_nothing(kafka: Kafka, tmp_path: Path, files: FaultyFiles) -> None:
    """What it would write from a failed read is never in the changelog."""

    def careless(record: Record, store: StateStore) -> None:
        with suppress(RackassignError):
            count(record, store)
            return
        store.put(b"n", b"0")

    failures = [sqlite3.DatabaseError("database disk image is malformed")]
    with member(tmp_path / "1", process=careless) as one:
        give(one, 0, 1)
        kafka.feed(0, 3)
        settle(one)
        files.before = lambda file, text: (
            failures.pop() if failures and file.startswith("t-0") and text.startswith("SELECT value") else None
        )
        kafka.feed(0, 3)
        kafka.feed(1, 3)
        settle(one)
        assert not failures
        assert (counted(one), counted(one, 1)) == (6, 3)
    with member(tmp_path / "2", process=careless) as other:
        give(other, 0)
        settle(other)
        assert counted(other) == 6


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_damage_before_anything_is_stored_skips_no_records(
    kafka: Kafka, tmp_path: Path, files: FaultyFiles, reset: str
) -> None:
    with member(tmp_path, auto_offset_reset=reset) as one:
        give(one, 0)
        drain(one)
        failures = [sqlite3.OperationalError("disk I/O error")]
        files.before = lambda _, text: failures.pop() if failures and text.startswith("SELECT value") else None
        kafka.feed(0, 3)
        settle(one)
        assert not failures
        assert counted(one) == 3


@pytest.mark.parametrize(
    ("broken", "noted"),
    [
        (lambda: sqlite3.DatabaseError("database disk image is malformed"), "it is deleted"),
        (lambda: sqlite3.DatabaseError("file is not a database"), "it is deleted"),
        (lambda: sqlite3.OperationalError("disk I/O error"), "it is deleted"),
        (lambda: sqlite3.OperationalError(FULL), "waits until its local file can be used again"),
        (lambda: sqlite3.OperationalError("unable to open database file"), "(ulimit -n): t-0 waits until"),
    ],
)
@pytest.mark.parametrize("statement", ["SELECT value", "SELECT key", "BEGIN", "INSERT", "DELETE", "COMMIT"])
@pytest.mark.parametrize("lasting", [1, 3])
def test_an_error_of_one_file_stops_its_partition_alone(
    kafka: Kafka,
    tmp_path: Path,
    files: FaultyFiles,
    caplog: pytest.LogCaptureFixture,
    statement: str,
    broken: Callable[[], Exception],
    noted: str,
    lasting: int,
) -> None:
    left = 0

    def fails(file: str, text: str) -> Exception | None:
        nonlocal left
        if left and file.startswith("t-0") and text.startswith(statement):
            left -= 1
            return broken()
        return None

    def looks(record: Record, store: StateStore) -> None:
        count(record, store)
        list(store.items())

    with member(tmp_path, process=looks) as one:
        give(one, 0, 1)
        kafka.feed(0, 3)
        settle(one)
        files.before = fails
        left = lasting
        kafka.feed(0, 3)
        kafka.feed(1, 3)
        settle(one)
        assert left == 0
        assert (counted(one), counted(one, 1)) == (6, 3)
    said = [record.getMessage() for record in caplog.records if noted in record.getMessage()]
    assert 1 <= len(said) <= (lasting if "deleted" in noted else 1)


def test_a_log_that_another_process_uses_for_too_long_is_no_damage(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "file.sqlite", "CREATE TABLE t (k)", 1)
    with pytest.raises(StoreError, match="locking protocol") as raised, file._mapped():
        raise sqlite3.OperationalError("locking protocol")
    assert not isinstance(raised.value, DamagedError)
    assert file.damage is None
    file.close()


def test_files_that_cannot_be_used_begin_anew_and_a_folder_is_one_member_s(tmp_path: Path) -> None:
    (tmp_path / "t-1@1d.sqlite").write_bytes(b"no database at all, whatever its name" * 99)
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing({"t": "1d"})
    assert state_directory.positions() == {}
    assert state_directory.open(TopicPartition("t", 1)).position == 0
    state_directory.open(FIRST).apply({b"\1k": b"v"}, 7)
    assert state_directory.positions() == {TopicPartition("t", 1): 0, FIRST: 7}
    with pytest.raises(
        StoreError,
        match=r"is in use: each member .* of its own\. If its member was killed, .*: `fuser .*/lock` shows it",
    ):
        StateDirectory(tmp_path)
    state_directory.delete(FIRST)
    assert state_directory.positions() == {TopicPartition("t", 1): 0}
    with pytest.raises(StoreError, match="no name of a topic"):
        state_directory.open(TopicPartition("../t", 0))
    state_directory.close()
    StateDirectory(tmp_path).close()


def test_files_that_are_old_or_of_another_changelog_are_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 1), TopicPartition("t", 2)]
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing({"t": "1d", "u": "5e"})
    # As a copied folder has it: the files are new, and their content is old.
    for place, age_h in zip(places, (13, 11, 0, -13), strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(state_file, "time_of_day_ms", lambda: int((time.time() - age_h * 3600) * 1000))  # noqa: B023
            state_directory.open(place).apply({b"\1k": b"v"}, 5)
    state_directory.close()
    (tmp_path / "notes.sqlite").touch()
    os.utime(tmp_path / "t-1@1d.sqlite", (1.0, 1.0))
    again = StateDirectory(tmp_path)
    again.open_existing({"t": "1d", "u": "new"})
    assert again.positions() == {TopicPartition("t", 1): 5}
    assert again.open(places[2]).position == 0
    again.close()
    left = {file.name for file in tmp_path.glob("*.sqlite")}
    assert left == {"notes.sqlite", "t-1@1d.sqlite", "u-1@new.sqlite"}


def test_what_cannot_work_is_told_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: dict[str, Any] = {"process": lambda *_: None, "state_dir": tmp_path / "state", "group_id": "g"}
    for topics, more, problem in (
        ((), {}, "topics and group_id are needed"),
        (("t",), {"group_id": None}, "topics and group_id are needed"),
        (("t",), {"enable_auto_commit": True}, "enable_auto_commit is set by this consumer"),
        (("t",), {"client_tags": {"k" * 21: "v"}}, "Tag key exceeds maximum length of 20"),
        (("t",), {"state_dir": tmp_path / "file"}, "state_dir: .* cannot be used: "),
    ):
        with pytest.raises(RackassignError, match=problem):
            StatefulConsumer(*topics, **{**told, **more})
    # The folder was given back.
    StateDirectory(tmp_path / "state").close()
