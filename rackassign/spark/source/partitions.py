"""Input partitions: what a task reads, decided when the query is planned or by the task itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from rackassign.spark.options import Options
from rackassign.spark.planner import Planner
from rackassign.spark.splits import Split
from rackassign.spark.task import batches, rack_here

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from rackassign.spark.pull.protocol import Desk


class Piece(InputPartition):
    """What one task reads.

    Args:
        split: Which.
    """

    def __init__(self, split: Split) -> None:
        super().__init__(None)
        self.split = split


class Pull(InputPartition):
    """A task that asks for what it reads.

    Args:
        desk: Where.
        task: Its index.
    """

    def __init__(self, desk: Desk, task: int) -> None:
        super().__init__(None)
        self.desk = desk
        self.task = task


def read_piece(options: Options, piece: InputPartition, names: Sequence[str]) -> Iterator[RecordBatch]:
    """Yield the rows of a task; Spark makes a task of nothing where there are no splits."""
    if isinstance(piece, Piece):
        yield from batches(options, piece.split, names)
    elif isinstance(piece, Pull):
        from rackassign.spark.pull.client import pulled  # noqa: PLC0415 - most do without

        for split in pulled(piece.desk, piece.task, rack_here(options), options.coordinator_timeout_s):
            yield from batches(options, split, names)


def planner(options: Options) -> Planner:
    """Return what plans for these options, connected to the brokers."""
    from rackassign.spark.metadata import Cluster  # noqa: PLC0415 - not where rows are read
    from rackassign.spark.record_sampling import sample  # noqa: PLC0415

    return Planner(options, Cluster(options.client), lambda wanted: sample(options.client, wanted))
