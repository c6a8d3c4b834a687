"""`rackassign demo`: the same topic read twice on a real three-rack cluster, and what crossed racks each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rackassign.cli.progress import Steps, steps

RACKS = ("a", "b", "c")
PARTITIONS = 9
RECORDS, RECORD_BYTES = 400, 10_000
MONTH_GB = 100_000


@dataclass(frozen=True, slots=True)
class Run:
    """One reading of a topic.

    Args:
        strategy: Which assignor, as people call it.
        replication: Replicas of each partition.
        bytes_: Bytes fetched, by the reader's rack and the broker's.
    """

    strategy: str
    replication: int
    bytes_: Mapping[tuple[str, str], int]

    @property
    def local(self) -> float:
        """Share of the bytes that came from the reader's own rack."""
        return sum(size for (reader, source), size in self.bytes_.items() if reader == source) / self.total

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.bytes_.values())


def striped(partitions: int, replication: int, brokers: int) -> list[list[int]]:
    """Return replica lists that go round the brokers, as controllers lay out a new topic."""
    return [[(p + i) % brokers + 1 for i in range(replication)] for p in range(partitions)]


def demo(
    *,
    price: Annotated[
        float, typer.Option(min=0, help="USD for each GB between racks; AWS takes 0.01 on either side.")
    ] = 0.02,
) -> None:
    """Start a real three-rack Kafka, read a topic with and without rackassign, show the bytes measured."""
    with steps() as show:
        runs = _measure(show)
    _show(Console(highlight=False), runs, price)


def _measure(show: Steps) -> list[Run]:
    # Only this command needs a client and a cluster: the others start quicker, and without the extra.
    from kafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415

    from rackassign.cli.measure import MakeAssignor, fill, read_once  # noqa: PLC0415
    from rackassign.clients.kafka_python import RackAwareRangeAssignor  # noqa: PLC0415
    from rackassign.testing import LocalCluster, create_topic  # noqa: PLC0415

    strategies: dict[str, MakeAssignor] = {
        "kafka-python range": lambda _: RangePartitionAssignor(),
        "rackassign range": lambda rack: RackAwareRangeAssignor(rack=rack),
    }
    runs: list[Run] = []
    with LocalCluster(list(RACKS), progress=show.heard) as cluster:
        rack_of = {broker.id: broker.rack or "" for broker in cluster.brokers}
        for replication in (2, 3):
            topic = f"orders-rf{replication}"
            megabytes = PARTITIONS * RECORDS * RECORD_BYTES / 1e6
            show.say(f"Filling a topic: {PARTITIONS} partitions, {replication} replicas each, {megabytes:.0f} MB")
            create_topic(cluster.bootstrap, topic, striped(PARTITIONS, replication, len(RACKS)))
            fill(cluster.client_config(), topic, PARTITIONS, records=RECORDS, size=RECORD_BYTES)
            for strategy, make_assignor in strategies.items():
                show.say(f"Reading it with three consumers in three racks: {strategy}")
                reading = read_once(dict.fromkeys(RACKS, cluster.client_config()), topic, make_assignor)
                runs.append(Run(strategy, replication, reading.by_racks(rack_of)))
        show.say("Stopping the brokers")
    return runs


def _show(console: Console, runs: Sequence[Run], price: float) -> None:
    console.print(_pairs(runs))
    console.print(_summary(runs, price))
    for run in runs[::2]:
        if run.local == 1:
            console.print(
                f"RF {run.replication} in {len(RACKS)} racks: nothing to gain. Every rack has a replica of"
                " everything, so with follower fetching any assignor reads at home."
            )
    console.print(
        "Bytes of record batches as counted in the fetch responses. Same data, same client_rack, same brokers with"
        " RackAwareReplicaSelector in all runs: only the assignor differs.",
        style="dim",
    )


def _pairs(runs: Sequence[Run]) -> Table:
    table = Table(title="MB fetched, by rack of the consumer and rack of the broker")
    table.add_column("consumer")
    table.add_column("broker")
    for run in runs:
        table.add_column(f"RF {run.replication}\n{run.strategy}", justify="right")
    for reader in RACKS:
        for source in RACKS:
            cells = [f"{run.bytes_.get((reader, source), 0) / 1e6:.1f}" for run in runs]
            table.add_row(
                reader,
                source,
                *cells,
                style="green" if reader == source else None,
                end_section=source == RACKS[-1],
            )
    return table


def _summary(runs: Sequence[Run], price: float) -> Table:
    table = Table(title=f"Local share, and what crosses racks per 100 TB/month at {price:g} USD/GB")
    for column in ("topic", "before", "after", "cost before", "cost after", "saved"):
        table.add_column(column, justify="left" if column == "topic" else "right")
    for before, after in zip(runs[::2], runs[1::2], strict=True):
        cost_before, cost_after = (MONTH_GB * (1 - run.local) * price for run in (before, after))
        table.add_row(
            f"RF {before.replication}, {len(RACKS)} racks",
            f"{before.local:.1%}",
            f"{after.local:.1%}",
            f"{cost_before:,.0f} USD",
            f"{cost_after:,.0f} USD",
            f"{cost_before - cost_after:,.0f} USD",
        )
    return table
