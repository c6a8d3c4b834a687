"""A lock belongs to an open file: others see it until the last descriptor is closed.

Files that are replaced atomically and locked: links, folders without rights, file systems without locks.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rackassign.errors import ConfigError
from rackassign.placement import state_file
from rackassign.util import files as stored_file
from rackassign.util.files import lock, locked, try_lock, write_file


def test_a_lock_is_held_until_the_last_descriptor_of_the_open_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as other:
        descriptor = os.open(path, os.O_RDWR)
        lock(descriptor)
        inherited = os.dup(descriptor)
        os.close(descriptor)
        assert not try_lock(other)
        os.close(inherited)
        assert try_lock(other)


def test_a_link_stays_one_and_its_file_is_written(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link, file = tmp_path / "plan.json", elsewhere / "plan.json"
    link.symlink_to(file)
    write_file(link, "first")
    write_file(link, "second")
    assert link.is_symlink()
    assert file.read_text() == "second"
    assert list(elsewhere.iterdir()) == [file]


def test_a_file_has_one_lock_under_both_names(tmp_path: Path) -> None:
    link, file = tmp_path / "link.json", tmp_path / "plan.json"
    file.write_text("")
    link.symlink_to(file)
    is_used = pytest.raises(ConfigError, match="another process is using")
    with locked(link, wait=False), is_used, locked(file, wait=False):
        pass
    with locked(file, wait=False):
        pass


@pytest.mark.parametrize("wait", [False, True])
def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, wait: bool) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(stored_file, "lock" if wait else "try_lock", no_locks)
    is_named = pytest.raises(ConfigError, match=r"cannot lock the file beside .*x\.json: No locks available")
    with is_named, locked(tmp_path / "x.json", wait=wait):
        pass


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    is_named = pytest.raises(ConfigError, match="cannot create a lock file beside")
    with is_named, locked(tmp_path / "none" / "x.json", wait=True):
        pass


def test_what_cannot_be_replaced_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"cannot write .*folder: "):
        write_file(tmp_path / "folder", "text")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_state_file_that_is_a_link_into_a_missing_folder_is_written_there(tmp_path: Path) -> None:
    link, file = tmp_path / "state.json", tmp_path / "elsewhere" / "state.json"
    link.symlink_to(file)
    state_file.update(link, lambda known: replace(known, cluster="c"))
    assert link.is_symlink()
    assert state_file.read(file).cluster == "c"
