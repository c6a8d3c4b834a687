"""Local files that no member needs are found and deleted, and no other file is."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from rackassign.cli.app import run
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.stateful import StoreError
from rackassign.stateful._state_directory import StateDirectory
from rackassign.stateful.local_files import by_partition, clean, list_local_files
from tests.helpers.json_schemas import parsed

CHANGE: dict[bytes, bytes | None] = {b"k": b"v" * 100}
IDS = {"t": "id"}
HOUR = 3600


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def name(partition: int, end: str = "") -> str:
    return f"t-{partition}@id.sqlite{end}"


def filled(folder: Path, *partitions: int) -> Path:
    state_directory = StateDirectory(folder)
    state_directory.open_existing(IDS)
    for partition in partitions:
        state_directory.open(tp(partition)).apply(CHANGE, 5)
    state_directory.close()
    return folder


def set_time(file: Path, hours_ago: float) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE about SET value = ? WHERE name = 'written_ms'", ((time.time() - hours_ago * HOUR) * 1000,))
        db.execute("UPDATE about SET value = CAST(value AS INTEGER)")
        db.commit()


def set_modified(file: Path, hours_ago: float) -> None:
    os.utime(file, (time.time() - hours_ago * HOUR,) * 2)


def reasons(folder: Path, older_than_h: float = 12) -> dict[str, str]:
    return {each.file.name: each.reason for each in clean(folder, older_than_h).unneeded}


def test_old_files_are_found_by_the_time_in_them_and_not_by_that_of_a_copy(tmp_path: Path) -> None:
    filled(tmp_path, 0, 1, 2)
    set_time(tmp_path / name(0), 13)
    set_time(tmp_path / name(1), 11)
    set_time(tmp_path / name(2), -2)
    set_modified(tmp_path / name(1), 100)
    assert reasons(tmp_path) == {name(0): "13.0 hours old", name(2): "its time is in the future"}
    assert reasons(tmp_path, 10)[name(1)] == "11.0 hours old"


def test_a_file_that_cannot_be_read_is_as_old_as_its_last_change(tmp_path: Path) -> None:
    filled(tmp_path)
    for partition, hours in enumerate((11, 14)):
        (tmp_path / name(partition)).write_bytes(b"no database, but long enough to be one" * 100)
        set_modified(tmp_path / name(partition), hours)
    assert reasons(tmp_path) == {name(1): "14.0 hours old"}


def test_a_state_is_at_least_as_young_as_its_log(tmp_path: Path) -> None:
    """After `kill -9` the time is in the log, which is not read."""
    filled(tmp_path, 0)
    set_time(tmp_path / name(0), 20)
    log = tmp_path / name(0, "-wal")
    log.write_bytes(b"x" * 100)
    assert reasons(tmp_path) == {}
    for file in (log, tmp_path / name(0)):
        set_modified(file, 15)
    assert reasons(tmp_path) == {name(0): "15.0 hours old"}


def test_a_state_that_is_only_in_the_log_is_kept_and_nothing_is_changed_by_looking(tmp_path: Path) -> None:
    state_directory = StateDirectory(tmp_path / "running")
    state_directory.open_existing(IDS)
    state_directory.open(tp(0)).apply(CHANGE, 5)
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in (tmp_path / "running").iterdir():
        (killed / file.name).write_bytes(file.read_bytes())
    state_directory.close()
    before = {file.name: file.read_bytes() for file in killed.iterdir()}
    assert len(before[name(0, "-wal")]) > 1000
    assert reasons(killed) == {}
    assert {file.name: file.read_bytes() for file in killed.iterdir()} == before
    again = StateDirectory(killed)
    again.open_existing(IDS)
    assert again.positions() == {tp(0): 5}
    again.close()


def test_empty_files_and_rests_are_deleted_and_their_bytes_counted(tmp_path: Path) -> None:
    filled(tmp_path, 0)
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing(IDS)
    state_directory.open(tp(3))
    state_directory.close()
    sizes = {name(1, "-wal"): 700, name(1, "-shm"): 70, name(2, "-wal"): 7, name(4): 0}
    for each, size in sizes.items():
        (tmp_path / each).write_bytes(b"x" * size)
    without_state = (tmp_path / name(3)).stat().st_size
    assert reasons(tmp_path) == {
        name(1): "its file is missing",
        name(2): "its file is missing",
        name(3): "it has no state",
        name(4): "empty",
    }
    found = clean(tmp_path, execute=True)
    assert (found.freed, found.bytes, found.kept, found.failures) == (777 + without_state,) * 2 + (1, {})
    assert {file.name for file in tmp_path.iterdir()} == {"lock", name(0)}
    assert clean(tmp_path, execute=True).unneeded == ()


def test_no_foreign_file_is_deleted_and_no_link_is_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / "precious"
    target.write_bytes(b"x")
    folder = filled(tmp_path / "state", 0)
    (folder / name(1, "-wal")).symlink_to(target)
    (folder / name(2)).symlink_to(target)
    (folder / name(3)).mkdir()
    with closing(sqlite3.connect(folder / name(5))) as db:
        db.execute("CREATE TABLE bills (n)")
        db.commit()
    foreign = ["notes.sqlite", "t-1.sqlite", "t-x@id.sqlite", "t-1@id.sqlite.bak", "x-1@id.sqlite.damaged"]
    for each in foreign:
        (folder / each).write_bytes(b"")
    for file in folder.iterdir():
        if not file.is_symlink():
            set_modified(file, 1000)
    set_time(folder / name(0), 50)
    before = {file.name for file in folder.iterdir()}
    assert [each.file.name for each in clean(folder, 0, execute=True).unneeded] == [name(0)]
    assert {file.name for file in folder.iterdir()} == before - {name(0)}
    assert target.read_bytes() == b"x"


def test_a_directory_in_use_is_refused_and_so_is_one_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    state_directory = StateDirectory(folder)
    (folder / name(1)).touch()
    with pytest.raises(StoreError, match="is in use: stop its member first"):
        clean(folder, execute=True)
    state_directory.close()
    other = tmp_path / "other"
    other.mkdir()
    (other / name(1)).touch()
    with pytest.raises(StoreError, match="is not the state_dir of a StatefulConsumer: it has no file 'lock'"):
        clean(other, execute=True)
    (other / "lock").symlink_to(folder / "lock")
    with pytest.raises(StoreError, match="it has no file 'lock'"):
        clean(other, execute=True)
    assert {file.name for file in other.iterdir()} == {"lock", name(1)}
    with pytest.raises(StoreError, match="nothing cannot be read: No such file or directory"):
        clean(tmp_path / "nothing")
    with pytest.raises(StoreError, match=r"lock cannot be read: Not a directory"):
        clean(folder / "lock")
    with pytest.raises(ConfigError, match="older-than: expected a number of hours from 0, got nan"):
        clean(folder, float("nan"))


def test_the_directory_is_locked_while_files_are_deleted_and_not_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    (tmp_path / name(1)).touch()
    refused: list[str] = []
    delete = Path.unlink

    def unlink(path: Path) -> None:
        with (tmp_path / "lock").open("w") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        refused.append(path.name)
        delete(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    clean(tmp_path, execute=True)
    assert refused == [name(1)]
    StateDirectory(tmp_path).close()


def test_files_are_listed_beside_a_running_member_without_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing(IDS)
    state_directory.open(tp(0)).apply(CHANGE, 5)
    (tmp_path / f"{'t' * 120}~0123456789abcdef-1@id.sqlite").write_bytes(b"xxx")

    def refuse(*words: object, **more: object) -> None:
        raise AssertionError(words, more)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(sqlite3, "connect", refuse)
    files = list_local_files(tmp_path)
    monkeypatch.undo()
    found, others = by_partition(files, ["t"])
    (file,) = found[tp(0)]
    assert file.bytes == sum((tmp_path / name(0, end)).stat().st_size for end in ("", "-wal", "-shm")) > 0
    assert [(each.bytes, each.partition) for each in others] == [(3, 1)]
    state_directory.close()


def test_the_command_lists_first_and_deletes_when_it_is_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(tmp_path, 0)
    (tmp_path / name(1, "-wal")).write_bytes(b"x" * 2000)
    words = ["state", "clean", "--state-dir", str(tmp_path)]
    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "its file is missing" in shown
    assert f"{tmp_path}: 1 file to delete, 2 kB: --execute deletes them; 1 kept" in shown.replace("\n", "")
    assert run([*words, "--output", "json"]) == 0
    listed = parsed("state clean", capsys.readouterr().out)
    assert (tmp_path / name(1, "-wal")).exists()
    assert run([*words, "--execute", "--output", "json"]) == 0
    deleted = parsed("state clean", capsys.readouterr().out)
    row = {"file": name(1), "topic": "t", "partition": 1, "bytes": 2000, "reason": "its file is missing"}
    assert listed["files"] == [{**row, "deleted": False}]
    assert deleted["files"] == [{**row, "deleted": True}]
    assert [(each["executed"], each["freed_bytes"]) for each in (listed, deleted)] == [(False, 0), (True, 2000)]
    assert run([*words, "--execute"]) == 0
    assert "no file to delete; 1 kept" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")


def test_the_command_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state_directory = StateDirectory(tmp_path)
    assert run(["state", "clean", "--state-dir", str(tmp_path), "--execute"]) == 2
    state_directory.close()
    assert capsys.readouterr().err == f"rackassign: state-dir: {tmp_path} is in use: stop its member first\n"


def test_a_file_that_cannot_be_deleted_is_reported_and_the_others_are_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    for partition in range(2):
        (tmp_path / name(partition)).write_bytes(b"x")
        set_modified(tmp_path / name(partition), 1000)
    delete = Path.unlink

    def unlink(path: Path) -> None:
        if path.name == name(0):
            raise PermissionError(1, "Operation not permitted")
        delete(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    assert run(["state", "clean", "--state-dir", str(tmp_path), "--execute"]) == 1
    shown = capsys.readouterr()
    assert shown.err == f"rackassign: {name(0)} cannot be deleted: Operation not permitted\n"
    assert "1 B freed, 1 file could not be deleted; 0 kept" in shown.out.replace("\n", "")
    assert {file.name for file in tmp_path.iterdir()} == {"lock", name(0)}
