"""Local files with damaged pages: they are set aside, and nothing of their partitions or others is lost or doubled."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rackassign.errors import RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.faulty_files import FULL, PAGE, FaultyFiles, overwrite
from tests.helpers.stateful_consumers import FIRST, count, counted, drain, give, member, settle

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
    """Check that a damaged file was renamed, with one warning, which names it."""
    assert file.stat().st_size > 300 * PAGE
    (text,) = warnings(caplog, file)
    assert f"it is renamed to {file.name}.damaged, and the state of t-0 is restored from its changelog" in text
    assert [each.name for each in file.parent.glob("*.damaged")] == [f"{file.name}.damaged"]


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
        # Once more: of each partition one file is kept.
        overwrite(file)
        kafka.feed(0, MANY)
        settle(one)
        assert state_of(one) == kept(3 * MANY)
        assert len(list((tmp_path / "1").glob("*.damaged"))) == 1
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
        (lambda: sqlite3.DatabaseError("database disk image is malformed"), "it is renamed to"),
        (lambda: sqlite3.DatabaseError("file is not a database"), "it is renamed to"),
        (lambda: sqlite3.OperationalError("disk I/O error"), "it is renamed to"),
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
    # A new file that fails while it is opened is not renamed as well.
    assert 1 <= len(said) <= (lasting if "renamed" in noted else 1)
    assert len(list(tmp_path.glob("*.damaged"))) == ("renamed" in noted)
