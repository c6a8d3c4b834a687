"""Diagnoses why a Spark application does not read locally, and computes the locality that it could have.

The expected local share of a topic is computed for each rack binding: `none`, `executor` and `pull`. All partitions
have the same weight, and Spark assigns tasks to slots in no particular order. So the shares for `none` and `executor`
are means over many runs, from which a single run with few partitions may differ considerably.
"""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rackassign.locality import Locality
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.rack_sources import RACK_VARIABLE
from rackassign.spark._options import Options, Topics
from rackassign.spark._tasks import await_executors, total_slots
from rackassign.util.callbacks import Progress, ProgressCallback, ignore_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TOPIC = "topic"


@dataclass(frozen=True, slots=True)
class Executor:
    host: str
    # The ID of a process that distinguishes it from other executors on the host.
    process: int
    rack: str | None
    # The number of tasks that were seen to run at the same time, 1 or more.
    slots: int
    # Addresses of the driver to which its tasks could not connect.
    cut_off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedLocality:
    """The expected local share for each rack binding, from 0 to 1."""

    # Without racks, where executors read from leaders.
    none: float
    # With the rack of each executor, if brokers allow follower fetching.
    executor: float
    # With splits that are chosen by the executor's rack as well: the highest share with balanced load.
    pull: float


def expected_locality(
    executors: Sequence[Executor], partitions: Sequence[Partition], racks: Mapping[int, str]
) -> ExpectedLocality:
    slots = sum(executor.slots for executor in executors)
    if not slots or not partitions:
        return ExpectedLocality(0.0, 0.0, 0.0)
    none = executor_share = 0.0
    for executor in executors:
        if executor.rack is None:
            continue
        led = sum(racks.get(-1 if p.leader is None else p.leader) == executor.rack for p in partitions)
        near = sum(any(racks.get(replica) == executor.rack for replica in p.replicas) for p in partitions)
        none += executor.slots * led
        executor_share += executor.slots * near
    total = slots * len(partitions)
    return ExpectedLocality(none / total, executor_share / total, _pulled(executors, partitions, racks))


def _pulled(executors: Sequence[Executor], partitions: Sequence[Partition], racks: Mapping[int, str]) -> float:
    """Return the local share of an optimal assignment in which the slots are the members."""
    from rackassign.strategies import Options, plan_sticky  # noqa: PLC0415 - imports the solver

    brokers = tuple(Broker(broker, rack) for broker, rack in sorted(racks.items()))
    nowhere = "no rack" + "".join(sorted(set(racks.values())))
    members = tuple(
        # A rack of no broker: without one, a partition that could be local would count as well placed there.
        Member(f"{number}-{slot}", frozenset({_TOPIC}), executor.rack or nowhere)
        for number, executor in enumerate(executors)
        for slot in range(executor.slots)
    )
    group = Group(Topology(brokers, {_TOPIC: tuple(partitions)}), members)
    return Locality.of(group, plan_sticky(group, Options())).local / len(partitions)


HOLD_S = 0.5
"""Seconds that each task occupies its slot, so that tasks reach all executors. Spark has no list of executors."""

_TASKS_PER_SLOT = 3
_TASKS_OF_UNKNOWN_SLOTS = 64
_BACKLOG = 1024
"""Connections in the backlog. Each task opens one, and none is accepted."""
_DATABRICKS = "spark.databricks.clusterUsageTags.clusterId"
_ANY_PLATFORM = "python-with-rack.sh"
_RECIPES = {"spark://": "spark-env.sh", "yarn": "yarn-site.xml", "k8s://": "kubernetes-executor-pod.yaml"}
"""The file for a master whose URL begins with these characters."""

_SELECTOR = "replica.selector.class"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis.

    Args:
        topic: The topic to read.
        executors: The executors on which tasks ran.
        broker_racks: Racks with brokers, sorted.
        brokers_without_rack: The IDs of brokers without a rack.
        replicas: The lowest and the highest number of racks in which a partition has replicas.
        followers: Whether brokers allow follower fetching; None if they do not report it.
        expected: The expected local share.
        findings: Problems and their solutions, one line each.
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
        """Return the diagnosis as values that JSON can represent."""
        return asdict(self)


def doctor(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    rack_env: str = RACK_VARIABLE,
    client: Mapping[str, str] | None = None,
    tasks: int | None = None,
    report_progress: ProgressCallback = ignore_progress,
) -> Diagnosis:
    """Examine executors and brokers, and return problems and the expected locality.

    The call runs a job of short tasks in the session. Executors that start later (dynamic allocation) are not examined.
    Meanwhile this process listens on a port of each address that coordinators use, to check whether executors can
    connect.

    Args:
        spark: A classic or a Connect session.
        bootstrap: The brokers to which the driver connects, as HOST:PORT separated by commas.
        topic: The topic to read.
        rack_env: The environment variable of the executors that contains their rack.
        client: Further properties under their names in Java or librdkafka, for example `security.protocol`, and
            `tokenProvider`.
        tasks: The number of tasks; None for three per slot, or 64 if the number of slots is not known.
        report_progress: Called with the progress.

    Raises:
        ConfigError: An option is invalid, or the topic does not exist.
        KafkaUnavailableError: Kafka does not respond.
    """
    from rackassign.spark._metadata import KafkaMetadata  # noqa: PLC0415 - executors do not need it

    # Everything else is a property of the client.
    named = {name if name == "tokenProvider" else f"kafka.{name}": value for name, value in (client or {}).items()}
    properties = {**named, "kafka.bootstrap.servers": bootstrap}
    options = Options.of({**properties, "subscribe": topic, "rackEnvVar": rack_env}, "batch")
    report_progress(Progress(f"Describing {topic}"))
    cluster = KafkaMetadata(options.client)
    known = cluster.describe_topics(Topics(names=(topic,)))
    number = tasks or _tasks(spark)
    with listening(_coordinator_hosts(spark, bootstrap)) as endpoints:
        report_progress(Progress(f"Running {number} short tasks, to see the executors"))
        executors = probe_executors(spark, options.rack_variable, number, endpoints)
    return diagnose(
        topic,
        executors,
        list(known.partitions.values()),
        {broker.id: broker.rack for broker in cluster.brokers()} | dict(known.racks),
        followers=cluster.follower_reads(),
        rack_env=rack_env,
        recipe=recipe(spark),
    )


def diagnose(
    topic: str,
    executors: Sequence[Executor],
    partitions: Sequence[Partition],
    racks: Mapping[int, str | None],
    *,
    followers: bool | None,
    rack_env: str = RACK_VARIABLE,
    recipe: str = _ANY_PLATFORM,
) -> Diagnosis:
    """Compute a diagnosis from executors and metadata, without sending requests."""
    with_rack = {broker: rack for broker, rack in racks.items() if rack is not None}
    replicas = [{with_rack[r] for r in partition.replicas if r in with_rack} for partition in partitions]
    spreads = list(map(len, replicas)) or [0]
    occupied = {executor.rack for executor in executors if executor.rack is not None}.intersection(with_rack.values())
    locality = expected_locality(executors, partitions, with_rack)
    if followers is False:
        led = [Partition(() if p.leader is None else (p.leader,), p.leader) for p in partitions]
        pull = expected_locality(executors, led, with_rack).pull
        locality = ExpectedLocality(locality.none, locality.none, pull)
    return Diagnosis(
        topic,
        tuple(executors),
        tuple(sorted(set(with_rack.values()))),
        tuple(sorted(broker for broker, rack in racks.items() if rack is None)),
        (min(spreads), max(spreads)),
        followers,
        locality,
        (
            *_findings(
                executors,
                racks,
                followers,
                f"set {rack_env} in the environment of each executor, as examples/spark/{recipe} does",
            ),
            *_unreachable(replicas, occupied),
            *_shortage(replicas, occupied, locality),
        ),
    )


def _findings(
    executors: Sequence[Executor],
    racks: Mapping[int, str | None],
    followers: bool | None,  # noqa: FBT001 - a value, not a switch
    advice: str,
) -> Iterator[str]:
    theirs = {rack for rack in racks.values() if rack is not None}
    without_rack = sorted(broker for broker, rack in racks.items() if rack is None)
    unknown = [executor for executor in executors if executor.rack is None]
    if not executors:
        yield "no task ran: the application has no executors"
    for host in sorted({host for executor in executors for host in executor.cut_off}):
        behind = ", ".join(sorted({executor.host for executor in executors if host in executor.cut_off}))
        yield (
            f"executors on {behind} cannot connect to this process at {host}: rackBinding=pull would "
            "fail there; set coordinatorHost and coordinatorPort to an address and a port that they can reach, or use "
            "rackBinding=executor"
        )
    if unknown:
        hosts = ", ".join(sorted({executor.host for executor in unknown}))
        yield f"{len(unknown)} of {len(executors)} executors have no rack (on {hosts}): {advice}"
    for rack in sorted({executor.rack for executor in executors if executor.rack is not None} - theirs):
        known = ", ".join(sorted(theirs))
        yield f"executors are in rack {rack}, which has no brokers; the racks of brokers are {known}"
    if without_rack:
        yield f"brokers {', '.join(map(str, without_rack))} have no rack: set broker.rack"
    if followers is False:
        yield (
            f"brokers do not allow follower fetching ({_SELECTOR} is not set), so racks of executors have no effect; "
            "set org.apache.kafka.common.replica.RackAwareReplicaSelector"
        )
    elif followers is None:
        yield (
            f"brokers do not report whether follower fetching is on ({_SELECTOR}): if not, rackBinding=executor has no"
            " effect"
        )


def _unreachable(replicas: Sequence[set[str]], occupied: set[str]) -> Iterator[str]:
    """Yield the finding that partitions are local to no executor, which no binding changes."""
    nowhere = [racks for racks in replicas if racks and racks.isdisjoint(occupied)]
    if occupied and nowhere:
        empty = ", ".join(sorted(set().union(*nowhere)))
        yield (
            f"no executor is in rack {empty}, and {len(nowhere)} of {len(replicas)} partitions have replicas only"
            " there: they are read across racks whatever rackBinding is; have executors in each rack"
        )


def _shortage(replicas: Sequence[set[str]], occupied: set[str], found: ExpectedLocality) -> Iterator[str]:
    """Yield the finding that partitions have a replica near some executors only, and whether pulled splits help."""
    few = sum(bool(racks & occupied) and not occupied <= racks for racks in replicas)
    if few:
        helps = f"can reach {found.pull:.0%}" if found.pull > found.executor else "does not help"
        yield (
            f"{few} of {len(replicas)} partitions have no replica in some of the {len(occupied)} racks with"
            f" executors: rackBinding=pull {helps}"
        )


def recipe(spark: SparkSession) -> str:
    """Return the file of `examples/spark/` that sets the rack of executors on the platform of an application."""
    if spark.conf.get(_DATABRICKS, ""):
        return "databricks-init.sh"
    master = spark.conf.get("spark.master", "") or ""
    return next((file for prefix, file in _RECIPES.items() if master.startswith(prefix)), _ANY_PLATFORM)


@contextmanager
def listening(hosts: Iterable[str]) -> Iterator[list[tuple[str, int]]]:
    """Listen on a port of each address during the block; unavailable addresses are omitted."""
    from rackassign.spark._pull.server import resolve  # noqa: PLC0415 - executors do not need it

    with ExitStack() as opened:
        endpoints = []
        for host in dict.fromkeys(hosts):
            try:
                version, address = resolve(host, 0)
                listener = opened.enter_context(socket.socket(version))
                listener.bind(address)
                listener.listen(_BACKLOG)
            except OSError:
                # The address is not one of this machine, for example behind a proxy. It cannot be checked.
                continue
            endpoints.append((host.strip("[]"), int(listener.getsockname()[1])))
        yield endpoints


def _coordinator_hosts(spark: SparkSession, bootstrap: str) -> Iterator[str]:
    """Yield the addresses of coordinators: for streams, and for batch queries if this process is the driver."""
    from rackassign.spark._pull.server import local_address_for  # noqa: PLC0415 - executors do not need it

    yield local_address_for(bootstrap)
    host = spark.conf.get("spark.driver.host", "")
    if host:
        yield host


def probe_executors(
    spark: SparkSession, rack_env: str, tasks: int, endpoints: Sequence[tuple[str, int]] = ()
) -> list[Executor]:
    """Run tasks that report their executor and occupy its slot for a while, and return the executors, sorted."""
    from pyspark.sql.functions import col, udf  # noqa: PLC0415 - only needed with a session

    # A UDF without Arrow requires neither pandas nor pyarrow on executors.
    here = udf(
        _report_function(rack_env, HOLD_S, endpoints),
        "host string, process long, worker long, rack string, cut_off array<string>",
        useArrow=False,
    )
    seen = spark.range(0, tasks, 1, tasks).select(here.asNondeterministic()(col("id")).alias("at")).select("at.*")
    return group_by_executor(ExecutorProbe(*row) for row in seen.collect())


class ExecutorProbe(NamedTuple):
    """The report of a task: its host, executor and worker process, its rack, and addresses it could not reach."""

    host: str
    process: int
    worker: int
    rack: str | None
    cut_off: Sequence[str] = ()


def group_by_executor(reports: Iterable[ExecutorProbe]) -> list[Executor]:
    workers: defaultdict[tuple[str, int, str | None], list[ExecutorProbe]] = defaultdict(list)
    for report in reports:
        workers[report.host, report.process, report.rack].append(report)
    return [
        Executor(
            host,
            process,
            rack,
            len({report.worker for report in theirs}),
            tuple(sorted({each for report in theirs for each in report.cut_off})),
        )
        for (host, process, rack), theirs in sorted(workers.items(), key=lambda item: (*item[0][:2], item[0][2] or ""))
    ]


def _report_function(
    rack_env: str, hold_s: float, endpoints: Sequence[tuple[str, int]]
) -> Callable[[int], tuple[str, int, int, str | None, list[str]]]:
    # Nested functions are pickled with their code, so executors need not have this package installed.
    def reaches(host: str, port: int) -> bool:
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError:
            return False
        return True

    def here(_: int) -> tuple[str, int, int, str | None, list[str]]:
        time.sleep(hold_s)
        cut_off = [host for host, port in endpoints if not reaches(host, port)]
        rack = os.environ.get(rack_env, "").strip() or None
        # Each executor has one process from which its Python workers are forked.
        return socket.gethostname(), os.getppid(), os.getpid(), rack, cut_off

    return here


def _tasks(spark: SparkSession) -> int:
    await_executors(spark)
    return _TASKS_PER_SLOT * (total_slots(spark) or 0) or _TASKS_OF_UNKNOWN_SLOTS
