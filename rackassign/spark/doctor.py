"""What keeps a Spark application from reading at home, and how much it could."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rackassign.model import Partition
from rackassign.racks import RACK_VARIABLE
from rackassign.spark.options import Options, Topics
from rackassign.spark.shares import Executor, Shares, shares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLD_S = 0.5
"""So long each task keeps its slot, so that others get the next: executors can only be met, not listed."""

_TASKS_PER_SLOT = 3
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
    expected: Shares
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

    Runs a job of short tasks on the session. Executors that start later (dynamic allocation) are not seen.

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
    from rackassign.spark.cluster import Cluster  # noqa: PLC0415 - executors do without

    told = {f"kafka.{name}": value for name, value in {**(client or {}), "bootstrap.servers": bootstrap}.items()}
    options = Options.of({**told, "subscribe": topic, "rackEnv": rack_env}, "batch")
    cluster = Cluster(options.client)
    known = cluster.places(Topics(names=(topic,)))
    return diagnose(
        topic,
        look_around(spark, options.rack_variable, tasks or _tasks(spark)),
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
        found = Shares(found.off, found.off, _leaders_only(executors, partitions, with_rack))
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


def _shortage(spreads: Sequence[int], racks: int, found: Shares) -> Iterator[str]:
    """Say that replicas are missing in some racks, and whether pulling helps."""
    few = sum(spread < racks for spread in spreads)
    if few:
        helps = f"pulled splits can reach {found.pull:.0%}" if found.pull > found.late else "pulled splits do not help"
        yield f"{few} of {len(spreads)} partitions have no replica in some of the {racks} racks: {helps}"


def look_around(spark: SparkSession, rack_env: str, tasks: int) -> list[Executor]:
    """Run tasks that say where they are, and return the executors they came to, sorted.

    Args:
        spark: Where.
        rack_env: Environment variable that holds the rack.
        tasks: How many; each holds its slot for a while.
    """
    from pyspark.sql.functions import col, udf  # noqa: PLC0415 - only where there is a session

    # Neither pandas nor Arrow is asked of the executors.
    here = udf(_here(rack_env, HOLD_S), "host string, process long, worker long, rack string", useArrow=False)
    seen = spark.range(0, tasks, 1, tasks).select(here.asNondeterministic()(col("id")).alias("at")).select("at.*")
    return gathered((row["host"], row["process"], row["worker"], row["rack"]) for row in seen.collect())


def gathered(answers: Iterable[tuple[str, int, int, str | None]]) -> list[Executor]:
    """Return the executors behind what tasks have said: host, process, worker process and rack."""
    workers: defaultdict[tuple[str, int, str | None], set[int]] = defaultdict(set)
    for host, process, worker, rack in answers:
        workers[host, process, rack].add(worker)
    return [
        Executor(host, process, rack, len(slots))
        for (host, process, rack), slots in sorted(workers.items(), key=lambda item: (*item[0][:2], item[0][2] or ""))
    ]


def _here(rack_env: str, hold_s: float) -> Callable[[int], tuple[str, int, int, str | None]]:
    # A function in a function travels whole: executors need not have this package.
    def here(_: int) -> tuple[str, int, int, str | None]:
        time.sleep(hold_s)
        # The process that Python workers are forked from is one for each executor.
        return socket.gethostname(), os.getppid(), os.getpid(), os.environ.get(rack_env, "").strip() or None

    return here


def _tasks(spark: SparkSession) -> int:
    try:
        return _TASKS_PER_SLOT * int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and says so in its own way
        return 64
