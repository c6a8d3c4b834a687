"""Tasks of the source, without Spark and without brokers.

Slots are counted once the executors of a new application have registered.

The finders of Spark's archives in a worker process.
"""

from __future__ import annotations

import importlib
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipimport import zipimporter

import pytest

from rackassign.model import TopicPartition
from rackassign.spark import _tasks as task
from rackassign.spark._options import Options
from rackassign.spark._splits import OffsetRange, Split
from rackassign.spark._tasks import (
    SplitPartition,
    await_executors,
    drop_spark_path_finders,
    read_partition,
    total_slots,
)


class Pool:
    """A pool of one consumer that reads nothing; keeps its racks, and the partitions that it is borrowed for."""

    def __init__(self) -> None:
        self.racks: list[str | None] = []
        self.tps: list[TopicPartition] = []

    @contextmanager
    def borrow(self, settings: Mapping[str, Any], tps: Sequence[TopicPartition], _timeout_s: float) -> Iterator[Pool]:
        self.racks.append(settings.get("client.rack"))
        self.tps += tps
        yield self


def splits(count: int) -> list[Split]:
    """Splits without offsets, so that there is nothing to wait for."""
    return [Split(OffsetRange(TopicPartition("t", number), 0, 0), ("a",), 0, 1 << number) for number in range(count)]


@pytest.mark.parametrize(("rack", "warnings"), [("a", 0), (None, 1)])
def test_a_task_reads_the_rack_of_its_executor_once(
    rack: str | None, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = Pool()
    monkeypatch.setattr(task, "consumers_of_this_process", lambda: pool)
    monkeypatch.setattr(task, "read", lambda *_: iter(()))
    monkeypatch.setenv("RACKASSIGN_RACK", rack or "")
    options = Options.of({"kafka.bootstrap.servers": "k:1", "subscribe": "t"}, "batch")
    assert list(read_partition(options, SplitPartition(splits(3)), ("value",))) == []
    assert (pool.racks, pool.tps) == ([rack] * 3, [split.range.tp for split in splits(3)])
    assert sum("RACKASSIGN_RACK is not set on this executor" in each for each in caplog.messages) == warnings


STANDALONE = "spark://host:7077"


def session(master: str = STANDALONE, age_s: float = 0.0) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, startTime=(time.time() - age_s) * 1000))


class Slots:
    """Slots that come one after the other, each time that somebody waits."""

    def __init__(self, *counts: int | None) -> None:
        self._counts = list(counts)
        self.waited = 0

    def count(self, _: Any) -> int | None:
        return self._counts[0]

    def sleep(self, _: float) -> None:
        self.waited += 1
        if len(self._counts) > 1:
            self._counts.pop(0)


def test_executors_of_a_new_application_are_awaited_until_no_more_come() -> None:
    slots = Slots(0, 0, 1, *[1] * 15, 8, 24)
    await_executors(session(), slots.count, slots.sleep)
    assert slots.count(None) == 24
    assert 19 + 20 <= slots.waited <= 19 + 21


@pytest.mark.parametrize(
    ("spark", "slots"),
    [
        (session(age_s=31), Slots(0)),
        (session("local[4]"), Slots(4)),
        (session(), Slots(None)),
        (object(), Slots(3)),
    ],
)
def test_otherwise_nothing_is_awaited(spark: Any, slots: Slots) -> None:
    await_executors(spark, slots.count, slots.sleep)
    assert slots.waited == 0


def test_without_any_executor_the_wait_ends_with_the_start_of_the_application() -> None:
    slots = Slots(0)

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        slots.sleep(seconds)

    await_executors(session(age_s=29.95), slots.count, sleep)
    assert 0 < slots.waited < 20


def test_slots_that_are_not_reported_are_unknown() -> None:
    assert total_slots(session()) is None


def _archive(file: Path, package: str) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{package}/__init__.py", "")
        archive.writestr(f"{package}/first.py", "")
        archive.writestr(f"{package}/second.py", "number = 2\n")
    return file


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.5.jar"])
def test_finders_of_archives_of_spark_are_removed(tmp_path: Path, name: str) -> None:
    archive = _archive(tmp_path / name, "package")
    paths = [str(archive), f"{archive}/package"]
    finders: dict[str, Any] = {path: zipimporter(path) for path in paths}
    drop_spark_path_finders(finders)
    assert not finders


@pytest.mark.parametrize("name", ["mine.zip", "my-pyspark.zip", "py4j.zip", "spark-sql_2.13-4.0.5.jar", "a.jar"])
def test_finders_of_other_archives_and_of_folders_stay(tmp_path: Path, name: str) -> None:
    # An archive of the user may be replaced by another one of the same name, which only its finder notices.
    finders: dict[str, Any] = {
        "archive": zipimporter(str(_archive(tmp_path / name, "package"))),
        "folder": importlib.machinery.FileFinder(str(tmp_path)),
        "nothing": None,
    }
    before = dict(finders)
    drop_spark_path_finders(finders)
    assert finders == before


def test_modules_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "rackassign_test_of_finders"
    archive = str(_archive(tmp_path / "pyspark.zip", package))
    monkeypatch.setattr(sys, "path", [archive, *sys.path])
    try:
        importlib.import_module(f"{package}.first")
        assert f"{archive}/{package}" in sys.path_importer_cache
        drop_spark_path_finders()
        assert not [path for path in sys.path_importer_cache if path.startswith(archive)]
        assert importlib.import_module(f"{package}.second").number == 2
    finally:
        for module in [name for name in sys.modules if name.startswith(package)]:
            del sys.modules[module]
        for path in [path for path in sys.path_importer_cache if path.startswith(archive)]:
            del sys.path_importer_cache[path]
