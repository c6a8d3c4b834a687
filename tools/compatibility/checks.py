"""Checks of features on a cluster of one version of Kafka: groups, and commands as a user runs them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as HostPartition

from rackassign import (
    FetchMeter,
    RackAwareConsumer,
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    attach,
)
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.testing import LocalCluster
from rackassign.testing import create_topic as create_replicated_topic
from rackassign.testing.harness import GroupHarness, KafkaPythonMember, wait_until
from tests.helpers.kafka.command import rackassign
from tests.helpers.kafka.consumers import CONSUMER
from tests.helpers.kafka.scenarios import BATCHES, FOLLOWER, LEADER, SOON, fill, read


class NotOnThisVersionError(Exception):
    """What a check is about does not exist in a version of Kafka; the message is the reason in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a check runs: a cluster with the racks a, b and c, and names and files of its own."""

    cluster: LocalCluster
    check: str
    home: Path
    spark: Callable[[], Any]
    topics: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def group(self) -> str:
        return f"{self.check}-group"

    def topic(self, replicas: Sequence[Sequence[int]]) -> str:
        """Create a topic and return its name."""
        name = f"{self.check}-{next(self.topics)}"
        create_replicated_topic(self.cluster.bootstrap, name, replicas)
        return name


@dataclass(frozen=True, slots=True)
class Cell:
    """Result of one check on one version."""

    works: bool
    # What was observed, or why it does not work, in one line.
    reason: str
    # Whether it does not work although Kafka has what it needs.
    is_defect: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one feature."""

    name: str
    feature: str
    # Returns what was observed. It raises `NotOnThisVersionError` if the version has no such feature; any other error
    # means that the feature does not work.
    run: Callable[[Place], str]

    def result(self, place: Callable[[str, Path], Place]) -> Cell:
        """Run it at a place with its name and a folder; errors of any kind are results too."""
        try:
            with tempfile.TemporaryDirectory(prefix="rackassign-") as home:
                return Cell(works=True, reason=self.run(place(self.name, Path(home))))
        except NotOnThisVersionError as missing:
            return Cell(works=False, reason=str(missing))
        except Exception as error:  # noqa: BLE001 - a defect in one check must not hide the others
            text = " ".join(str(error).split())[:300] or "no message"
            return Cell(works=False, reason=f"{type(error).__name__}: {text}", is_defect=True)


CHECKS: list[Check] = []
"""In the order of the page. The last ones stop a broker."""


def check(name: str, feature: str) -> Callable[[Callable[[Place], str]], Callable[[Place], str]]:
    """Add a function to the checks; the arguments are those of `Check`."""

    def added(run: Callable[[Place], str]) -> Callable[[Place], str]:
        CHECKS.append(Check(name, feature, run))
        return run

    return added


STRIPED = [[1], [2], [3]] * 2
RACKS = "abc"

Assignor = Callable[[str], Any]


@check("range", "`RackAwareRangeAssignor`")
def range_assignor(place: Place) -> str:
    return _assigned(place, lambda rack: RackAwareRangeAssignor(rack=rack))


@check("optimal", "`RackAwareCooperativeStickyAssignor`")
def optimal_assignor(place: Place) -> str:
    return _assigned(place, lambda rack: RackAwareCooperativeStickyAssignor(rack=rack))


@check("monitor", "rack monitor")
def rack_monitor(place: Place) -> str:
    topic = place.topic(STRIPED)
    assignor = partial(RackAwareCooperativeStickyAssignor, rack_monitor=SOON)
    with _members(place, topic, lambda rack: assignor(rack=rack)) as group:
        group.settle()
        moved = {HostPartition(topic, 0): [2], HostPartition(topic, 1): [1]}
        refused = [error for error in group.admin.alter_partition_reassignments(moved).values() if error]
        if refused:
            raise AssertionError(f"the reassignment was refused: {refused[0]}")
        expected = {"a": {1, 3}, "b": {0, 4}, "c": {2, 5}}

        def followed() -> bool:
            found = {name: {tp.partition for tp in m.assignment()} for name, m in group.members.items()}
            return found == expected

        wait_until(followed, "members that follow the moved replicas")
    return "two replicas moved, and the group was rebalanced to be local again"


@check("follower", "fetching from followers (KIP-392)")
def follower_fetching(place: Place) -> str:
    topic = place.topic([[LEADER, FOLLOWER]])
    fill(place.cluster, topic, BATCHES)
    meter = FetchMeter()
    config = {**CONSUMER, "client_rack": "a", "group_id": None, "max_partition_fetch_bytes": 1}
    with closing(KafkaConsumer(**place.cluster.client_config(), **config)) as consumer:
        consumer.assign([HostPartition(topic, 0)])
        attach(consumer, meter=meter)
        read(consumer, BATCHES)
    if meter.bytes_by_broker().keys() != {FOLLOWER}:
        raise AssertionError(f"records came from brokers {sorted(meter.bytes_by_broker())}")
    asked = meter.responses_by_broker().get(LEADER, 0)
    if asked > BATCHES // 6:
        raise AssertionError(f"the leader was asked {asked} times for {BATCHES} batches")
    return "all records came from the follower in the consumer's rack, and it was not left after each response"


def _assigned(place: Place, assignor: Assignor) -> str:
    topic = place.topic(STRIPED)
    with _members(place, topic, assignor) as group:
        owned = group.settle()
        local = sum(STRIPED[tp.partition] == [RACKS.index(rack) + 1] for rack, tps in owned.items() for tp in tps)
    if local != len(STRIPED):
        raise AssertionError(f"{local} of {len(STRIPED)} partitions are local")
    return f"three members in three racks own {local} local partitions of {len(STRIPED)}"


@contextmanager
def _members(place: Place, topic: str, assignor: Assignor) -> Iterator[GroupHarness[KafkaPythonMember]]:
    access = place.cluster.client_config()

    def member(rack: str) -> KafkaPythonMember:
        config = {**CONSUMER, "group_id": place.group, "client_rack": rack, "metadata_max_age_ms": 300}
        strategy = [assignor(rack)]
        return KafkaPythonMember(
            lambda: RackAwareConsumer(topic, **access, **config, partition_assignment_strategy=strategy)
        )

    with GroupHarness[KafkaPythonMember](access, place.group, {topic: len(STRIPED)}) as group:
        for rack in RACKS:
            group.add(rack, member(rack))
        yield group


@contextmanager
def settled_group(place: Place, replicas: Sequence[Sequence[int]] = STRIPED) -> Iterator[str]:
    """Yield the topic of a settled group of three members."""
    topic = place.topic(replicas)
    with _members(place, topic, lambda rack: RackAwareCooperativeStickyAssignor(rack=rack)) as group:
        group.settle()
        yield topic


def finalized_features(place: Place) -> dict[str, int]:
    """Return the level of each feature of the cluster."""
    with closing(KafkaAdminClient(**place.cluster.client_config())) as admin:
        return {
            name: found["finalized"][1] for name, found in admin.describe_features().items() if "finalized" in found
        }


_RECORDS = 300
_METADATA_VERSION_4_0 = 22
"""Level of `metadata.version` from which brokers list those that are fenced."""

_SILENT = {"log_level": 0, "log.connection.close": "false"}
"""Properties of librdkafka with which it logs nothing about a cluster that ends."""


def _run(place: Place, command: str, *words: str, code: int = 0) -> Any:
    words = (*words, "--output", "json")
    return json.loads(rackassign(command, place.cluster.bootstrap, *words, code=code, home=place.home).stdout)


@check("inspect", "`inspect`")
def inspect(place: Place) -> str:
    with settled_group(place):
        (found,) = _run(place, "inspect", "--group", place.group, "--interval", "1")["groups"]
    if found["partitions"] != {"local": 6, "cross": 0, "unknown": 0}:
        raise AssertionError(f"inspect reports {found['partitions']}")
    return "inspect shows members, racks and local partitions of a group"


@check("doctor", "`doctor`")
def doctor(place: Place) -> str:
    with settled_group(place):
        found = _run(place, "doctor", "--group", place.group, "--observe-seconds", "2")
    kinds = [finding["kind"] for finding in found["findings"]]
    if kinds:
        raise AssertionError(f"doctor reports {kinds} of a healthy group")
    return "doctor examines a healthy group and finds nothing"


@check("doctor-848", "`doctor` of groups with server-side assignment (KIP-848)")
def doctor_of_server_group(place: Place) -> str:
    if not finalized_features(place).get("group.version"):
        _refused_in_one_line(place)
        raise NotOnThisVersionError("a new cluster has no such groups, so every group has a leader among its members")
    topic = place.topic([[1], [2], [3]])
    config = {"bootstrap.servers": place.cluster.bootstrap, "group.id": place.group, "client.rack": "a"}
    consumer = Consumer({**config, "group.protocol": "consumer", **_SILENT})
    try:
        consumer.subscribe([topic])

        def assigned() -> bool:
            consumer.poll(0.2)
            return len(consumer.assignment()) == 3

        wait_until(assigned, "an assignment by the broker")
        found = _run(place, "doctor", "--group", place.group, "--observe-seconds", "2", code=1)
    finally:
        consumer.close()
    kinds = [finding["kind"] for finding in found["findings"]]
    if "server-assigned" not in kinds:
        raise AssertionError(f"doctor reports {kinds}")
    unnamed = "too old to report" in json.dumps(found)
    return "doctor reports that the broker assigns" + (", but not which members requested it" if unnamed else "")


def _refused_in_one_line(place: Place) -> None:
    done = rackassign("doctor", place.cluster.bootstrap, "--group", "no-such-group", code=2, home=place.home)
    if len(done.stderr.splitlines()) != 1:
        raise AssertionError(f"doctor of an unknown group printed {done.stderr!r}")


@check("audit", "`audit`")
def audit(place: Place) -> str:
    good, bad = place.topic([[1, 2, 3]]), place.topic([[1]])
    _run(place, "audit", "--topic", good)
    found = _run(place, "audit", "--topic", bad, "--expected-replication-factor", "3", code=1)
    kinds = {finding["kind"] for finding in found["findings"]}
    if "rf-below" not in kinds:
        raise AssertionError(f"audit reports {sorted(kinds)}")
    return "audit reports a topic with too few replicas, and nothing of a good one"


@check("create-topic", "`create-topic`")
def create_topic(place: Place) -> str:
    _run(place, "create-topic", f"{place.group}-new", "--partitions", "6", "--replication-factor", "3")
    _run(place, "audit", "--topic", f"{place.group}-new")
    _run(place, "create-topic", f"{place.group}-new", "--add-partitions", "3")
    return "create-topic creates a topic and adds partitions, and audit finds nothing"


@check("reassign", "`reassign`")
def reassign(place: Place) -> str:
    topic = _filled(place)
    _run(place, "reassign plan", "--topic", topic, "--replication-factor", "3")
    _run(place, "reassign apply")
    _run(place, "audit", "--topic", topic, "--expected-replication-factor", "3")
    _run(place, "reassign rollback")
    return "reassign adds replicas and restores the original lists"


@check("throttle", "`reassign apply --throttle`")
def throttle(place: Place) -> str:
    topic = _filled(place)
    _run(place, "reassign plan", "--topic", topic, "--replication-factor", "3")
    _run(place, "reassign apply", "--throttle", "20M")
    # A throttle that is left would be a finding.
    _run(place, "audit", "--topic", topic, "--expected-replication-factor", "3")
    return "a throttle is set for the copies and removed after them"


@check("leaders", "`balance-leaders`")
def balance_leaders(place: Place) -> str:
    topic = place.topic([[1, 2, 3]] * 3)
    _run(place, "balance-leaders", "--topic", topic)
    return "balance-leaders reorders replicas and elects leaders"


@check("stateful", "`StatefulConsumer`")
def stateful(place: Place) -> str:
    topic = place.topic([[1, 2], [2, 3], [3, 1]])
    counted: dict[bytes, int] = {}

    def count(record: Any, store: StateStore) -> None:
        counted[record.value] = int(store.get(record.value) or 0) + 1
        store.put(record.value, b"%d" % counted[record.value])

    config = {**CONSUMER, **place.cluster.client_config(), "group_id": place.group}
    # kafka-python's own clients refuse these.
    del config["enable_auto_commit"]
    for name in ("first", "second"):
        with closing(KafkaProducer(**place.cluster.client_config(), acks="all")) as producer:
            for partition in range(3):
                producer.send(topic, b"%d" % partition, partition=partition).get(60)
        before = dict(counted)
        with StatefulConsumer(topic, process=count, state_dir=place.home / name, client_rack="a", **config) as member:

            def done(member: StatefulConsumer = member, before: dict[bytes, int] = before) -> bool:
                member.poll(200)
                return len(counted) == len(STRIPED) // 2 and all(n > before.get(k, 0) for k, n in counted.items())

            wait_until(done, f"the records of the {name} member")
    if set(counted.values()) != {2}:
        raise AssertionError(f"counts are {counted}, expected 2 each")
    return "a successor restored the state from the changelog and continued"


@check("spark", "Spark source")
def spark(place: Place) -> str:
    topic = _filled(place)
    reader = place.spark().read.format("rackassign").option("kafka.bootstrap.servers", place.cluster.bootstrap)
    rows = reader.option("subscribe", topic).load().collect()
    if len(rows) != _RECORDS:
        raise AssertionError(f"a batch has {len(rows)} rows, expected {_RECORDS}")
    return "a batch of the Spark source has every record once"


def _filled(place: Place) -> str:
    topic = place.topic([[1], [2], [3]])
    with closing(KafkaProducer(**place.cluster.client_config(), acks="all")) as producer:
        for sent in [producer.send(topic, bytes(1000), partition=n % 3) for n in range(_RECORDS)]:
            sent.get(60)
    return topic


@check("elr", "eligible leader replicas (KIP-966)")
def eligible_leader_replicas(place: Place) -> str:
    level = finalized_features(place).get("eligible.leader.replicas.version", 0)
    if not level:
        raise NotOnThisVersionError("a new cluster has no eligible leader replicas; no command needs them")
    return f"on by default (level {level}); all checks of this page run with them, and no command needs them"


@check("audit-outage", "`audit` while a broker is down")
def audit_in_outage(place: Place) -> str:
    topic = place.topic([[1, 2, 3]])
    with _broker_down(place):
        found = _run(place, "audit", "--topic", topic, code=1)
    kinds = {finding["kind"] for finding in found["findings"]}
    if "offline-replica" not in kinds:
        raise AssertionError(f"audit reports {sorted(kinds)} with a broker down")
    if "broker-fenced" in kinds:
        return "audit reports the offline replicas, and the broker that is down with its rack"
    if "broker-unknown" in kinds:
        return "audit reports the offline replicas; brokers do not list the broker that is down, nor its rack"
    raise AssertionError(f"audit does not report the broker that is down, but {sorted(kinds)}")


@check("create-outage", "`create-topic` with replicas on a broker that is down")
def create_in_outage(place: Place) -> str:
    words = (f"{place.group}-new", "--replication-factor", "3", "--policy", "enabled_prefer_observed")
    with _broker_down(place):
        if finalized_features(place)["metadata.version"] >= _METADATA_VERSION_4_0:
            _run(place, "create-topic", *words)
            return "create-topic places replicas on a broker that is down"
        done = rackassign("create-topic", place.cluster.bootstrap, *words, code=2, home=place.home)
        if len(done.stderr.splitlines()) != 1 or "listed from Kafka 4.0" not in done.stderr:
            raise AssertionError(f"create-topic printed {done.stderr!r}")
        _run(place, "create-topic", *words, "--allow-placeholders")
    raise NotOnThisVersionError(
        "brokers do not list a broker that is down; create-topic reports that in one line, and --allow-placeholders"
        " creates the topic on the other brokers"
    )


@contextmanager
def _broker_down(place: Place) -> Iterator[None]:
    place.cluster.stop(3)
    try:
        yield
    finally:
        place.cluster.start(3)
        place.cluster.wait_ready()
