"""The chaos of members with state: its faults strike, and its schedules keep their bounds."""

from __future__ import annotations

import errno
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rackassign.stateful import _sqlite_file as sqlite_file
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._sqlite_file import DamagedError, SqliteFile, StoreError
from tests.helpers.kafka.state_disks import ENTER, can_mount, damage_page
from tests.helpers.kafka.stateful_group import SIX
from tools.chaos import stateful
from tools.chaos.history import NOTES_FILE, Journal, Struck, read_history
from tools.chaos.stateful import DISKS, KINDS, Schedule, possible

ROOT = Path(__file__).parents[3]
_SEEDS = 100
WHOLE = {b"%04d" % number: b"%d" % number * 20 for number in range(60)}
_FULL_DISK = """
import sys
from pathlib import Path
from tests.helpers.kafka.state_disks import Disk
disk = Disk(Path(sys.argv[1]), 1 << 20)
file = Path(sys.argv[1]) / "file"
file.write_bytes(bytes(40_000))
disk.fill()
try:
    (file.parent / "other").write_bytes(bytes(40_000))
except OSError as error:
    print(error.errno)
disk.free()
(file.parent / "other").write_bytes(bytes(40_000))
disk.close()
print(file.exists())
"""


MANY = {b"word-%d" % number: b"%d" % number * 20 for number in range(400)}


class FakeProcess:
    def send_signal(self, _: int) -> None:
        pass


class FakeFleet:
    """Members that are only counted."""

    def __init__(self) -> None:
        self.running: dict[str, Any] = {name: FakeProcess() for name in SIX[:4]}
        self.events: list[tuple[str, str]] = []

    def start(self, name: str) -> None:
        assert name not in self.running
        self.running[name] = FakeProcess()
        self.events.append(("start", name))

    def kill(self, name: str) -> None:
        del self.running[name]
        self.events.append(("kill", name))

    def write(self, _: int) -> None:
        pass


def played(seed: int, kinds: Sequence[str], steps: int, patch: pytest.MonkeyPatch, folder: Path) -> FakeFleet:
    patch.setattr("time.sleep", lambda _: None)
    fleet: Any = FakeFleet()
    no_brokers: Any = None
    with closing(Journal(folder / NOTES_FILE)) as journal:
        schedule = Schedule(fleet, no_brokers, "input", random.Random(seed), kinds, {}, journal)
        for _ in range(steps):
            schedule.step()
            assert fleet.running, "the last member is neither killed nor paused"
        schedule.all_up()
    assert sorted(fleet.running) == sorted(SIX)
    found: FakeFleet = fleet
    return found


def test_a_schedule_keeps_a_member_and_is_the_same_for_the_same_seed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = ("kill", "start", "pause", "resume")
    events = [played(seed, kinds, 30, monkeypatch, tmp_path).events for seed in (1, 1, 2)]
    assert events[0] == events[1] != events[2]
    assert {struck.what for struck in read_history(tmp_path).of(Struck)} == set(kinds)


def after_damage(folder: Path, pattern: str) -> list[dict[bytes, bytes] | Exception]:
    """Return what is read from a file after a page was damaged, for many seeds, or the error."""
    original = StateFile(folder / "original.sqlite")
    original.apply(WHOLE, len(WHOLE))
    if pattern == "*.sqlite":
        # What is in the log has no effect on the file.
        original.close()
    found: list[dict[bytes, bytes] | Exception] = []
    for seed in range(_SEEDS):
        copied = folder / str(seed)
        copied.mkdir()
        for file in folder.glob("original.sqlite*"):
            shutil.copy(file, copied)
        for file in sorted(copied.glob(pattern)):
            assert damage_page(file, random.Random(seed))
        try:
            found.append(read(copied / "original.sqlite"))
        except Exception as error:  # noqa: BLE001 - which one it is, is the question
            found.append(error)
    original.close()
    return found


def read(file: Path) -> dict[bytes, bytes]:
    opened = StateFile(file)
    try:
        return dict(opened.between(b"", None))
    finally:
        opened.close()


def test_a_damaged_page_is_found_or_changes_nothing(tmp_path: Path) -> None:
    found = after_damage(tmp_path, "*.sqlite")
    assert all(isinstance(each, Exception) or each == WHOLE for each in found)
    assert sum(isinstance(each, DamagedError) for each in found) > _SEEDS / 3, "most pages are in use"


def test_whatever_is_wrong_with_a_damaged_page_is_reported_as_damage(tmp_path: Path) -> None:
    found = after_damage(tmp_path, "*.sqlite")
    assert [each for each in found if isinstance(each, Exception) and not isinstance(each, DamagedError)] == []


@pytest.mark.release
def test_a_key_that_is_hidden_by_damage_is_not_reported_as_missing(tmp_path: Path) -> None:
    original = StateFile(tmp_path / "original.sqlite")
    original.apply(MANY, len(MANY))
    original.close()
    hidden = []
    for seed in range(_SEEDS):
        copied = tmp_path / f"{seed}.sqlite"
        shutil.copy(tmp_path / "original.sqlite", copied)
        damage_page(copied, random.Random(seed))
        for key in random.Random(seed).sample(sorted(MANY), 60):
            try:
                opened = StateFile(copied)
                found = opened.get(key)
                opened.close()
            except (StoreError, UnicodeDecodeError):
                # Which one it is, is the question of another test.
                break
            hidden += [(seed, key)] if found != MANY[key] else []
    assert hidden == []


def test_a_damaged_log_is_found(tmp_path: Path) -> None:
    found = after_damage(tmp_path, "*.sqlite-wal")
    assert [each for each in found if not isinstance(each, DamagedError) and each != WHOLE] == []
    assert any(isinstance(each, DamagedError) for each in found)


def after_log_damage(folder: Path, batches: int, seeds: int) -> list[tuple[bool, str]]:
    """Damage the log wherever SQLite has just taken it into the file; return what comes of the rest of the changelog.

    Whether the state is right after that, and how the file was damaged.
    """
    dice = random.Random(5)
    original = StateFile(folder / "o.sqlite")
    file, log = folder / "o.sqlite", folder / "o.sqlite-wal"
    changes: list[tuple[bytes, bytes | None]] = []
    expected: dict[bytes, bytes] = {}
    found = []
    before = 0
    for _ in range(batches):
        begin = len(changes)
        for number in range(begin, begin + 20):
            key, size = b"key-%05d" % dice.randrange(3000), dice.choice((5, 200, 1500))
            value = None if dice.random() < 0.1 else b"%d" % number + bytes(size)
            changes.append((key, value))
            expected.pop(key, None)
            expected.update({} if value is None else {key: value})
        original.apply(dict(changes[begin:]), len(changes))
        taken, before = file.stat().st_size > before, file.stat().st_size
        for seed in range(seeds if taken else 0):
            # A damaged file stays open, so each has a name of its own.
            copied = folder / f"{begin}-{seed}.sqlite"
            for end, source in (("", file), ("-wal", log)):
                Path(f"{copied}{end}").write_bytes(source.read_bytes())
            damage_page(Path(f"{copied}-wal"), random.Random(seed))
            try:
                opened = StateFile(copied)
                opened.apply(dict(changes[opened.position :]), len(changes))
                # An iteration over a damaged tree may have no end.
                state = dict(islice(opened.between(b"", None), len(expected) + 1000))
                found.append((state == expected, f"batch {begin // 20}, seed {seed}"))
                opened.close()
            except DamagedError:
                found.append((True, "found"))
    original.close()
    return found


@pytest.mark.release
def test_a_damaged_log_never_leaves_a_state_that_the_changelog_does_not_complete(tmp_path: Path) -> None:
    found = after_log_damage(tmp_path, batches=600, seeds=15)
    assert found
    assert [which for right, which in found if not right] == []


@pytest.mark.release
def test_a_log_that_is_damaged_while_it_is_being_emptied_leaves_no_tree_of_two_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that is killed between two steps of a checkpoint, or a full disk, leaves both files."""
    emptied: list[tuple[bytes, bytes]] = []
    real = SqliteFile.checkpoint

    def checkpoint(self: SqliteFile) -> None:
        if self._file.name != "o.sqlite":
            real(self)
            return
        log = (tmp_path / "o.sqlite-wal").read_bytes()
        real(self)
        if not (tmp_path / "o.sqlite-wal").stat().st_size:
            emptied.append(((tmp_path / "o.sqlite").read_bytes(), log))

    monkeypatch.setattr(sqlite_file, "_LOG_BYTES", 400_000)
    monkeypatch.setattr(SqliteFile, "checkpoint", checkpoint)
    dice, original = random.Random(5), StateFile(tmp_path / "o.sqlite")
    changes: list[tuple[bytes, bytes | None]] = []
    expected: dict[bytes, bytes] = {}
    wrong, tried = [], 0
    for batch in range(200):
        for number in range(20 * batch, 20 * batch + 20):
            key, value = b"key-%05d" % dice.randrange(2000), b"%d" % number + bytes(dice.choice((5, 200, 1500)))
            kept = dice.random() > 0.3
            changes.append((key, value if kept else None))
            expected.pop(key, None)
            expected.update({key: value} if kept else {})
        original.apply(dict(changes[20 * batch :]), len(changes))
        for file, log in emptied:
            for seed in range(10):
                tried += 1
                copied = tmp_path / f"{batch}-{seed}.sqlite"
                copied.write_bytes(file)
                Path(f"{copied}-wal").write_bytes(log)
                damage_page(Path(f"{copied}-wal"), random.Random(seed))
                try:
                    opened = StateFile(copied)
                    opened.apply(dict(changes[opened.position :]), len(changes))
                    if dict(islice(opened.between(b"", None), len(expected) + 1000)) != expected:
                        wrong.append(f"batch {batch}, seed {seed}")
                    opened.close()
                except DamagedError:
                    continue
        emptied.clear()
    original.close()
    assert tried > 8
    assert wrong == []


def test_nothing_is_damaged_where_there_is_no_page(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert not damage_page(tmp_path / "empty", random.Random(1))
    assert not damage_page(tmp_path / "missing", random.Random(1))


@pytest.mark.skipif(not can_mount(), reason="Linux is set up to forbid user namespaces, or this is no Linux")
def test_a_full_disk_takes_nothing_and_then_more(tmp_path: Path) -> None:
    command = [*ENTER, sys.executable, "-c", _FULL_DISK, str(tmp_path / "disk")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert printed.split() == [str(errno.ENOSPC), "False"]


def test_full_disks_are_left_out_with_a_message_where_they_are_forbidden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stateful, "can_mount", lambda: False)
    assert set(KINDS) - set(possible(None)) == set(DISKS)
    assert "left out: fill, free" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no disk can be full"):
        possible(["fill"])
    assert possible(["kill"]) == ["kill"]
