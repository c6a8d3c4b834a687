"""Names, permissions and age of local files."""

from __future__ import annotations

import errno
import fcntl
import time
from pathlib import Path

import pytest

from rackassign.model import TopicPartition
from rackassign.stateful import StoreError
from rackassign.stateful.changelog.replay import ChangelogRecord
from rackassign.stateful.files import state_file
from rackassign.stateful.files.directory import StateDirectory
from rackassign.stateful.files.local_files import clean
from rackassign.stateful.files.state_file import ElapsedTime
from tests.helpers.fakes.kafka import Kafka
from tests.helpers.stateful_consumers import count, drain, give, member

CHANGE = [ChangelogRecord("last", 1, 0, b"k", b"v")]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_state_is_for_its_owner_only(kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "state"
    for _ in range(2):
        with member(folder) as one:
            give(one, 0)
            kafka.feed(0, 3)
            drain(one)
            assert mode(folder) == 0o700
            assert {mode(file) for file in folder.iterdir()} == {0o600}
            assert len(list(folder.iterdir())) == 4
    assert "read by others" not in caplog.text
    # As versions before have left them.
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)
    (folder / "notes").touch(0o644)
    for _ in range(2):
        member(folder).close()
    assert mode(folder) == 0o700
    assert {mode(file) for file in folder.iterdir() if file.name != "notes"} == {0o600}
    assert mode(folder / "notes") == 0o644
    assert caplog.text.count(f"{folder} could be read by others: it is now for its owner only") == 1


def test_a_directory_of_another_owner_does_not_keep_the_files_exposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # As a volume of Kubernetes with fsGroup: its root is that of another user, with a file of this one in it.
    tmp_path.chmod(0o2775)
    file = tmp_path / "t-0@1d.sqlite"
    file.touch(0o660)
    file.chmod(0o660)
    chmod = Path.chmod

    def refused(path: Path, number: int) -> None:
        if path == tmp_path:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        chmod(path, number)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", refused)
        StateDirectory(tmp_path).close()
    assert mode(file) == 0o600
    assert f"{tmp_path} can be read by others, and its permissions cannot be changed: {tmp_path}: Op" in caplog.text
    assert f"{tmp_path} could be read by others" in caplog.text


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
    shelf = StateDirectory(tmp_path)
    shelf.open_existing(ids)
    for tp in tps:
        shelf.open(tp).apply(CHANGE, 5)
    shelf.close()
    again = StateDirectory(tmp_path)
    again.open_existing(ids)
    assert again.positions() == dict.fromkeys(sorted(tps), 5)
    again.close()
    assert all(file.name.startswith("t" * 120) for file in tmp_path.glob("*.sqlite"))


def test_a_path_that_sqlite_does_not_open_is_refused_at_the_start(kafka: Kafka, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 100] * 5)
    with pytest.raises(StoreError, match="bytes, of which SQLite allows 500: use a shorter state_dir"):
        member(folder, process=count)
    assert not kafka.open


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
    shelf = StateDirectory(tmp_path)
    shelf.open_existing({"t": "1d"})
    shelf.open(tp).apply(CHANGE, 5)
    for _ in range(3):
        now += 7 * 3600
        shelf.confirm({tp: 5})
    shelf.close()
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
    shelf = StateDirectory(tmp_path)
    shelf.open_existing({"t": "1d"})
    shelf.open(TopicPartition("t", 0)).apply(CHANGE, 5)
    shelf.close()
    now += later_s
    again = StateDirectory(tmp_path)
    again.deletes_ms = 60_000
    again.open_existing({"t": "1d"})
    assert again.positions() == positions
    again.close()
