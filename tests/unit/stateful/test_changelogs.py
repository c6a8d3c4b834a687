"""Changelogs: how clients of a member connect, what topics must be, new partitions, and what copies read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from rackassign.admin.alter import TopicAdmin
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.stateful import StateStore
from rackassign.stateful._changelog_client import client_settings
from rackassign.strategies.standby import StandbyOptions
from tests.helpers.stateful_world import FIRST, LOG, Stage
from tests.helpers.tasks import Record

WARM = {"standbys": StandbyOptions(num_standby_replicas=1)}

CONNECTION: dict[str, Any] = {
    "api_version": (3, 9),
    "proxy_url": "socks5://proxy:1080",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "user",
    "sasl_plain_password": "secret",
    "ssl_cafile": "ca.pem",
    "client_dns_lookup": "use_all_dns_ips",
    "metadata_max_age_ms": 5000,
    "request_timeout_ms": 50_000,
    "reconnect_backoff_ms": 70,
    "client_id": "counter",
}


def test_what_belongs_to_a_connection_reaches_all_clients() -> None:
    found = client_settings({"max_poll_records": 7, "session_timeout_ms": 9000, "ssl_ciphers": "X", **CONNECTION})
    for config in found:
        assert CONNECTION.items() <= config.items()
    assert found.consumer["max_poll_records"] == 7
    assert ["session_timeout_ms" in config for config in found] == [True, False, False, False]
    assert ["ssl_ciphers" in config for config in found] == [True, True, True, False]


def test_each_client_of_kafka_python_knows_the_settings_it_gets() -> None:
    found = client_settings(KafkaConsumer.DEFAULT_CONFIG)
    assert found.reader.keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()
    assert found.producer.keys() <= KafkaProducer.DEFAULT_CONFIG.keys()
    assert found.admin.keys() <= KafkaAdminClient.DEFAULT_CONFIG.keys()
    # An idempotent producer refuses more than five.
    assert "max_in_flight_requests_per_connection" not in found.producer


@pytest.mark.parametrize("request_ms", [1000, 1000.0, 119_999, 150_000, 200_000.0])
def test_a_producer_has_the_time_for_a_request_however_long(request_ms: float) -> None:
    found = client_settings({"request_timeout_ms": request_ms}).producer
    # kafka-python refuses less.
    assert found["delivery_timeout_ms"] > found["request_timeout_ms"] + 2
    assert found["delivery_timeout_ms"] >= KafkaProducer.DEFAULT_CONFIG["delivery_timeout_ms"]
    assert "delivery_timeout_ms" not in client_settings({"bootstrap_servers": "x"}).producer


# What the topics must be.

BRIEF = {"delete.retention.ms": "60000", "min.compaction.lag.ms": "60000"}
BRIEFER = {"delete.retention.ms": "0", "min.compaction.lag.ms": "1000"}


def test_changelogs_that_do_not_fit_are_refused(stage: Stage) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"cleanup.policy": "delete"}, "must have cleanup.policy=compact, but has delete"),
        ({"cleanup.policy": "compact,delete"}, "must have cleanup.policy=compact, but has compact,delete"),
        (BRIEFER, "has delete.retention.ms=0 and min.compaction.lag.ms=1000: one must be at least 60000"),
    ]
    for number, (configs, problem) in enumerate(cases):
        name = f"g{number}-t-changelog"
        stage.remake(name)
        stage.cluster.configs[name] = {"cleanup.policy": "compact", **configs}
        (error,) = stage.start(f"{number}", group_id=f"g{number}").raised
        assert isinstance(error, ConfigError)
        assert f"{name} {problem}" in str(error)
    stage.remake("g-t-changelog", 3)
    for more, problem in (
        ({"topics": ["none"]}, "topic none does not exist"),
        ({"group_id": "g"}, "g-t-changelog has 3 partitions and t has 2"),
        ({"output": "g-t-changelog", "group_id": "g"}, "g-t-changelog has 3 partitions"),
        ({"output": LOG}, f"topic {LOG} of output is a changelog of this group"),
        ({"output": ["t", "none"]}, "topic none of output does not exist"),
        ({"transaction_timeout_ms": 900_001}, "transaction_timeout_ms of 900001 is more than brokers allow"),
    ):
        process = (lambda *_: None) if "output" in more else lambda _, __: None
        (error,) = stage.start("more", process=process, **more).raised
        assert isinstance(error, ConfigError)
        assert problem in str(error)
        # Nothing is left open.
        assert not [each for each in stage.cluster.links if each.client.name.startswith("mmore")]


@pytest.mark.parametrize(
    ("configs", "kept_ms", "told"),
    [
        ({}, 86_400_000, None),
        (BRIEF, 60_000, "has delete.retention.ms=60000: with less than 86400000, copies may differ"),
        # Deletions are kept until they may be compacted.
        ({"delete.retention.ms": "0", "min.compaction.lag.ms": "3600000"}, 3_600_000, "has delete.retention.ms=0"),
        ({"unclean.leader.election.enable": "true"}, 86_400_000, "a leader without its last records would lose state"),
    ],
)
def test_a_changelog_that_may_lose_something_is_told_of(
    stage: Stage, caplog: pytest.LogCaptureFixture, configs: dict[str, str], kept_ms: int, told: str | None
) -> None:
    stage.remake(LOG)
    stage.cluster.configs[LOG] = {"cleanup.policy": "compact", **configs}
    one = stage.start()
    stage.feed(3)
    stage.run()
    assert (told is None) == ("WARNING" not in caplog.text)
    assert told is None or told in caplog.text
    # A state that was not read on for more than half of the time that deletions are kept is discarded.
    for share, discarded in ((0.3, False), (0.55, True)) if "delete.retention.ms" in configs else ():
        stage.stop(one)
        stage.world.now += share * kept_ms / 1000
        reads = list[tuple[int, int]]()
        one = stage.start(on_restore=lambda _, *read, reads=reads: reads.append(read))
        stage.run(1.0)
        assert (one.counted(), (3, 3) in reads) == (3, discarded)


def test_a_changelog_is_made_with_what_local_files_need(stage: Stage) -> None:
    stage.start()
    assert stage.cluster.configs[LOG] == {
        "cleanup.policy": "compact",
        "delete.retention.ms": "86400000",
        "min.compaction.lag.ms": "3600000",
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "LogAppendTime",
    }
    assert [len(each.replicas) for each in stage.cluster.topics[LOG]] == [2, 2]


@pytest.mark.parametrize("least", [1, None])
def test_with_brokers_down_a_changelog_has_fewer_replicas_or_waits_for_them(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, least: int | None
) -> None:
    # The topic's `min.insync.replicas`; if it is not known, all of them are needed.
    monkeypatch.setattr(TopicAdmin, "validate", lambda *_: SimpleNamespace(min_isr=least))
    for node in (2, 3):
        stage.cluster.kill_broker(node)
    stage.run(12.0)
    one = stage.start()
    stage.run(4.0)
    told = f"{LOG} was created with 1 replicas instead of 2, because brokers are missing"
    assert (LOG in stage.cluster.topics, told in caplog.text) == (least is not None, least is not None)
    stage.run(40.0 if least is None else 1.0)
    assert [type(each) for each in one.raised] == ([KafkaUnavailableError] if least is None else [])
    again = stage.launch("2")
    stage.run(4.0)
    stage.cluster.start_broker(2)
    stage.run(10.0)
    assert (LOG in stage.cluster.topics, again.raised) == (True, [])


def test_a_key_with_a_value_that_a_changelog_does_not_take_fails_with_its_record_alone(stage: Stage) -> None:
    def process(record: Record, state: StateStore) -> None:
        state.put(b"n", b"%d" % record.offset)
        if record.offset == 3:
            state.put(b"large", bytes(sizes[-1]))

    stage.remake(LOG)
    stage.cluster.configs[LOG] = {"cleanup.policy": "compact", "max.message.bytes": "6024"}
    sizes = [4994, 4995]
    one = stage.start(process=process)
    stage.feed(5)
    stage.run()
    assert "a key of 6 bytes and its value have 5,001 bytes, of which the changelog takes 5,000" in str(one.raised[0])
    assert one.items() == {b"n": b"2"}
    sizes.pop()
    stage.run()
    assert one.items()[b"n"] == b"4"


def test_a_changelog_of_the_earlier_format_is_refused_with_what_to_do(stage: Stage) -> None:
    stage.remake(LOG)
    stage.cluster.configs[LOG] = {"cleanup.policy": "compact"}
    stage.write(LOG, b"\0fence", headers=[("rackassign", bytes(17))])
    one = stage.launch()
    stage.run(1.0)
    assert isinstance(one.raised[0], ConfigError)
    assert f"{LOG} was written by a version before" in str(one.raised[0])


# New partitions.


def test_a_changelog_is_extended_while_the_group_runs(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    one = stage.start("1", **WARM)
    other = stage.start("2", **WARM)
    stage.cluster.add_partitions("t", 3)
    stage.feed(3, 2)
    stage.run(14.0)
    assert (one.counted(2), other.counted(2)) == (3, 3)
    assert len(stage.cluster.topics[LOG]) == 3
    assert caplog.text.count("t has 3 partitions now: group-t-changelog, which had 2, was extended") == 1
    for member in (one, other):
        stage.stop(member)
    stage.cluster.add_partitions("t", 4)
    stage.feed(2, 3)
    late = stage.start("3")
    stage.run(6.0)
    assert (late.counted(2), late.counted(3)) == (3, 2)


def test_without_the_permission_one_message_names_the_command_and_the_others_go_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.cluster.extends = False
    one = stage.start()
    stage.cluster.add_partitions("t", 3)
    stage.feed(3, 2)
    stage.feed(2)
    stage.run(14.0)
    assert {tp.partition for tp in one.stateful.active_partitions()} == {0, 1}
    assert one.counted() == 2
    command = f"kafka-topics.sh --bootstrap-server broker:9001 --alter --topic {LOG} --partitions 3"
    assert caplog.text.count(command) == 1
    assert f"not allowed: ALTER on topic {LOG}" in caplog.text
    # A restart changes nothing.
    stage.stop(one)
    one = stage.start()
    stage.feed(1)
    stage.run()
    assert (one.counted(), caplog.text.count(command)) == (3, 2)
    stage.cluster.add_partitions(LOG, 3)
    stage.run(14.0)
    assert one.counted(2) == 3


# Copies.


def test_a_copy_has_each_commit_whole_or_not_at_all(stage: Stage) -> None:
    """Also one with more records than are read at once."""

    def process(record: Record, state: StateStore) -> None:
        for key in range(5200):
            state.put(b"%d" % key, b"%d" % record.offset)

    one, copy = stage.start("1", process=process, **WARM), stage.start("2", process=process, **WARM)
    owner, other = (one, copy) if FIRST in one.stateful.active_partitions() else (copy, one)
    seen: set[tuple[bytes, ...]] = set()
    stage.feed(1)
    for _ in range(20):
        stage.run(0.1)
        seen.add(tuple(set(other.items().values())))
    assert seen == {(), (b"0",)}
    assert len(other.items()) == 5200
    assert other.items() == owner.items()


def test_a_cluster_that_does_not_respond_is_an_error_within_a_limit(stage: Stage) -> None:
    one = stage.start()
    stage.stop(one)
    for node in (1, 2, 3):
        stage.cluster.freeze(node, 1000.0)
    one = stage.launch()
    stage.run(200.0)
    assert isinstance(one.raised[0], KafkaUnavailableError)
