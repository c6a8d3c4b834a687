"""Reading a state beside the member that changes it: from other threads and other processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rackassign.model import TopicPartition
from rackassign.stateful._processing import read_progress
from rackassign.stateful._sqlite_file import DIFFERENT, FORMAT, StoreError, read_rows, read_value, unsealed
from rackassign.stateful._state_directory import topic_names
from rackassign.stateful._stores import AnyStore, State, stores_by_name
from rackassign.stateful.local_files import list_local_files

if TYPE_CHECKING:
    from typing_extensions import Self


_WAIT_S = 10.0


class _SnapshotFile:
    """A state file as it is at one time; a transaction keeps later commits out."""

    def __init__(self, file: Path) -> None:
        self._file = file
        if not file.exists():
            raise StoreError(f"{file} does not exist")
        with self._mapped():
            self._db = sqlite3.connect(
                f"file:{quote(str(file.absolute()))}?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=_WAIT_S,
            )
        try:
            self._read("BEGIN")
            # The first read determines what the transaction sees.
            self._check_format()
            self.about: Mapping[str, int] = dict(self._read("SELECT name, value FROM about"))
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.close()
            raise

    def _check_format(self) -> None:
        ((found,),) = self._read("PRAGMA user_version")
        if found != FORMAT:
            raise StoreError(f"{self._file} has format {found}, only {FORMAT} can be read")

    def get(self, key: bytes) -> bytes | None:
        stored = read_value(self._read, key)
        return None if stored is None else self._checked(key, stored)

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        for key, stored in read_rows(self._read, start, end):
            yield key, self._checked(key, stored)

    def change(self, key: bytes, value: bytes | None) -> None:
        del key, value
        raise StoreError(f"{self._file.name} is read here, and changed by its member alone")

    def close(self) -> None:
        """End the transaction; may be called again."""
        with self._mapped():
            self._db.close()

    def _checked(self, key: object, stored: object) -> bytes:
        value = unsealed(key, stored)
        if value is None:
            raise StoreError(f"{self._file}: {DIFFERENT}")
        return value

    def _read(self, statement: str, values: tuple[bytes, ...] = ()) -> list[Any]:
        with self._mapped():
            return self._db.execute(statement, values).fetchall()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._file} cannot be read: {error}") from None


class StateSnapshot(State):
    """The state of a task as of its last commit when the snapshot was taken; it does not change.

    It may be used in any thread, by one at a time. While it is open the file grows with each commit, so close it soon.

    Args:
        file: The local file.
        stores: Named stores.

    Raises:
        ConfigError: A store is declared with a time to live and its values were written without, or vice versa.
        StoreError: The file does not exist, or cannot be read.
    """

    __slots__ = ("_snapshot", "offsets", "time_ms", "written_ms")

    def __init__(self, file: Path, stores: Mapping[str, AnyStore]) -> None:
        self._snapshot = _SnapshotFile(file)
        try:
            progress = read_progress(self._snapshot, str(file))
            super().__init__(self._snapshot, stores, lambda: progress.time_ms)
        except BaseException:
            self._snapshot.close()
            raise
        self.offsets = dict(progress.next)
        """Offset of the next record of each input topic: the state has the effects of all before it."""
        self.time_ms = progress.time_ms
        """Stream time, in milliseconds; -1 before the first record with a timestamp."""
        self.written_ms = self._snapshot.about.get("written_ms", 0)
        """When the file was written last, in milliseconds since 1970: a file left from before may be old."""

    def close(self) -> None:
        """Release the file; may be called again."""
        self._snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_state(
    state_dir: str | Path, tp: TopicPartition | tuple[str, int], stores: Iterable[AnyStore] = ()
) -> StateSnapshot:
    """Return the state of a partition in a local directory, whether a member runs there or not.

    Args:
        state_dir: Directory of a `StatefulConsumer`.
        tp: The topic and the partition; of co-partitioned topics the first one in alphabetical order.
        stores: The named stores to be read, as its `StatefulConsumer` declares them.

    Raises:
        ConfigError: A store is not valid, or its values were written with a time to live and it has none, or vice
            versa.
        StoreError: There is no such state, or it cannot be read.
    """
    known, folder = stores_by_name(stores), Path(state_dir)
    topic, partition = tp
    (short,) = topic_names([topic])
    versions = [
        file
        for file in list_local_files(folder)
        if (file.topic, file.partition) == (short, partition) and not file.is_rest
    ]
    if not versions:
        raise StoreError(f"{topic}-{partition} has no local state in {folder}")
    # A recreated changelog has another ID, and the file of the former one is deleted at the member's next start.
    latest = max(versions, key=lambda file: file.modified_s)
    return StateSnapshot(folder / latest.name, known)
