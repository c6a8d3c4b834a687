"""Names, permissions and age of local files.

Local files with damaged pages: they are deleted, and nothing of their partitions or others is lost or doubled."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import time
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
from rackassign.stateful._statistics import StateCounts
from rackassign.stateful.local_files import clean
from tests.helpers.faulty_files import PAGE, FaultyFiles, overwrite
from tests.helpers.tasks import Record, Task

FIRST = TopicPartition("t", 0)
CHANGE: dict[bytes, bytes | None] = {b"k": b"v"}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_state_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    names = set()
    for _ in range(2):
        state_directory = StateDirectory(folder)
        state_directory.open_existing({"t": "1d"})
        state_directory.open(FIRST).apply(CHANGE, 5)
        names.add(state_directory.member_id())
        assert mode(folder) == 0o700
        assert {mode(file) for file in folder.iterdir()} == {0o600}
        assert len(list(folder.iterdir())) == 5
        state_directory.close()
    # The member has the same ID when it is started again.
    assert len(names) == 1
    (folder / "member-id").write_text("damaged")
    again = StateDirectory(folder)
    assert again.member_id() not in {*names, "damaged"}
    again.close()


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


@pytest.mark.parametrize("found", ["later", "at the start"])
def test_a_damaged_file_is_deleted_with_one_warning_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, found: str
) -> None:
    counts = StateCounts()
    state_directory = StateDirectory(tmp_path, counts)
    state_directory.open_existing({"t": "1d"})
    # Larger than SQLite's cache.
    state_directory.open(FIRST).apply({b"\1%064d" % number: b"%1000d" % number for number in range(4000)}, 5)
    if found == "at the start":
        state_directory.close()
    (file,) = tmp_path.glob("*.sqlite")
    overwrite(file)
    if found == "at the start":
        state_directory = StateDirectory(tmp_path, counts)
        state_directory.open_existing({"t": "1d"})
    else:
        with pytest.raises(DamagedError) as damaged:
            list(state_directory.open(FIRST).between(b"", None))
        state_directory.failed(FIRST, damaged.value)
    again = state_directory.available(FIRST)
    assert again is not None
    assert (again.position, list(again.between(b"", None)), counts.damaged_files) == (0, [], 1)
    said = [each.getMessage() for each in caplog.records if str(file) in each.getMessage()]
    assert len(said) == 1
    assert "it is deleted, and the state of t-0 is restored from its changelog" in said[0]
    assert file.stat().st_size < 300 * PAGE
    state_directory.close()


def test_a_process_that_ignores_damage_changes_nothing(tmp_path: Path, files: FaultyFiles) -> None:
    """What it would write from a failed read is never in the changelog."""

    def careless(_: Record, store: StateStore) -> None:
        with suppress(RackassignError):
            store.put(b"n", (store.get(b"n") or b"") + b"1")
            return
        store.put(b"n", b"0")

    failures = [sqlite3.DatabaseError("database disk image is malformed")]
    task = Task(tmp_path / "1", careless)
    files.before = lambda _, text: failures.pop() if failures and text.startswith("SELECT value") else None
    with pytest.raises(DamagedError):
        task.play([Record(0)])
    assert (failures, dict(task.file.uncommitted)) == ([], {})


def test_files_that_cannot_be_opened_wait_and_are_kept(
    tmp_path: Path, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing({"t": "1d"})
    state_directory.open(FIRST).apply(CHANGE, 5)
    state_directory.close()
    files.before = lambda *_: sqlite3.OperationalError("unable to open database file")
    again = StateDirectory(tmp_path)
    again.open_existing({"t": "1d"})
    assert (again.available(FIRST), again.positions()) == (None, {})
    assert caplog.text.count("unable to open database file; each partition needs three open files") == 1
    files.before = lambda *_: None
    found = again.available(FIRST)
    assert found is not None
    assert found.position == 5
    again.close()


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
