"""Limits of what may be written: a quota or a limit of the file's size is no damage."""

from __future__ import annotations

import errno
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rackassign.model import TopicPartition
from rackassign.stateful.files.directory import StateDirectory
from rackassign.stateful.files.sqlite_file import DamagedError, DiskFullError, SqliteFile, StoreError
from tests.helpers.fakes.kafka import Kafka
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.stateful_consumers import counted, drain, give, member

LIMITED = """
import logging, resource, sys
from pathlib import Path
from rackassign.model import TopicPartition
from rackassign.stateful import StoreError
from rackassign.stateful.changelog.replay import ChangelogRecord
from rackassign.stateful.files.directory import StateDirectory

logging.basicConfig(format="%(message)s")
tp, shelf = TopicPartition("t", 0), StateDirectory(Path(sys.argv[1]))
shelf.open_existing({"t": "1d"})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
store, written = shelf.available(tp), 0
try:
    for number in range(100):
        change = ChangelogRecord("change", 0, number, b"\\1k%d" % number, bytes(100_000))
        store.apply([change, ChangelogRecord("last", 0, number, b"\\4", b"{}")], number + 1)
        written += 1
except StoreError as error:
    shelf.failed(tp, error)
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
shelf.close()
print(written > 0)
"""


def test_a_file_that_has_reached_the_limit_of_its_size_is_kept(tmp_path: Path) -> None:
    # In a process of its own: the limit cannot be raised again by all users.
    code = LIMITED.replace("(1 << 20, 1 << 20)", "(1 << 20, resource.RLIM_INFINITY)")
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    file = tmp_path / "t-0@1d.sqlite"
    assert ended.stdout == f"DiskFullError {file}: File too large\nTrue\n", ended.stderr
    assert "t-0 waits until its local file can be used again" in ended.stderr
    assert [each.name for each in tmp_path.glob("*.damaged*")] == []
    again = StateDirectory(tmp_path)
    again.open_existing({"t": "1d"})
    assert again.positions()[TopicPartition("t", 0)] > 0
    again.close()


class OverQuota:
    """A file to which nothing can be written, as with a quota; only NFS and the like report it at the end."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_quota_is_waited_for_and_damage_is_not(
    kafka: Kafka,
    files: FaultyFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with member(tmp_path) as one:
        give(one, 0)
        kafka.feed(0, 1)
        drain(one)
        kafka.feed(0, 1)
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "TemporaryFile", OverQuota)
            files.full, files.full_as = True, "disk I/O error"
            for _ in range(5):
                one.poll(0)
        assert "Disk quota exceeded: t-0 waits until its local file can be used again" in caplog.text
        assert list(tmp_path.glob("*.damaged")) == []
        files.full = False
        drain(one)
        assert counted(one) == 2


def test_an_error_of_the_disk_itself_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SqliteFile(tmp_path / "file.sqlite", "CREATE TABLE t (k)", 1)
    for number, expected in ((errno.EIO, DamagedError), (errno.ENOSPC, DiskFullError)):

        def failing(*_: Any, number: int = number, **__: Any) -> None:
            raise OSError(number, "no")

        monkeypatch.setattr(tempfile, "TemporaryFile", failing)
        with pytest.raises(expected), file._mapped():
            raise sqlite3.OperationalError("disk I/O error")
    file.close()


def test_a_log_that_another_process_uses_for_too_long_is_no_damage(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "file.sqlite", "CREATE TABLE t (k)", 1)
    with pytest.raises(StoreError, match="locking protocol") as raised, file._mapped():
        raise sqlite3.OperationalError("locking protocol")
    assert not isinstance(raised.value, DamagedError)
    assert file.damage is None
    file.close()
