"""One checkpoint, read on by the JVM source and by ours in turn: each record is in the result once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rackassign.testing import Cluster
from rackassign.testing._topics import create_topic
from rackassign.testing.pytest_plugin import MakeTopic
from tests.helpers.kafka.spark_harness import far, fill, grow, known_everywhere, lose_last_commit

pytestmark = [pytest.mark.brokers, pytest.mark.local, pytest.mark.spark_faults]

SPREAD = [[1, 2], [2, 3], [3, 1]]
LATE = ("rackassign", {"rackBinding": "executor"})
PULL = ("rackassign", {"rackBinding": "pull", "maxRecordsPerPartition": "50"})
JVM: tuple[str, dict[str, str]] = ("kafka", {})
LIMITED = ("kafka", {"maxOffsetsPerTrigger": "100"})

Leg = tuple[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with far() as running:
        yield running.spark


class Travel:
    """A topic, perhaps more of them, and the query that reads them, now by this source and now by that."""

    def __init__(self, spark: Any, cluster: Cluster, topic: str, folder: Path) -> None:
        self.spark = spark
        self.cluster = cluster
        self.topic = topic
        self.folder = folder
        self.written: Counter[tuple[str, int]] = Counter()

    def write(self, topic: str, counts: Mapping[int, int]) -> None:
        for partition, count in counts.items():
            fill(self.cluster, topic, {partition: count}, first=self.written[topic, partition])
            self.written[topic, partition] += count

    def frame(self, leg: Leg) -> Any:
        source, options = leg
        told = {"subscribePattern": f"{self.topic}.*", "startingOffsets": "earliest", **options}
        reader = self.spark.readStream.format(source).option("kafka.bootstrap.servers", self.cluster.bootstrap)
        return reader.options(**told).load()

    def go(self, leg: Leg) -> list[int]:
        """Run to the end of what there is, into Parquet; return the rows of the batches."""
        writer = self.frame(leg).select("topic", "partition", "offset").writeStream.format("parquet")
        writer = writer.option("path", str(self.folder / "rows"))
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def everything(self) -> list[tuple[str, int, int]]:
        return sorted((*place, offset) for place, count in self.written.items() for offset in range(count))

    def arrived(self) -> list[tuple[str, int, int]]:
        return sorted(map(tuple, self.spark.read.parquet(str(self.folder / "rows")).collect()))

    def last_offset(self) -> dict[str, dict[str, int]]:
        """Return the offset that the last batch has left in the checkpoint."""
        last = max(int(path.name) for path in (self.checkpoint / "offsets").iterdir() if path.name.isdigit())
        found: dict[str, dict[str, int]] = json.loads(
            (self.checkpoint / f"offsets/{last}").read_text().splitlines()[-1]
        )
        return found


@pytest.fixture
def travel(spark: Any, rack_cluster: Cluster, make_topic: MakeTopic, tmp_path: Path) -> Travel:
    topic = make_topic(replicas=SPREAD)
    known_everywhere(rack_cluster, topic, 3)
    return Travel(spark, rack_cluster, topic, tmp_path)


def more_topics(travel: Travel, name: str) -> Callable[[], None]:
    def add() -> None:
        create_topic(travel.cluster.bootstrap, travel.topic + name, SPREAD)
        known_everywhere(travel.cluster, travel.topic + name, 3)
        travel.write(travel.topic + name, {0: 7, 2: 120})

    return add


def more_partitions(travel: Travel, count: int) -> Callable[[], None]:
    def add() -> None:
        grow(travel.cluster, travel.topic, count)
        travel.write(travel.topic, {count - 1: 40})

    return add


@pytest.mark.parametrize("jvm", [JVM, LIMITED], ids=["all", "limited"])
def test_a_checkpoint_goes_to_and_fro(travel: Travel, jvm: Leg) -> None:
    for leg, change in (
        (jvm, None),
        (LATE, more_partitions(travel, 4)),
        (jvm, more_topics(travel, "-x")),
        (PULL, more_topics(travel, "-y")),
        (jvm, more_partitions(travel, 6)),
        (LATE, None),
        # Without anything new in between.
        (jvm, None),
        (PULL, None),
    ):
        travel.write(travel.topic, {0: 300, 1: 80, 2: 1})
        if change is not None:
            change()
        batches = travel.go(leg)
        assert batches
        assert (len(batches) > 1) == (leg == LIMITED)
        assert travel.arrived() == travel.everything()
        wanted: dict[str, dict[str, int]] = {}
        for (topic, partition), count in travel.written.items():
            wanted.setdefault(topic, {})[str(partition)] = count
        found = travel.last_offset()
        # Partitions without records are there too.
        assert {t: {p: offset for p, offset in each.items() if offset} for t, each in found.items()} == wanted


@pytest.mark.parametrize(("first", "second"), [(JVM, LATE), (JVM, PULL), (LATE, JVM), (PULL, JVM), (LATE, PULL)])
def test_a_batch_whose_commit_is_lost_is_delivered_again_the_same_by_the_other(
    travel: Travel, first: Leg, second: Leg
) -> None:
    seen: dict[int, list[list[Any]]] = {}

    def take(rows: Any, batch: int) -> None:
        found = sorted(rows.collect(), key=lambda row: (row.topic, row.partition, row.offset))
        seen.setdefault(batch, []).append(found)

    def run(leg: Leg) -> None:
        writer = travel.frame((leg[0], {**leg[1], "includeHeaders": "true"})).writeStream.foreachBatch(take)
        # With availableNow=True a Python source gets one batch before Spark 4.2, and that may be an old one.
        query = writer.option("checkpointLocation", str(travel.checkpoint)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    for number in range(2):
        travel.write(travel.topic, {0: 200, 1: 50 * number})
        run(first)
    last = lose_last_commit(travel.checkpoint)
    travel.write(travel.topic, {0: 50, 2: 9})
    run(second)
    assert len(seen[last]) == 2
    assert seen[last][0] == seen[last][1]
    everything = [(row.topic, row.partition, row.offset) for batches in seen.values() for row in batches[-1]]
    assert sorted(everything) == travel.everything()


def test_offsets_in_the_checkpoint_are_those_of_the_jvm_source(travel: Travel, tmp_path: Path) -> None:
    travel.write(travel.topic, {0: 30, 2: 5})
    more_topics(travel, "-x")()
    told: list[list[Any]] = []
    for leg in (JVM, LATE, PULL):
        apart = Travel(travel.spark, travel.cluster, travel.topic, tmp_path / f"{len(told)}")
        apart.go(leg)
        lines = (apart.checkpoint / "offsets/0").read_text().splitlines()
        written = json.loads(lines[-1])
        # Ours has the start of the query there too, as a topic without partitions; the JVM source has it in a file.
        assert len([name for name in written if not written[name]]) == (0 if leg is JVM else 1)
        told.append([lines[0], len(lines), {name: row for name, row in written.items() if row}])
    assert told[0] == told[1] == told[2]
