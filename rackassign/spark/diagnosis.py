"""What keeps a Spark application from reading at home, and how much it could."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rackassign.model import Partition
from rackassign.racks import RACK_VARIABLE
from rackassign.spark.expected_locality import Executor, ExpectedLocality, shares
from rackassign.spark.options import Options, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD_S = 0.5
"""So long each task keeps its slot, so that others get the next: executors can only be met, not listed."""

_TASKS_PER_SLOT = 3
_WAITING = 1024
"""Connections that may stand in line; each is one task's, and nobody answers them."""
_SELECTOR = "replica.selector.class"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found.

    Args:
        topic: What is to be read.
        executors: Those that tasks came to.
        broker_racks: Racks with brokers, sorted.
        brokers_without_rack: Their ids.
        replicas: The least and the most racks that a partition has replicas in.
        followers: Whether brokers let followers be read; None if they do not tell.
        expected: What share is read at home.
        findings: What is wrong and what would help, one line each.
    """

    topic: str
    executors: tuple[Executor, ...]
    broker_racks: tuple[str, ...]
    brokers_without_rack: tuple[int, ...]
    replicas: tuple[int, int]
    followers: bool | None
    expected: ExpectedLocality
    findings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def doctor(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    rack_env: str = RACK_VARIABLE,
    client: Mapping[str, str] | None = None,
    tasks: int | None = None,
) -> Diagnosis:
    """Look at executors and brokers, and say what to expect and what is wrong.

    Runs a job of short tasks on the session. Executors that start later (dynamic allocation) are not seen. While it
    runs it listens on a port of the addresses at which coordinators do, to see whether executors reach them.

    Args:
        spark: Classic or Connect.
        bootstrap: HOST:PORT of brokers, by comma; the driver asks them.
        topic: What is to be read.
        rack_env: Environment variable of the executors that holds their rack.
        client: More properties, by their names in Java or librdkafka, as `security.protocol`.
        tasks: So many tasks look around; three for each slot if that is known, else 64.

    Raises:
        ConfigError: An option is wrong, or the topic does not exist.
        NoAnswerError: Kafka does not answer.
    """
    from rackassign.spark.metadata import KafkaMetadata  # noqa: PLC0415 - executors do without

    told = {f"kafka.{name}": value for name, value in {**(client or {}), "bootstrap.servers": bootstrap}.items()}
    options = Options.of({**told, "subscribe": topic, "rackEnvVar": rack_env}, "batch")
    cluster = KafkaMetadata(options.client)
    known = cluster.describe_topics(Topics(names=(topic,)))
    with listening(_desks(spark, bootstrap)) as desks:
        executors = probe_executors(spark, options.rack_variable, tasks or _tasks(spark), desks)
    return diagnose(
        topic,
        executors,
        list(known.partitions.values()),
        {broker.id: broker.rack for broker in cluster.brokers()} | dict(known.racks),
        followers=cluster.follower_reads(),
        rack_env=rack_env,
    )


def diagnose(
    topic: str,
    executors: Sequence[Executor],
    partitions: Sequence[Partition],
    racks: Mapping[int, str | None],
    *,
    followers: bool | None,
    rack_env: str = RACK_VARIABLE,
) -> Diagnosis:
    """Judge what was seen; asks nobody.

    Args:
        topic: What is to be read.
        executors: Those that were met.
        partitions: Of the topic.
        racks: The rack of each broker, None for one that has none.
        followers: Whether brokers let followers be read; None if they do not tell.
        rack_env: For the advice.
    """
    with_rack = {broker: rack for broker, rack in racks.items() if rack is not None}
    spreads = [len({with_rack[r] for r in partition.replicas if r in with_rack}) for partition in partitions] or [0]
    found = shares(executors, partitions, with_rack)
    if followers is False:
        found = ExpectedLocality(found.none, found.none, _leaders_only(executors, partitions, with_rack))
    return Diagnosis(
        topic,
        tuple(executors),
        tuple(sorted(set(with_rack.values()))),
        tuple(sorted(broker for broker, rack in racks.items() if rack is None)),
        (min(spreads), max(spreads)),
        followers,
        found,
        (*_findings(executors, racks, followers, rack_env), *_shortage(spreads, len(set(with_rack.values())), found)),
    )


def _leaders_only(executors: Sequence[Executor], partitions: Sequence[Partition], racks: Mapping[int, str]) -> float:
    led = [Partition(() if p.leader is None else (p.leader,), p.leader) for p in partitions]
    return shares(executors, led, racks).pull


def _findings(
    executors: Sequence[Executor],
    racks: Mapping[int, str | None],
    followers: bool | None,  # noqa: FBT001 - an answer, not a switch
    rack_env: str,
) -> Iterator[str]:
    theirs = {rack for rack in racks.values() if rack is not None}
    nameless = sorted(broker for broker, rack in racks.items() if rack is None)
    unknown = [executor for executor in executors if executor.rack is None]
    if not executors:
        yield "no task ran: there is no executor"
    for host in sorted({host for executor in executors for host in executor.cut_off}):
        behind = ", ".join(sorted({executor.host for executor in executors if host in executor.cut_off}))
        yield (
            f"executors on {behind} cannot connect to this process at {host}: rackBinding=pull would"
            f" fail there; name an "
            "address and a port that they reach (coordinatorHost, coordinatorPort), or use late"
        )
    if unknown:
        hosts = ", ".join(sorted({executor.host for executor in unknown}))
        yield (
            f"{len(unknown)} of {len(executors)} executors do not know their rack (on {hosts}): "
            f"set {rack_env} where they start, on each its own"
        )
    for rack in sorted({executor.rack for executor in executors if executor.rack is not None} - theirs):
        yield f"no broker is in rack {rack}, where executors are: racks of brokers are {', '.join(sorted(theirs))}"
    if nameless:
        yield f"brokers {', '.join(map(str, nameless))} have no rack: set broker.rack"
    if followers is False:
        yield (
            f"brokers do not let followers be read ({_SELECTOR} is not set): a rack alone changes nothing; "
            "set org.apache.kafka.common.replica.RackAwareReplicaSelector"
        )
    elif followers is None:
        yield f"brokers do not tell whether followers may be read ({_SELECTOR}): if not, late is as off"


def _shortage(spreads: Sequence[int], racks: int, found: ExpectedLocality) -> Iterator[str]:
    """Say that replicas are missing in some racks, and whether pulling helps."""
    few = sum(spread < racks for spread in spreads)
    if few:
        helps = (
            f"pulled splits can reach {found.pull:.0%}" if found.pull > found.executor else "pulled splits do not help"
        )
        yield f"{few} of {len(spreads)} partitions have no replica in some of the {racks} racks: {helps}"


@contextmanager
def listening(hosts: Iterable[str]) -> Iterator[list[tuple[str, int]]]:
    """Listen on a port of each address for as long as the block takes; those where that cannot be are left out."""
    with ExitStack() as opened:
        desks = []
        for host in dict.fromkeys(hosts):
            try:
                # As a coordinator would: without Spark's brackets, and IPv4 first.
                known = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
                family, *_, address = min(known, key=lambda each: each[0])
                listener = opened.enter_context(socket.create_server(address[:2], family=family, backlog=_WAITING))
            except OSError:
                # An address of another machine, as it is behind a proxy: whoever names it will see.
                continue
            desks.append((host.strip("[]"), int(listener.getsockname()[1])))
        yield desks


def _desks(spark: SparkSession, bootstrap: str) -> Iterator[str]:
    """Yield the addresses at which coordinators listen: of streams, and of batches where the driver is this process."""
    from rackassign.spark.pull.server import local_address_for  # noqa: PLC0415 - executors do without

    yield local_address_for(bootstrap)
    host = spark.conf.get("spark.driver.host", "")
    if host:
        yield host


def probe_executors(
    spark: SparkSession, rack_env: str, tasks: int, desks: Sequence[tuple[str, int]] = ()
) -> list[Executor]:
    """Run tasks that say where they are, and return the executors they came to, sorted.

    Args:
        spark: Where.
        rack_env: Environment variable that holds the rack.
        tasks: How many; each holds its slot for a while.
        desks: Addresses that they try to connect to.
    """
    from pyspark.sql.functions import col, udf  # noqa: PLC0415 - only where there is a session

    # Neither pandas nor Arrow is asked of the executors.
    here = udf(
        _here(rack_env, HOLD_S, desks),
        "host string, process long, worker long, rack string, cut_off array<string>",
        useArrow=False,
    )
    seen = spark.range(0, tasks, 1, tasks).select(here.asNondeterministic()(col("id")).alias("at")).select("at.*")
    return group_by_executor(ExecutorProbe(*row) for row in seen.collect())


class ExecutorProbe(NamedTuple):
    """What a task has said: where it runs, its worker process, the rack it found, and what it could not reach."""

    host: str
    process: int
    worker: int
    rack: str | None
    cut_off: Sequence[str] = ()


def group_by_executor(answers: Iterable[ExecutorProbe]) -> list[Executor]:
    """Return the executors behind what tasks have said."""
    workers: defaultdict[tuple[str, int, str | None], list[ExecutorProbe]] = defaultdict(list)
    for said in answers:
        workers[said.host, said.process, said.rack].append(said)
    return [
        Executor(
            host,
            process,
            rack,
            len({said.worker for said in theirs}),
            tuple(sorted({each for said in theirs for each in said.cut_off})),
        )
        for (host, process, rack), theirs in sorted(workers.items(), key=lambda item: (*item[0][:2], item[0][2] or ""))
    ]


def _here(
    rack_env: str, hold_s: float, desks: Sequence[tuple[str, int]]
) -> Callable[[int], tuple[str, int, int, str | None, list[str]]]:
    # Functions in a function travel whole: executors need not have this package.
    def reaches(host: str, port: int) -> bool:
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError:
            return False
        return True

    def here(_: int) -> tuple[str, int, int, str | None, list[str]]:
        time.sleep(hold_s)
        cut_off = [host for host, port in desks if not reaches(host, port)]
        rack = os.environ.get(rack_env, "").strip() or None
        # The process that Python workers are forked from is one for each executor.
        return socket.gethostname(), os.getppid(), os.getpid(), rack, cut_off

    return here


def _tasks(spark: SparkSession) -> int:
    try:
        return _TASKS_PER_SLOT * int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and says so in its own way
        return 64
