"""`rackassign cluster` and `rackassign demo`: a real multi-rack cluster, and a topic written and read in it.

The demo measures what crossed racks. A running cluster can lose racks.
"""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from kafka import KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from rich.console import Console
from rich.table import Table

from rackassign.cli import ExitCode
from rackassign.cli.shared_options import CloudOption, PriceOption
from rackassign.cli.terminal import (
    Output,
    ProgressDisplay,
    check_output,
    examples,
    plain_line,
    progress_display,
    terminate_as_exit,
    warn,
)
from rackassign.clients.kafka_python import (
    RackAwareCooperativeStickyAssignor,
    RackAwareProducer,
    RackAwareRangeAssignor,
)
from rackassign.errors import ConfigError
from rackassign.model import TOPIC_NAME
from rackassign.monitoring import Price
from rackassign.testing import LocalCluster, create_topic
from rackassign.testing.demo import (
    TOPIC,
    MakeAssignor,
    consume_topic,
    demo_group,
    produce_records,
    produce_without_keys,
)
from rackassign.testing.registry import ControlServer, find_registered, register, send_request
from rackassign.text import counted, join_ids, parse_digits, short_repr

if TYPE_CHECKING:
    from rackassign.testing.registry import RackChange


RACKS = ("a", "b", "c")
PARTITIONS = 9
RECORDS, RECORD_BYTES = 400, 10_000
MONTH_GB = 100_000

_WRITTEN_RF = 2
"""Replicas of the topic that is written: of its leaders each rack has a third."""

# All three members join before the first generation; without that some groups would be made a second time.
_CONFIG = {"group.initial.rebalance.delay.ms": "1000"}


@dataclass(frozen=True, slots=True)
class Run:
    """One reading of a topic."""

    strategy: str
    replication: int
    bytes_: Mapping[tuple[str, str], int]
    moved: int

    @property
    def local(self) -> float:
        """Share of the bytes that came from the reader's own rack."""
        return _local(self.bytes_)


def _local(bytes_: Mapping[tuple[str, str], int]) -> float:
    """Return the share of the bytes whose racks are equal."""
    return sum(size for (one, other), size in bytes_.items() if one == other) / sum(bytes_.values())


def striped(partitions: int, replication: int, brokers: int) -> list[list[int]]:
    """Return replica lists that go round the brokers, each round starting one further.

    Without that step, partitions dealt out in turn to members that stand in the order of the brokers would all be
    local by luck; with it an assignor that does not know racks has what it has on average.
    """
    return [[(p + p // brokers + i) % brokers + 1 for i in range(replication)] for p in range(partitions)]


demo_app = typer.Typer(rich_markup_mode=None)


@demo_app.command(
    epilog=examples(
        "demo",
    )
)
def demo(
    *,
    price: PriceOption = None,
    cloud: CloudOption = None,
) -> None:
    """Start a real three-rack Kafka, read a topic with and without rackassign, and print the bytes measured."""
    usd_per_gb = Price.from_options(price, cloud).usd_per_gb
    with progress_display() as show:
        runs, written = _measure(show)
    _show(Console(highlight=False), runs, written, usd_per_gb)


def _measure(show: ProgressDisplay) -> tuple[list[Run], dict[str, float]]:
    """Return what was read, and the local share of what was written, by producer."""
    # Only this command needs a client and a cluster: the others start quicker, and without the extra.

    strategies: dict[str, MakeAssignor] = {
        "kafka-python range": lambda _: RangePartitionAssignor(),
        "kafka-python cooperative": lambda _: CooperativeStickyAssignor(),
        "rackassign range": lambda rack: RackAwareRangeAssignor(rack=rack),
        "rackassign cooperative": lambda rack: RackAwareCooperativeStickyAssignor(rack=rack),
    }
    runs: list[Run] = []
    written: dict[str, float] = {}
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
        leaders = [rack_of[replicas[0]] for replicas in striped(PARTITIONS, _WRITTEN_RF, len(RACKS))]
        create_topic(cluster.bootstrap, "payments", striped(PARTITIONS, _WRITTEN_RF, len(RACKS)))
        config = {**cluster.client_config(), "linger_ms": 20}
        for name, producers in {
            "kafka-python": {rack: partial(KafkaProducer, **config) for rack in RACKS},
            "rackassign": {rack: partial(RackAwareProducer, client_rack=rack, **config) for rack in RACKS},
        }.items():
            show.show_step(f"Writing records without a key with three producers in three racks: {name}")
            sent = produce_without_keys(producers, "payments", records=RECORDS, size=RECORD_BYTES)
            written[name] = _local({(rack, leaders[partition]): size for (rack, partition), size in sent.items()})
        show.show_step("Stopping the brokers")
    return runs, written


def _show(console: Console, runs: Sequence[Run], written: Mapping[str, float], price: float) -> None:
    console.print(_pairs([run for run in runs if run.replication < len(RACKS)]))
    console.print(_summary(runs, price))
    console.print(_both_halves(runs, written, price))
    console.print(
        f"RF {len(RACKS)} in {len(RACKS)} racks: nothing to gain. Every rack has a replica of everything, so with"
        " follower fetching any assignor reads locally."
    )
    console.print(
        "Read are bytes of record batches as counted in the fetch responses, written are bytes that brokers have"
        " acknowledged. Same data, same client_rack, same brokers with RackAwareReplicaSelector in all runs: only the"
        " assignor differs, and the producer.",
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


def _both_halves(runs: Sequence[Run], written: Mapping[str, float], price: float) -> Table:
    """Return what crosses racks when the same is written and read, with the defaults of kafka-python and without."""
    read = {run.strategy: run.local for run in runs if run.replication == _WRITTEN_RF}
    sides = {
        "KafkaProducer, KafkaConsumer (range)": (written["kafka-python"], read["kafka-python range"]),
        "RackAwareProducer, RackAwareConsumer": (written["rackassign"], read["rackassign cooperative"]),
    }
    table = Table(title=f"Across racks with RF {_WRITTEN_RF}, cost of 100 TB/month written and read")
    for column in ("clients", "written", "read", "cost"):
        table.add_column(column, justify="left" if column == "clients" else "right")
    for name, local in sides.items():
        cross = [1 - share for share in local]
        table.add_row(name, *(f"{share:.1%}" for share in cross), f"{MONTH_GB * sum(cross) * price:,.0f} USD")
    return table


PORT = 9092
"""The port of the first broker, as in Kafka's own examples."""

_PORTS = 65_536
_RF = 3
_MOST_PARTITIONS = 10_000
"""A controller refuses to create more at once."""

_DEMO_RF = 2
_DEMO_PARTITIONS = 3
"""Partitions of the demo's topic for each broker."""

_SHORT_RETENTION_CHECK = {"log.retention.check.interval.ms": "10000"}
"""With it the demo's topic stays within some 3 MiB for each replica; Kafka's default is five minutes."""

app = typer.Typer(help="A local multi-rack Kafka to play with.", rich_markup_mode=None)

Name = Annotated[str, typer.Option(help="Name of the cluster, if there is more than one.")]
Rack = Annotated[str, typer.Argument(help="Rack of the cluster.")]


@app.command(
    epilog=examples(
        "cluster up --with-demo-group",
        "cluster up --racks a,a,b,b --port 9192 --create-topic orders:12:3 --name second",
        "cluster up --kafka-version 3.9",
    )
)
def up(
    *,
    racks: Annotated[
        str, typer.Option(help="Rack of each broker, separated by commas; an empty one is no rack.")
    ] = "a,b,c",
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the first broker; the others have the next ones.")
    ] = PORT,
    create_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--create-topic", help="Topic to create: NAME, NAME:PARTITIONS or NAME:PARTITIONS:REPLICAS. Repeatable."
        ),
    ] = None,
    with_demo_group: Annotated[
        bool,
        typer.Option("--with-demo-group", help="Run a consumer group that reads across racks, and a producer for it."),
    ] = False,
    kafka_version: Annotated[
        str | None,
        typer.Option(
            help="Version of Kafka: 3.9.2, or 3.9 for its last patch release; separated by commas, one for each broker."
        ),
    ] = None,
    broker_plugin: Annotated[
        bool, typer.Option("--broker-plugin", help="Have the brokers load rackassign's assignor for KIP-848 groups.")
    ] = False,
    name: Name = "default",
    output: Output = "table",
) -> int:
    """Start a cluster and keep it running until Ctrl-C or `rackassign cluster down`."""
    check_output(output, "table", "json")
    wanted = [rack.strip() or None for rack in racks.split(",")]
    topics = _topics(create_topic or (), len(wanted))
    if port + len(wanted) > _PORTS:
        raise ConfigError(f"port: {port} leaves too few ports for {len(wanted)} brokers")
    if with_demo_group:
        _check_demo(wanted, topics)
    with terminate_as_exit(), progress_display() as show, ExitStack() as opened:
        config = _SHORT_RETENTION_CHECK if with_demo_group else {}
        cluster = LocalCluster(
            wanted,
            config=config,
            progress=show.on_progress,
            first_port=port,
            kafka_version=None if kafka_version is None else _versions(kafka_version),
            broker_plugins=broker_plugin,
        )
        # Options are checked before, whether or not another cluster has the name.
        registration = opened.enter_context(register(name))
        opened.enter_context(cluster)
        for refused, why in sorted(cluster.refused_ports.items()):
            broker = cluster.brokers[refused - port]
            warn(f"port {refused} is not free ({why}): broker {broker.id} has port {broker.port}")
        if topics:
            show.show_step(f"Creating {counted(len(topics), 'topic')}")
        _create(cluster, topics)
        if with_demo_group:
            show.show_step("Starting a consumer group and a producer")
            opened.enter_context(_demo_group(cluster))
        control = opened.enter_context(closing(ControlServer(cluster)))
        registration.announce(control.address)
        show.show_step("Up; Ctrl-C ends it")
        _print(cluster, _Shown(name, bool(topics), with_demo_group), output)
        control.serve()


@app.command(
    epilog=examples(
        "cluster down",
        "cluster down --name second",
    )
)
def down(*, name: Name = "default") -> int:
    """Stop a cluster that `rackassign cluster up` keeps running in another process. Exit 1: there is none."""
    with find_registered(name) as found:
        if found is None:
            return _not_up(name)
        found.end()
    return ExitCode.DONE


@app.command(
    "kill-rack",
    epilog=examples(
        "cluster kill-rack b",
    ),
)
def kill_rack(rack: Rack, *, name: Name = "default", output: Output = "table") -> int:
    """Kill all brokers of a rack of a running cluster, as a crash does. Exit 1: they are down already."""
    return _change_rack("kill-rack", rack, name, output)


@app.command(
    "start-rack",
    epilog=examples(
        "cluster start-rack b",
    ),
)
def start_rack(rack: Rack, *, name: Name = "default", output: Output = "table") -> int:
    """Start the brokers of a rack that are down, and wait until they are ready. Exit 1: they are up already."""
    return _change_rack("start-rack", rack, name, output)


def _change_rack(command: str, rack: str, name: str, output: str) -> int:
    check_output(output, "table", "json")

    with find_registered(name) as cluster:
        if cluster is None:
            return _not_up(name)
        if cluster.address is None:
            raise ConfigError(f"the cluster {name!r} is still starting; try again")
        change = send_request(cluster.address, command, rack)
    if output == "json":
        written = {"rack": rack, "changed": change.changed, "running": change.running}
        sys.stdout.write(json.dumps(written) + "\n")
    elif change.changed:
        Console(highlight=False).print(plain_line(_changed(command, change)), soft_wrap=True)
    if not change.changed:
        warn(f"rack {rack!r} is {'down' if command == 'kill-rack' else 'up'} already")
        return ExitCode.NO
    return ExitCode.DONE


def _changed(command: str, change: RackChange) -> str:
    brokers = f"{'broker' if len(change.changed) == 1 else 'brokers'} {join_ids(change.changed)}"
    verb = "killed" if command == "kill-rack" else "started"
    return f"rack {change.rack}: {brokers} {verb}; up are {join_ids(change.running) or 'none'}"


def _not_up(name: str) -> int:
    warn(f"no cluster {name!r} is up")
    return ExitCode.NO


class _Shown(NamedTuple):
    """What the output of `up` depends on, beside the cluster: its name, and what was created in it."""

    name: str
    topics: bool
    demo_group: bool


class _Topic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int
    replicas: int


def _topics(texts: Sequence[str], brokers: int) -> list[_Topic]:
    """Return the topics to create."""
    topics: dict[str, _Topic] = {}
    for text in texts:
        topic = _topic(text, brokers)
        if topic.name in topics:
            raise ConfigError(f"create-topic: the topic {topic.name} is given twice")
        topics[topic.name] = topic
    return list(topics.values())


def _topic(text: str, brokers: int) -> _Topic:
    """Return the topic of NAME:PARTITIONS:REPLICAS, of which the numbers may be missing."""
    name, *counts = text.split(":")
    numbers = [number for count in counts if (number := parse_digits(count))]
    if not name or len(counts) > 2 or len(numbers) < len(counts):  # noqa: PLR2004 - two numbers
        raise ConfigError(f"create-topic: expected NAME:PARTITIONS:REPLICAS, got {short_repr(text)}")
    if not TOPIC_NAME.fullmatch(name):
        raise ConfigError(f"create-topic: {short_repr(name)} is not the name of a topic")
    partitions, replicas = (*numbers, *(1, min(_RF, brokers))[len(numbers) :])
    if replicas > brokers:
        raise ConfigError(f"create-topic: {text} has more replicas than the cluster has brokers ({brokers})")
    if partitions > _MOST_PARTITIONS:
        raise ConfigError(f"create-topic: {text} has more than {_MOST_PARTITIONS} partitions")
    return _Topic(name, partitions, replicas)


def _versions(text: str) -> str | list[str]:
    """Return what `LocalCluster` takes: one version, or a list with one for each broker."""
    versions = [version.strip() for version in text.split(",")]
    return versions if len(versions) > 1 else versions[0]


def _create(cluster: LocalCluster, topics: Sequence[_Topic]) -> None:

    for topic in topics:
        create_topic(cluster.bootstrap, topic.name, striped(topic.partitions, topic.replicas, len(cluster.brokers)))


def _check_demo(racks: Sequence[str | None], topics: Sequence[_Topic]) -> None:

    if not any(racks):
        raise ConfigError("--with-demo-group needs a rack: its members are in the racks of the brokers")
    if any(topic.name == TOPIC for topic in topics):
        raise ConfigError(f"--with-demo-group creates the topic {TOPIC} itself")


def _demo_group(cluster: LocalCluster) -> AbstractContextManager[None]:

    # That racks are killed is what the cluster is for; kafka-python logs each connection that fails.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    brokers = len(cluster.brokers)
    racks = sorted({broker.rack for broker in cluster.brokers if broker.rack is not None})
    replicas = striped(_DEMO_PARTITIONS * brokers, min(_DEMO_RF, brokers), brokers)
    return demo_group(cluster.client_config(), racks, replicas)


def _print(cluster: LocalCluster, options: _Shown, output: str) -> None:
    if output == "json":
        brokers = [
            {"id": b.id, "rack": b.rack, "host": b.host, "port": b.port, "kafka_version": cluster.versions[b.id]}
            for b in cluster.brokers
        ]
        sys.stdout.write(json.dumps({"bootstrap": cluster.bootstrap, "brokers": brokers}) + "\n")
        sys.stdout.flush()
        return
    console = Console(highlight=False)
    console.print("bootstrap", cluster.bootstrap, soft_wrap=True)
    table = Table()
    for column in ("broker", "rack", "address", "Kafka"):
        table.add_column(column)
    for broker in cluster.brokers:
        address, version = f"{broker.host}:{broker.port}", cluster.versions[broker.id]
        table.add_row(str(broker.id), plain_line(broker.rack or "-"), address, version)
    console.print(table)
    console.print("In another terminal:")
    for command in _next_commands(cluster, options):
        console.print(plain_line(f"  rackassign {command}"), soft_wrap=True)
    sys.stdout.flush()


def _next_commands(cluster: LocalCluster, options: _Shown) -> Iterator[str]:
    """Yield what a newcomer can type next."""
    access = f"--bootstrap-server localhost:{cluster.brokers[0].port}"
    if options.demo_group:
        yield f"inspect {access} --all-groups"
        yield f"top {access} --all-groups"
    elif options.topics:
        yield f"audit {access}"
    else:
        fewer = f" --replication-factor {len(cluster.brokers)}" if len(cluster.brokers) < _RF else ""
        yield f"create-topic orders --partitions 12{fewer} {access}"
    named = "" if options.name == "default" else f" --name {options.name}"
    # The commands above connect to the first broker, so its rack stays up.
    first = cluster.brokers[0].rack
    racks = [broker.rack for broker in cluster.brokers if broker.rack is not None and broker.rack != first]
    if racks:
        yield f"cluster kill-rack {shlex.quote(racks[-1])}{named}"
    yield f"cluster down{named}"
