"""Checks of commands, which run as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer
from kafka import KafkaProducer

from rackassign.testing.harness import wait_until
from tests.helpers.kafka.command import rackassign

from .cells import NotOnThisVersionError, Place
from .groups import finalized_features, settled_group

_RECORDS = 300
_METADATA_VERSION_4_0 = 22
"""Level of `metadata.version` from which brokers list those that are fenced."""

_SILENT = {"log_level": 0, "log.connection.close": "false"}
"""Properties of librdkafka with which it logs nothing about a cluster that ends."""


def _run(place: Place, command: str, *words: str, code: int = 0) -> Any:
    words = (*words, "--output", "json")
    return json.loads(rackassign(command, place.cluster.bootstrap, *words, code=code, home=place.home).stdout)


def inspect(place: Place) -> str:
    """`inspect` of a group of rackassign."""
    with settled_group(place):
        (found,) = _run(place, "inspect", "--group", place.group, "--interval", "1")["groups"]
    if found["partitions"] != {"local": 6, "cross": 0, "unknown": 0}:
        raise AssertionError(f"inspect reports {found['partitions']}")
    return "inspect shows members, racks and local partitions of a group"


def doctor(place: Place) -> str:
    """`doctor` of a group of rackassign."""
    with settled_group(place):
        found = _run(place, "doctor", "--group", place.group, "--observe-seconds", "2")
    kinds = [finding["kind"] for finding in found["findings"]]
    if kinds:
        raise AssertionError(f"doctor reports {kinds} of a healthy group")
    return "doctor examines a healthy group and finds nothing"


def doctor_of_server_group(place: Place) -> str:
    """`doctor` of a group to which the broker assigns (KIP-848)."""
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


def audit(place: Place) -> str:
    """`audit` of a topic whose replicas share a rack by number only, and of one that is well placed."""
    good, bad = place.topic([[1, 2, 3]]), place.topic([[1]])
    _run(place, "audit", "--topic", good)
    found = _run(place, "audit", "--topic", bad, "--expected-replication-factor", "3", code=1)
    kinds = {finding["kind"] for finding in found["findings"]}
    if "rf-below" not in kinds:
        raise AssertionError(f"audit reports {sorted(kinds)}")
    return "audit reports a topic with too few replicas, and nothing of a good one"


def create_topic(place: Place) -> str:
    """`create-topic`, also while a broker is down."""
    _run(place, "create-topic", f"{place.group}-new", "--partitions", "6", "--replication-factor", "3")
    _run(place, "audit", "--topic", f"{place.group}-new")
    _run(place, "create-topic", f"{place.group}-new", "--add-partitions", "3")
    return "create-topic creates a topic and adds partitions, and audit finds nothing"


def reassign(place: Place) -> str:
    """`reassign` of unthrottled copies, and back."""
    topic = _filled(place)
    _run(place, "reassign plan", "--topic", topic, "--replication-factor", "3")
    _run(place, "reassign apply")
    _run(place, "audit", "--topic", topic, "--expected-replication-factor", "3")
    _run(place, "reassign rollback")
    return "reassign adds replicas and restores the original lists"


def throttle(place: Place) -> str:
    """`reassign` with a throttle."""
    topic = _filled(place)
    _run(place, "reassign plan", "--topic", topic, "--replication-factor", "3")
    _run(place, "reassign apply", "--throttle", "20M")
    # A throttle that is left would be a finding.
    _run(place, "audit", "--topic", topic, "--expected-replication-factor", "3")
    return "a throttle is set for the copies and removed after them"


def balance_leaders(place: Place) -> str:
    """`balance-leaders` of a topic that one broker leads."""
    topic = place.topic([[1, 2, 3]] * 3)
    _run(place, "balance-leaders", "--topic", topic)
    return "balance-leaders reorders replicas and elects leaders"


def audit_in_outage(place: Place) -> str:
    """`audit` while a broker is down."""
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


def create_in_outage(place: Place) -> str:
    """`create-topic` with replicas on a broker that is down (KIP-409)."""
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


def eligible_leader_replicas(place: Place) -> str:
    """Eligible leader replicas (KIP-966), with which `audit` has to work as without them."""
    level = finalized_features(place).get("eligible.leader.replicas.version", 0)
    if not level:
        raise NotOnThisVersionError("a new cluster has no eligible leader replicas; no command needs them")
    return f"on by default (level {level}); all checks of this page run with them, and no command needs them"


@contextmanager
def _broker_down(place: Place) -> Iterator[None]:
    place.cluster.stop(3)
    try:
        yield
    finally:
        place.cluster.start(3)
        place.cluster.wait_ready()


def spark(place: Place) -> str:
    """A batch of the Spark source."""
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
