"""`rackassign demo`: the same topic read by four assignors on a real three-rack cluster, and what crossed racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from rackassign.cli.group_options import CloudOption, PriceOption
from rackassign.cli.progress import ProgressDisplay, progress_display

RACKS = ("a", "b", "c")
PARTITIONS = 9
RECORDS, RECORD_BYTES = 400, 10_000
MONTH_GB = 100_000

# All three members join before the first generation; without that some groups would be made a second time.
_CONFIG = {"group.initial.rebalance.delay.ms": "1000"}


@dataclass(frozen=True, slots=True)
class Run:
    """One reading of a topic.

    Args:
        strategy: Which assignor, as people call it.
        replication: Replicas of each partition.
        bytes_: Bytes fetched, by the reader's rack and the broker's.
        moved: Partitions that changed hands when a fourth consumer joined.
    """

    strategy: str
    replication: int
    bytes_: Mapping[tuple[str, str], int]
    moved: int

    @property
    def local(self) -> float:
        """Share of the bytes that came from the reader's own rack."""
        return sum(size for (reader, source), size in self.bytes_.items() if reader == source) / self.total

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.bytes_.values())


def striped(partitions: int, replication: int, brokers: int) -> list[list[int]]:
    """Return replica lists that go round the brokers, each round starting one further.

    Without that step, partitions dealt out in turn to members that stand in the order of the brokers would all be
    local by luck; with it an assignor that does not know racks has what it has on average.
    """
    return [[(p + p // brokers + i) % brokers + 1 for i in range(replication)] for p in range(partitions)]


def demo(
    *,
    price: PriceOption = None,
    cloud: CloudOption = None,
) -> None:
    """Start a real three-rack Kafka, read a topic with and without rackassign, and print the bytes measured."""
    # Imports a client, which other commands do without.
    from rackassign.monitoring import Price  # noqa: PLC0415

    usd_per_gb = Price.from_options(price, cloud).usd_per_gb
    with progress_display() as show:
        runs = _measure(show)
    _show(Console(highlight=False), runs, usd_per_gb)


def _measure(show: ProgressDisplay) -> list[Run]:
    # Only this command needs a client and a cluster: the others start quicker, and without the extra.
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor  # noqa: PLC0415
    from kafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415

    from rackassign.clients.kafka_python import (  # noqa: PLC0415
        RackAwareCooperativeStickyAssignor,
        RackAwareRangeAssignor,
    )
    from rackassign.testing import LocalCluster, create_topic  # noqa: PLC0415
    from rackassign.testing.measured_read import MakeAssignor, consume_topic, produce_records  # noqa: PLC0415

    strategies: dict[str, MakeAssignor] = {
        "kafka-python range": lambda _: RangePartitionAssignor(),
        "kafka-python cooperative": lambda _: CooperativeStickyAssignor(),
        "rackassign range": lambda rack: RackAwareRangeAssignor(rack=rack),
        "rackassign cooperative": lambda rack: RackAwareCooperativeStickyAssignor(rack=rack),
    }
    runs: list[Run] = []
    with LocalCluster(list(RACKS), config=_CONFIG, progress=show.on_progress) as cluster:
        rack_of = {broker.id: broker.rack or "" for broker in cluster.brokers}
        for replication in (2, 3):
            topic = f"orders-rf{replication}"
            megabytes = PARTITIONS * RECORDS * RECORD_BYTES / 1e6
            show.show_step(f"Filling a topic: {PARTITIONS} partitions, {replication} replicas each, {megabytes:.0f} MB")
            create_topic(cluster.bootstrap, topic, striped(PARTITIONS, replication, len(RACKS)))
            produce_records(cluster.client_config(), topic, PARTITIONS, records=RECORDS, size=RECORD_BYTES)
            for strategy, make_assignor in strategies.items():
                show.show_step(f"Reading it with three consumers in three racks, then a fourth joins: {strategy}")
                clients = dict.fromkeys(RACKS, cluster.client_config())
                reading = consume_topic(clients, topic, make_assignor, joining=RACKS[0], at_once=True)
                runs.append(Run(strategy, replication, reading.by_racks(rack_of), reading.moved or 0))
        show.show_step("Stopping the brokers")
    return runs


def _show(console: Console, runs: Sequence[Run], price: float) -> None:
    console.print(_pairs([run for run in runs if run.replication < len(RACKS)]))
    console.print(_summary(runs, price))
    console.print(
        f"RF {len(RACKS)} in {len(RACKS)} racks: nothing to gain. Every rack has a replica of everything, so with"
        " follower fetching any assignor reads locally."
    )
    console.print(
        "Bytes of record batches as counted in the fetch responses. Same data, same client_rack, same brokers with"
        " RackAwareReplicaSelector in all runs: only the assignor differs.",
        style="dim",
    )


def _pairs(runs: Sequence[Run]) -> Table:
    table = Table(title=f"MB fetched with RF {runs[0].replication}, by rack of the consumer and rack of the broker")
    table.add_column("consumer")
    table.add_column("broker")
    for run in runs:
        table.add_column(run.strategy.replace(" ", "\n", 1), justify="right")
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
    table = Table(title=f"Local share, cost of 100 TB/month at {price:g} USD/GB, moves for a fourth member")
    for column in ("topic", "assignor", "local", "cost", f"moved of {PARTITIONS}"):
        table.add_column(column, justify="left" if column in {"topic", "assignor"} else "right")
    for i, run in enumerate(runs):
        first = i == 0 or runs[i - 1].replication != run.replication
        last = i + 1 == len(runs) or runs[i + 1].replication != run.replication
        table.add_row(
            f"RF {run.replication}, {len(RACKS)} racks" if first else "",
            run.strategy,
            f"{run.local:.1%}",
            f"{MONTH_GB * (1 - run.local) * price:,.0f} USD",
            str(run.moved),
            end_section=last,
        )
    return table
