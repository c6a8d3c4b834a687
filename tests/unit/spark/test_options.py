"""What can be said about the Spark source, and what is said of what cannot."""

from __future__ import annotations

import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError, InputError
from rackassign.model import TopicPartition
from rackassign.spark._client_config import to_librdkafka
from rackassign.spark._metadata import KafkaMetadata
from rackassign.spark._offsets import Offsets, from_json, limit_offsets, parse_assignment, parse_offsets, to_json
from rackassign.spark._options import DISPLAY_NAMES, Mode, Options, StartingOffsets, kafka_options, without_effect
from tests.helpers.documents import ROOT

BASE = {"kafka.bootstrap.servers": "k:9092", "subscribe": "orders"}
ORDERS = [TopicPartition("orders", number) for number in range(3)]


def test_the_page_lists_all_options() -> None:
    page = (ROOT / "docs" / "reference" / "spark-options.md").read_text("utf-8")
    assert [name for name in DISPLAY_NAMES.values() if f"`{name}`" not in page] == []


def test_jvm_source_binds_the_rack_of_each_executor() -> None:
    assert kafka_options() == {
        "kafka.config.providers": "env",
        "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "kafka.client.rack": "${env:RACKASSIGN_RACK}",
    }
    assert kafka_options(writing=True) == {**kafka_options(), "kafka.partitioner.rack.aware": "true"}
    assert kafka_options("ZONE", provider="e2")["kafka.client.rack"] == "${e2:ZONE}"


@pytest.mark.parametrize("bad", ["", "A B", "1A", "${A}", "A}"])
def test_what_is_no_variable_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="rack_env"):
        kafka_options(bad)
    with pytest.raises(ConfigError, match="rackEnvVar"):
        Options.of({**BASE, "rackEnvVar": bad}, "batch")


def test_names_of_options_are_taken_in_any_case() -> None:
    options = Options.of(
        {
            **BASE,
            "STARTINGOFFSETS": "earliest",
            "maxoffsetspertrigger": "100",
            "FailOnDataLoss": "False",
            "INCLUDEHEADERS": "true",
            "RackBinding": "NONE",
            "onMissingRack": "fail",
            "kafkaConsumer.pollTimeoutMs": "1500",
            "minPartitions": "6",
        },
        "stream",
    )
    assert options.start == StartingOffsets(everywhere=-2)
    assert (options.limit, options.fail_on_loss, options.headers) == (100, False, True)
    assert (options.rack_binding, options.rack_required, options.poll_timeout_s) == ("none", True, 1.5)
    assert options.min_splits == 6


def test_defaults_are_those_of_the_jvm_source() -> None:
    batch, stream = Options.of(BASE, "batch"), Options.of(BASE, "stream")
    assert (batch.start, batch.end, stream.start) == (
        StartingOffsets(everywhere=-2),
        StartingOffsets(everywhere=-1),
        StartingOffsets(everywhere=-1),
    )
    assert batch.fail_on_loss
    assert batch.rack_binding == "executor"
    assert batch.client["isolation.level"] == "read_uncommitted"


def test_options_travel_to_executors() -> None:
    options = Options.of({**BASE, "startingOffsets": '{"orders": {"0": 5}}'}, "batch")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("wrong", "mode", "told"),
    [
        ({"kafka.bootstrap.servers": " "}, "batch", "kafka.bootstrap.servers is missing"),
        ({"subscribe": " , "}, "batch", "subscribe: expected topics"),
        ({"assign": '{"t": [0]}'}, "batch", "subscribe and assign: only one"),
        ({"startingOffsets": "latest"}, "batch", "startingOffsets: latest is not supported for a batch"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "batch", "startingOffsets: latest is not supported for a batch"),
        ({"endingOffsets": "earliest"}, "batch", "endingOffsets: earliest is not supported for a batch"),
        ({"endingOffsets": "latest"}, "stream", "endingOffsets: not supported for a stream"),
        ({"startingOffsets": "soon"}, "stream", "startingOffsets: expected one of earliest, latest"),
        ({"startingOffsets": '{"orders": 3}'}, "stream", "startingOffsets: .*expected an object by partition"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, "stream", "startingOffsets: .*expected a partition"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "stream", "startingOffsets: .*expected a number from -2"),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, "stream", "startingOffsets: .*expected a number"),
        ({"startingOffsets": "{"}, "stream", "startingOffsets: expected JSON"),
        ({"startingTimestamp": "-5"}, "stream", "startingTimestamp: expected a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "stream", "maxOffsetsPerTrigger: expected a whole number"),
        ({"failOnDataLoss": "maybe"}, "stream", "failOnDataLoss: expected one of true, false"),
        ({"rackBinding": "early"}, "batch", "rackBinding: expected one of none, executor, pull"),
        ({"minOffsetsPerTrigger": "5"}, "stream", "minOffsetsPerTrigger: not supported"),
        ({"rack": "a"}, "batch", "rack: not supported: all executors would have the same rack"),
        ({"subscirbe": "t"}, "batch", "unknown option subscirbe: expected one of .*subscribe"),
        ({"kafka.client.rack": "a"}, "batch", "kafka.client.rack: cannot be set"),
        ({"kafka.auto.offset.reset": "earliest"}, "batch", "kafka.auto.offset.reset: cannot be set: use startingOff"),
        ({"kafka.max.partition.fetch.bytes": "x"}, "batch", "kafka.max.partition.fetch.bytes: expected a whole"),
        ({"kafka.request.timeout.ms": "30s"}, "batch", 'kafka.request.timeout.ms: .*10 to 300000, got "30s"$'),
        ({"kafka.request.timeout.ms": "-5"}, "batch", 'kafka.request.timeout.ms: .*10 to 300000, got "-5"$'),
        ({"kafka.socket.timeout.ms": "5"}, "batch", 'kafka.socket.timeout.ms: .*10 to 300000, got "5"$'),
        ({"coordinatorPort": "99999"}, "stream", "coordinatorPort: expected a whole number from 0 to 65535"),
        ({"coordinatorTimeoutMs": "9" * 10}, "batch", "coordinatorTimeoutMs: expected a whole number from 1 to 2147"),
        ({"stealAfterMs": "9" * 25}, "batch", "stealAfterMs: expected a whole number from 0 to 2147"),
        ({"tasks": "9" * 5000}, "batch", "tasks: expected a whole number"),
        ({"batchRows": "1000001"}, "batch", "batchRows: expected a whole number from 1 to 1000000,"),
        ({"startingTimestamp": "9" * 30}, "batch", "startingTimestamp: expected a whole number from 0 to 9223372036"),
        ({"startingTimestamp": str(2**63)}, "batch", "startingTimestamp: expected a whole number"),
        ({"startingOffsets": '{"orders": {"%s": 3}}' % ("9" * 5000)}, "batch", "startingOffsets: .*a partition"),
        ({"startingOffsets": '{"orders": {"00": 3}}'}, "batch", "startingOffsets: .*expected a partition"),
        ({"subscribe": "orders,a b/c"}, "batch", '^subscribe: invalid topic name "a b/c"'),
        ({"subscribe": ".."}, "batch", 'subscribe: invalid topic name ".."'),
        ({"rackBinding": " PULL "}, "batch", "rackBinding: pull requires a coordinator"),
    ],
)
def test_what_cannot_work_is_named(wrong: dict[str, str], mode: Mode, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Options.of({**BASE, **wrong}, mode)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "it is a function") for name in ("error_cb", "logger", "on_commit", "stats_cb", "throttle_cb")),
        ("default.topic.config", "set its properties directly"),
        ("enable.auto.offset.store", "offsets are stored in the checkpoint"),
        ("metadata.broker.list", "use kafka.bootstrap.servers"),
    ],
)
def test_a_property_that_the_client_would_take_for_another_kind_of_value_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"kafka.{re.escape(name)}: cannot be set: {reason}"):
        Options.of({**BASE, f"kafka.{name}": "true"}, "stream")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("fetch.max.wait.ms", "fetch.wait.max.ms"),
        ("request.timeout.ms", "socket.timeout.ms"),
        ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("ssl.truststore.location", "ssl.ca.location"),
    ],
)
def test_a_property_is_not_set_twice_by_two_names(name: str, other: str) -> None:
    for names in ((name, other), (other, name)):
        both = {f"kafka.{each}": value for each, value in zip(names, ("1000", "2000"), strict=True)}
        with pytest.raises(ConfigError, match=f"^kafka.{re.escape(name)} and kafka.{re.escape(other)}: ") as caught:
            Options.of({**BASE, **both}, "stream")
        assert "1000" not in str(caught.value)
    same = {f"kafka.{name}": "1000", f"kafka.{other}": " 1000", "kafka.ssl.truststore.type": "PEM"}
    alone = {f"kafka.{name}": "1000", "kafka.ssl.truststore.type": "PEM"}
    assert Options.of({**BASE, **same}, "stream").client.keys() >= Options.of({**BASE, **alone}, "stream").client.keys()


def test_what_has_no_effect_is_named() -> None:
    given = {**BASE, "MAXoffsetspertrigger": "5", "stealAfterMs": "1", "coordinatorPort": "7"}
    batch = ["maxOffsetsPerTrigger: a batch query reads up to endingOffsets"]
    of_pull = [f"{name}: only rackBinding=pull uses it" for name in ("stealAfterMs", "coordinatorPort")]
    assert without_effect(given, Options.of(given, "batch"), "batch") == batch + of_pull
    assert without_effect(given, Options.of(given, "stream"), "stream") == of_pull
    pulled = {**given, "rackBinding": "PULL"}
    assert without_effect(pulled, Options.of(pulled, "stream"), "stream") == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kafka.fetch.min.bytes": "100000"}, "kafka.fetch.min.bytes: the source fetches no more than its range"),
        ({"kafka.fetch.max.bytes": "1"}, "kafka.fetch.max.bytes: each fetch is for one partition"),
        ({"kafka.max.partition.fetch.bytes": "50000000"}, "kafka.max.partition.fetch.bytes: a fetch has 4194304 bytes"),
        ({"onMissingRack": "fail", "rackBinding": "none"}, "onMissingRack: with rackBinding=none executors need no"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "5"},
            "startingOffsets: startingTimestamp is set as well",
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":5}}', "startingTimestamp": "5"},
            "startingOffsetsByTimestamp: startingTimestamp is set as well",
        ),
        ({"endingOffsets": "latest", "endingTimestamp": "5"}, "endingOffsets: endingTimestamp is set as well"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "startingOffsetsByTimestampStrategy: there is no timestamp"),
        ({"kafka.max.poll.records": "5"}, "kafka.max.poll.records: the source reads without a group"),
        ({"KAFKA.session.timeout.ms": "5"}, "kafka.session.timeout.ms: the source reads without a group"),
        ({"groupIdPrefix": "a", "kafka.group.id": "b"}, "groupIdPrefix: kafka.group.id is set as well"),
        ({"includeHeaders": "true", "columns": "key,value"}, "includeHeaders: headers is not among columns"),
        ({"rackEnvVar": "ZONE", "rackBinding": "none"}, "rackEnvVar: with rackBinding=none the rack of executors"),
    ],
)
def test_each_option_without_effect_is_named_alone(given: dict[str, str], named: str) -> None:
    options = {**BASE, **given}
    (found,) = without_effect(options, Options.of(options, "batch"), "batch")
    assert found.startswith(named)
    assert "fetch.min.bytes" not in Options.of(options, "batch").client


def test_an_option_with_effect_is_not_named() -> None:
    used = {**BASE, "onMissingRack": "fail", "startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}
    used |= {"kafka.max.partition.fetch.bytes": "4194304", "endingOffsets": "latest", "groupIdPrefix": "a"}
    used |= {"includeHeaders": "true", "columns": "headers,key", "rackEnvVar": "ZONE"}
    assert without_effect(used, Options.of(used, "batch"), "batch") == []
    # Reports have the rack of the executor, also without a binding.
    measured = {**BASE, "rackEnvVar": "ZONE", "rackBinding": "none", "metricsPath": "/reports"}
    assert without_effect(measured, Options.of(measured, "batch"), "batch") == []


def test_space_around_a_value_means_nothing() -> None:
    options = Options.of(
        {**BASE, "startingOffsets": " earliest ", "rackBinding": " executor", "tasks": " 3 "}, "stream"
    )
    assert (options.start, options.rack_binding, options.tasks) == (StartingOffsets(everywhere=-2), "executor", 3)


def test_the_largest_numbers_are_taken() -> None:
    largest = {"startingTimestamp": str(2**63 - 1), "maxOffsetsPerTrigger": str(2**63 - 1), "batchRows": "1000000"}
    options = Options.of({**BASE, **largest, "coordinatorPort": "0", "stealAfterMs": "00"}, "stream")
    assert (options.start, options.limit) == (StartingOffsets(timestamp=2**63 - 1), 2**63 - 1)
    assert (options.batch_rows, options.coordinator_port, options.steal_after_s) == (1_000_000, 0, 0)
    assert Options.of({**BASE, "kafka.request.timeout.ms": "3000"}, "batch").client["socket.timeout.ms"] == "3000"


def test_what_librdkafka_refuses_is_told_in_a_line() -> None:
    with pytest.raises(
        ConfigError, match=r"librdkafka rejected the configuration: .*outside allowed range.*\d$"
    ) as caught:
        KafkaMetadata(Options.of({**BASE, "kafka.socket.connection.setup.timeout.ms": "1"}, "batch").client)
    assert str(caught.value).isprintable()


def test_a_pattern_must_be_one() -> None:
    told = {"kafka.bootstrap.servers": "k:9092", "subscribePattern": "orders.*"}
    assert Options.of(told, "batch").topics.pattern == "orders.*"
    with pytest.raises(ConfigError, match="subscribePattern: expected a regular expression"):
        Options.of({**told, "subscribePattern": "("}, "batch")
    with pytest.raises(ConfigError, match='assign: invalid topic name "a b"'):
        Options.of({"kafka.bootstrap.servers": "k:9092", "assign": '{"a b": [0]}'}, "batch")
    with pytest.raises(ConfigError, match="subscribe is missing"):
        Options.of({"kafka.bootstrap.servers": "k:9092"}, "batch")


def test_splits_are_pulled_in_streams_and_in_batches_with_a_coordinator() -> None:
    pull = {**BASE, "rackBinding": "pull", "tasks": "3"}
    held = {**pull, "coordinatorHost": "driver", "coordinatorPort": "7", "coordinatorToken": "hush"}
    assert Options.of(pull, "stream").tasks == 3
    assert Options.of(held, "batch").coordinator_token == "hush"  # noqa: S105
    assert "hush" not in repr(Options.of(held, "batch"))
    with pytest.raises(ConfigError, match=r"rackBinding: pull requires a coordinator .*\*\*c\.options"):
        Options.of(pull, "batch")
    with pytest.raises(ConfigError, match="coordinatorToken: only for batch queries"):
        Options.of(held, "stream")


def test_java_properties_become_those_of_librdkafka() -> None:
    assert to_librdkafka(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="me" password="a\\"b";',
            "ssl.truststore.location": "/ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": "/key.p12",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": "secret",
            "ssl.endpoint.identification.algorithm": "",
            "fetch.max.wait.ms": "10",
            "max.poll.records": "5",
            "client.id": "mine",
        }
    ) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b',
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/key.p12",
        "ssl.keystore.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
        "fetch.wait.max.ms": "10",
        "client.id": "mine",
    }


def test_a_login_with_a_delegation_token_is_refused_and_a_password_that_looks_like_one_is_not() -> None:
    login = 'x.ScramLoginModule required username="id" password="tokenauth=true"'
    assert to_librdkafka({"sasl.jaas.config": f"{login};"})["sasl.password"] == "tokenauth=true"
    with pytest.raises(ConfigError, match=r"^kafka\.sasl\.jaas\.config: tokenauth: .*with tokenProvider$"):
        to_librdkafka({"sasl.jaas.config": f"{login} tokenauth=true;"})


@pytest.mark.parametrize(
    "given_properties",
    [
        {"ssl.truststore.location": "secret-place"},
        {"ssl.keystore.location": "secret-place", "ssl.keystore.type": "jks"},
        {"sasl.jaas.config": 'x.OAuthBearerLoginModule required password="secret-place";'},
        {"sasl.jaas.config": 'x.PlainLoginModule required password="secret-place";'},
        {"interceptor.classes": "secret-place"},
    ],
)
def test_what_librdkafka_cannot_do_is_refused_and_no_value_shown(given_properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.[a-z]+") as caught:
        to_librdkafka(given_properties)
    assert "secret-place" not in str(caught.value)


def test_the_offsets_of_a_checkpoint_are_those_of_the_jvm_source() -> None:
    offsets = {TopicPartition("b", 10): 3, TopicPartition("b", 2): 2**60, TopicPartition("a", 0): 0}
    text = json.dumps(to_json(offsets), separators=(",", ":"))
    assert text == '{"a":{"0":0},"b":{"2":1152921504606846976,"10":3}}'
    assert from_json(json.loads(text)) == offsets
    wrongs: list[object] = [None, [], {"a": 1}, {"a": {"0": "1"}}, {"a": {"0": -1}}]
    for wrong in wrongs:
        with pytest.raises(InputError, match="checkpoint"):
            from_json(wrong)


def test_partitions_may_be_named() -> None:
    assert parse_assignment("assign", '{"b": [1, 0, 1], "a": [2]}') == (("a", 2), ("b", 0), ("b", 1))
    for wrong in ("{}", '{"a": 1}', '{"a": [-1]}', '{"a": [true]}', "[]", '{"a": [2147483648]}'):
        with pytest.raises(ConfigError, match="assign"):
            parse_assignment("assign", wrong)
    assert parse_offsets("startingOffsets", '{"a": {"0": -2}}') == {TopicPartition("a", 0): -2}


def test_a_limit_is_shared_out_as_by_the_jvm_source() -> None:
    start: dict[TopicPartition, int] = dict.fromkeys(ORDERS, 0)
    latest = dict.fromkeys(ORDERS, 1000)
    taken = []
    while start != latest:
        end = limit_offsets(start, latest, 1000)
        taken.append(sum(end.values()) - sum(start.values()))
        start = end
    assert taken == [999, 999, 999, 3]


SIZES = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 2**41))
def test_a_limit_holds_and_nobody_starves(sizes: list[tuple[int, int]], limit: int) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in enumerate(sizes)}
    latest: Offsets = {place: start[place] + size for place, (_, size) in zip(start, sizes, strict=True)}
    end = limit_offsets(start, latest, limit)
    waiting = [place for place in start if latest[place] > start[place]]
    assert all(start[place] < end[place] <= latest[place] for place in waiting)
    assert all(end[place] == latest[place] for place in start if place not in waiting)
    assert sum(end.values()) - sum(start.values()) <= limit + len(waiting)
    if sum(latest.values()) - sum(start.values()) <= limit:
        assert end == latest


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("session.timeout.ms", "x", "expected a whole number"),
        ("heartbeat.interval.ms", "3s", "expected a whole number"),
        ("max.poll.interval.ms", "0", "expected a whole number from 1"),
        ("max.poll.records", "-1", "expected a whole number from 1"),
        ("default.api.timeout.ms", "", "expected a whole number"),
        ("exclude.internal.topics", "maybe", "expected one of true, false"),
        ("partition.assignment.strategy", " ", "expected a value"),
        ("fetch.max.bytes", "1e6", "expected a whole number"),
        # What executors only would be told of.
        ("fetch.max.wait.ms", "soon", "expected a whole number from 0 to 300000"),
        ("fetch.wait.max.ms", "300001", "expected a whole number from 0 to 300000"),
        ("fetch.min.bytes", "0", "expected a whole number from 1"),
        ("check.crcs", "2", "expected one of true, false"),
        ("group.id", "", "expected a value"),
        ("ssl.truststore.type", "PEMM", "expected one of PEM, PKCS12, JKS"),
        ("ssl.keystore.type", "x", "expected one of PEM, PKCS12, JKS"),
    ],
)
def test_values_of_properties_are_read_whoever_makes_use_of_them(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"kafka.{re.escape(name)}: {told}"):
        Options.of({"kafka.bootstrap.servers": "k:1", "subscribe": "t", f"kafka.{name}": value}, "batch")


def test_good_values_of_properties_that_are_of_no_use_here_are_passed_over() -> None:
    told = {
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": " 3000 ",
        "max.poll.interval.ms": "300000",
        "max.poll.records": "500",
        "default.api.timeout.ms": "60000",
        "exclude.internal.topics": "TRUE",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        "fetch.max.bytes": "52428800",
        "ssl.truststore.type": "JKS",
    }
    plain = {"kafka.bootstrap.servers": "k:1", "subscribe": "t"}
    with_them = Options.of({**plain, **{f"kafka.{name}": value for name, value in told.items()}}, "batch")
    assert with_them == Options.of(plain, "batch")
    kept = Options.of({**plain, "kafka.fetch.max.wait.ms": " 10 ", "kafka.check.crcs": "True"}, "batch").client
    assert (kept["fetch.wait.max.ms"], kept["check.crcs"]) == ("10", "True")
