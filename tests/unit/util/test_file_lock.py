"""A lock belongs to an open file: others see it until the last descriptor is closed."""

from __future__ import annotations

import os
from pathlib import Path

from rackassign.util.file_lock import lock, try_lock


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
