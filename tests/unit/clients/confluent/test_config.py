"""What a consumer on confluent-kafka is told, and how it speaks: properties, subscriptions and errors."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka.errors
import pytest
import trustme
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException

from rackassign.clients.confluent._config import ConsumerConfig
from rackassign.clients.confluent._group_member import pattern_of
from rackassign.clients.confluent.internals import to_confluent_error, translate_errors
from rackassign.clients.kafka_python import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from rackassign.errors import ConfigError
from tests.helpers.fakes.confluent import GROUP


def test_each_client_is_told_what_is_its_own() -> None:
    properties = ConsumerConfig.of(
        {
            **GROUP,
            "client.rack": "a",
            "group.instance.id": "me",
            "session.timeout.ms": "7000",
            "max.poll.interval.ms": 9000,
            "topic.metadata.refresh.interval.ms": 1000,
            "fetch.min.bytes": 5,
            "socket.nagle.disable": True,
        }
    )
    assert properties.member == {
        "bootstrap_servers": ["one:9092", "two:9092"],
        "group_id": "g",
        "client_rack": "a",
        "group_instance_id": "me",
        "session_timeout_ms": 7000,
        "max_poll_interval_ms": 9000,
        "metadata_max_age_ms": 1000,
        # What librdkafka takes for granted.
        "isolation_level": "read_committed",
        "allow_auto_create_topics": False,
        "enable_auto_commit": False,
    }
    assert properties.reader == {
        **GROUP,
        "topic.metadata.refresh.interval.ms": 1000,
        "fetch.min.bytes": 5,
        "socket.nagle.disable": True,
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "auto.offset.reset": "latest",
        "statistics.interval.ms": 5000,
        # It must neither commit nor store anything by itself.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
    }
    assert (properties.start, properties.auto_commit_s, properties.auto_store) == (OFFSET_END, 5.0, True)


@pytest.mark.parametrize(
    ("given", "member"),
    [
        ({"bootstrap.servers": "SASL_SSL://one:1, two:2"}, {"bootstrap_servers": ["one:1", "two:2"]}),
        ({"metadata.broker.list": "one:1"}, {"bootstrap_servers": ["one:1"]}),
        (
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "u",
                "sasl.password": "p",
                "ssl.ca.location": "ca.pem",
                "ssl.endpoint.identification.algorithm": "none",
            },
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "u",
                "sasl_plain_password": "p",
                "ssl_cafile": "ca.pem",
                "ssl_check_hostname": False,
            },
        ),
        ({"partition.assignment.strategy": "range"}, {"partition_assignment_strategy": [RackAwareRangeAssignor]}),
        (
            {"partition.assignment.strategy": "cooperative-sticky, sticky"},
            {"partition_assignment_strategy": [RackAwareCooperativeStickyAssignor, RackAwareStickyAssignor]},
        ),
        ({"group.protocol": "classic"}, {}),
        ({"default.topic.config": {"auto.offset.reset": "earliest"}}, {}),
    ],
)
def test_the_member_is_told_in_its_own_words(given: dict[str, Any], member: dict[str, Any]) -> None:
    told = ConsumerConfig.of({**GROUP, **given}).member
    assert {name: told[name] for name in member} == member


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"group.id": ""}, "group.id is missing"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": " , "}, "bootstrap.servers is missing"),
        ({"group.protocol": "consumer"}, "group.protocol: this consumer is a member of the classic protocol."),
        ({"group.remote.assignor": "uniform"}, "group.remote.assignor: kafka-python"),
        ({"partition.assignment.strategy": "roundrobin"}, "expected one of cooperative-sticky, range, sticky"),
        ({"auto.offset.reset": "middle"}, "auto.offset.reset: expected one of"),
        ({"max.poll.interval.ms": 0}, "max.poll.interval.ms: expected a number from 1 to 86400000, got 0"),
        ({"max.poll.interval.ms": "-1"}, "max.poll.interval.ms: expected a number from 1 to"),
        ({"auto.commit.interval.ms": -5}, "auto.commit.interval.ms: expected a number from 0 to"),
        ({"session.timeout.ms": 0}, "session.timeout.ms: expected a number from 1 to 3600000"),
        ({"heartbeat.interval.ms": 10**12}, "heartbeat.interval.ms: expected a number from 1 to 3600000"),
        ({5: 6}, "expected names of properties, got 5"),
        ({"session.timeout.ms": "soon"}, 'session.timeout.ms: expected a number, got "soon"'),
        ({"session.timeout.ms": True}, "session.timeout.ms: expected a number"),
        ({"enable.auto.commit": "perhaps"}, "enable.auto.commit: expected one of true, false"),
        ({"client.rack": [1]}, "client.rack: expected a string, got an array of 1"),
        ({"client.id": True}, "client.id: expected a string, got true"),
        ({"session.timeout.ms": 6000.5}, "session.timeout.ms: expected a number, got 6000.5"),
        ({"session.timeout.ms": float("inf")}, "session.timeout.ms: expected a number, got"),
        ({"session.timeout.ms": float("nan")}, "session.timeout.ms: expected a number, got"),
        # confluent-kafka refuses these as well.
        ({"session.timeout.ms": None}, "session.timeout.ms: expected a number, got null"),
        ({"enable.auto.commit": None}, "enable.auto.commit: expected"),
        ({"bootstrap.servers": None}, "bootstrap.servers is missing"),
        ({"group.id": None}, "group.id is missing"),
        ({"on_commit": 5}, "on_commit: expected a callable, got 5"),
        ({"stats_cb": "x"}, 'stats_cb: expected a callable, got "x"'),
        ({"security.protocol": "SSL", "ssl.ca.pem": "secret"}, "ssl.ca.pem: expected certificates as PEM"),
        ({"security.protocol": "SASL_SSL"}, "SASL_SSL needs sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.username and sasl.password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism: expected one of"),
        ({"sasl.oauthbearer.config": "x"}, "sasl.oauthbearer.config: kafka-python"),
        ({"ssl.key.pem": "secret"}, "ssl.key.pem: kafka-python"),
        ({"enable.ssl.certificate.verification": False}, "enable.ssl.certificate.verification: kafka-python"),
    ],
)
def test_what_cannot_be_kept_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        ConsumerConfig.of({**GROUP, **given})
    assert problem in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "member"),
    [
        ({"client.id": None}, {"client_id": None}),
        ({"group.instance.id": 3}, {"group_instance_id": "3"}),
        ({"group.instance.id": ""}, {"group_instance_id": None}),
        ({"bootstrap.servers": "broker:9092,, "}, {"bootstrap_servers": ["broker:9092"]}),
        # Off. kafka-python would refresh all the time.
        ({"topic.metadata.refresh.interval.ms": -1}, {"metadata_max_age_ms": None}),
        ({"topic.metadata.refresh.interval.ms": 0}, {"metadata_max_age_ms": None}),
        (
            {"group.id": 7, "client.id": 5.5, "client.rack": 1},
            {"group_id": "7", "client_id": "5.5", "client_rack": "1"},
        ),
        ({"client.rack": None}, {"client_rack": None}),
        ({"session.timeout.ms": "6000 ", "heartbeat.interval.ms": 2000.0}, {"session_timeout_ms": 6000}),
        ({"session.timeout.ms": "0x1770"}, {"session_timeout_ms": 6000}),
        ({"isolation.level": "READ_COMMITTED"}, {"isolation_level": "read_committed"}),
        ({"security.protocol": " Plaintext"}, {"security_protocol": "PLAINTEXT"}),
        ({"sasl.mechanism": "plain"}, {"sasl_mechanism": "PLAIN"}),
        ({"sasl.password": 73195528}, {"sasl_plain_password": "73195528"}),
        ({"group.protocol": "Classic"}, {}),
        ({"group.protocol": None, "partition.assignment.strategy": None, "auto.offset.reset": None}, {}),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, {"ssl_check_hostname": True}),
        ({"default.topic.config": None}, {}),
        ({"ssl.ca.pem": "of no use without TLS"}, {"ssl_context": None}),
    ],
)
def test_what_confluent_kafka_takes_is_taken(given: dict[str, Any], member: dict[str, Any]) -> None:
    told = ConsumerConfig.of({**GROUP, **given})
    assert {name: told.member.get(name) for name in member} == member
    # So does the reader's own client.
    if not {"group.protocol", "default.topic.config"} & given.keys():
        confluent_kafka.Consumer({**told.reader, "bootstrap.servers": "127.0.0.1:1", "log_level": 0}).close()


@pytest.mark.parametrize("value", ["Earliest", "EARLIEST", " earliest", "Beginning"])
def test_where_to_begin_is_read_as_librdkafka_reads_it(value: str) -> None:
    assert ConsumerConfig.of({**GROUP, "auto.offset.reset": value}).start == OFFSET_BEGINNING


def test_authorities_may_be_given_as_they_are(tmp_path: Path) -> None:
    authority = trustme.CA()
    pem = authority.cert_pem.bytes().decode()
    given = {"security.protocol": "SSL", "ssl.ca.pem": pem, "ssl.endpoint.identification.algorithm": "none"}
    told = ConsumerConfig.of({**GROUP, **given})
    context = told.member["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert told.reader["ssl.ca.pem"] == pem
    assert "ssl.ca.pem" not in told.member
    with pytest.raises(ConfigError, match=r"ssl\.\*: a file used with ssl\.ca\.pem cannot be read: .*No such file"):
        ConsumerConfig.of({**GROUP, **given, "ssl.certificate.location": str(tmp_path / "none")})


def test_assignors_are_given_once() -> None:
    assignor = RackAwareRangeAssignor("a")
    assert ConsumerConfig.of(GROUP, [assignor]).member["partition_assignment_strategy"] == [assignor]
    with pytest.raises(ConfigError, match="cannot be combined with assignors"):
        ConsumerConfig.of({**GROUP, "partition.assignment.strategy": "range"}, [assignor])
    for given in (RackAwareRangeAssignor, "range", 5):
        with pytest.raises(ConfigError, match="assignors: expected a list of assignors, got"):
            ConsumerConfig.of(GROUP, given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"default\.topic\.config: expected a dict of properties, got 5"):
        ConsumerConfig.of({**GROUP, "default.topic.config": 5})
    with pytest.raises(ConfigError, match="expected a dict of properties, got list"):
        ConsumerConfig.of([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 5.0),
        ({"enable.auto.commit": "false"}, None),
        ({"auto.commit.interval.ms": 250}, 0.25),
        ({"auto.commit.interval.ms": 0}, None),
    ],
)
def test_commits_by_itself_as_librdkafka_would(given: dict[str, Any], seconds: float | None) -> None:
    assert ConsumerConfig.of({**GROUP, **given}).auto_commit_s == seconds


@pytest.mark.parametrize(
    ("value", "on"),
    [
        (True, True),
        (1, True),
        ("1", True),
        ("T", True),
        ("True", True),
        (False, False),
        (0, False),
        ("0", False),
        ("f", False),
    ],
)
def test_switches_are_read_as_librdkafka_reads_them(value: object, *, on: bool) -> None:
    properties = ConsumerConfig.of({**GROUP, "enable.auto.commit": value, "enable.auto.offset.store": value})
    assert (properties.auto_commit_s is not None, properties.auto_store) == (on, on)
    confluent_kafka.Consumer({**GROUP, "enable.auto.commit": value}).close()


def test_callbacks_and_statistics_are_kept() -> None:
    properties = ConsumerConfig.of(
        {**GROUP, "stats_cb": print, "on_commit": max, "error_cb": repr, "statistics.interval.ms": 0}
    )
    assert properties.stats_cb is print
    assert properties.on_commit is max
    assert properties.reader["error_cb"] is repr
    assert properties.reader["statistics.interval.ms"] == 0
    assert not {"stats_cb", "on_commit"} & set(properties.reader)


@pytest.mark.parametrize(
    ("topics", "matched", "others"),
    [
        (["^a.*z$"], ["az", "abz"], ["azb", "baz"]),
        (["^a", "b.c"], ["ab", "b.c"], ["bxc", "b.cd", "cb.c"]),
        # As librdkafka does, whose expression matches anywhere.
        (["^a|b", "c"], ["ab", "b", "xb", "bx", "c"], ["xa", "xc"]),
    ],
)
def test_regular_expressions_and_names_make_one_pattern(
    topics: list[str], matched: list[str], others: list[str]
) -> None:
    # As the host matches.
    pattern = re.compile(pattern_of(topics) or "")
    assert all(pattern.match(name) for name in matched)
    assert not any(pattern.match(name) for name in others)


def test_names_are_no_pattern() -> None:
    assert pattern_of(["a.b", "c"]) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (kafka.errors.CommitFailedError(kafka.errors.IllegalGenerationError()), KafkaError.ILLEGAL_GENERATION),
        (kafka.errors.CommitFailedError(kafka.errors.UnknownMemberIdError()), KafkaError.UNKNOWN_MEMBER_ID),
        (kafka.errors.CommitFailedError(kafka.errors.RebalanceInProgressError()), KafkaError.REBALANCE_IN_PROGRESS),
        (kafka.errors.CommitFailedError("not part of an active group"), KafkaError.UNKNOWN_MEMBER_ID),
        (kafka.errors.CommitFailedError(), KafkaError.UNKNOWN_MEMBER_ID),
        (kafka.errors.RebalanceInProgressError("x"), KafkaError.REBALANCE_IN_PROGRESS),
        (kafka.errors.FencedInstanceIdError(), KafkaError.FENCED_INSTANCE_ID),
        (kafka.errors.KafkaTimeoutError(), KafkaError._TIMED_OUT),
        (kafka.errors.KafkaConnectionError(), KafkaError._TRANSPORT),
        (kafka.errors.IllegalStateError("x"), KafkaError._FAIL),
    ],
)
def test_errors_have_the_codes_of_confluent_kafka(error: kafka.errors.KafkaError, code: int) -> None:
    assert to_confluent_error(error).code() == code
    with pytest.raises(KafkaException) as raised, translate_errors():
        raise error
    assert raised.value.args[0].code() == code
    assert raised.value.__cause__ is error
