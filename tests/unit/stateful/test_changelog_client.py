"""All clients of a member connect in the same way, and the changelog is created with the brokers there are.

Changelogs that are cut or made again while a member reads them, or is away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaConnectionError,
    KafkaError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.stateful import _active_tasks as active_tasks
from rackassign.stateful import _changelog_topics as changelog_topics
from rackassign.stateful._changelog_client import client_settings
from tests.helpers.fakes.kafka import Consumer, Kafka, Member, Record
from tests.helpers.stateful_consumers import FIRST, LOG, counted, drain, give, member

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


def test_what_belongs_to_a_connection_reaches_all_clients(kafka: Kafka, tmp_path: Path) -> None:
    member(tmp_path, max_poll_records=7, session_timeout_ms=9000, ssl_ciphers="X", **CONNECTION).close()
    # A leader that stands still is not asked for as long as a request may take.
    assert kafka.settings["ends"].pop("request_timeout_ms") == 5000
    assert CONNECTION.items() - kafka.settings.pop("ends").items() == {("request_timeout_ms", 50_000)}
    assert kafka.settings.keys() == {"consumer", "reader", "producer", "admin"}
    for config in kafka.settings.values():
        assert CONNECTION.items() <= config.items()
    assert {name for name, config in kafka.settings.items() if "session_timeout_ms" in config} == {"consumer"}
    assert kafka.settings["consumer"]["max_poll_records"] == 7
    assert {name for name, config in kafka.settings.items() if "ssl_ciphers" in config} == {
        "consumer",
        "reader",
        "producer",
    }


def test_each_client_of_kafka_python_knows_the_settings_it_gets() -> None:
    found = client_settings(KafkaConsumer.DEFAULT_CONFIG)
    assert found.reader.keys() <= KafkaConsumer.DEFAULT_CONFIG.keys()
    assert found.producer.keys() <= KafkaProducer.DEFAULT_CONFIG.keys()
    assert found.admin.keys() <= KafkaAdminClient.DEFAULT_CONFIG.keys()
    # An idempotent producer refuses more than five.
    assert "max_in_flight_requests_per_connection" not in found.producer


@pytest.mark.parametrize("request_ms", [1000, 1000.0, 200_000, 200_000.0])
def test_a_producer_has_the_time_for_a_request_however_long(request_ms: float) -> None:
    found = client_settings({"request_timeout_ms": request_ms}).producer
    # kafka-python refuses less.
    assert found["delivery_timeout_ms"] > found["request_timeout_ms"] + 2
    assert found["delivery_timeout_ms"] >= KafkaProducer.DEFAULT_CONFIG["delivery_timeout_ms"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("sesion_timeout_ms", '"sesion_timeout_ms" is no setting of KafkaConsumer; did you mean session_timeout_ms?'),
        ("qqq", '"qqq" is no setting of KafkaConsumer$'),
        ("linger_ms", '"linger_ms" is no setting of KafkaConsumer'),
    ],
)
def test_unknown_settings_are_refused_by_name(kafka: Kafka, tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        member(tmp_path, **{name: 1})
    assert LOG not in kafka.topics
    assert not kafka.open


def test_with_a_broker_down_a_changelog_has_fewer_replicas(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.brokers = 1
    member(tmp_path).close()
    assert "g-t-changelog was created with 1 replicas instead of 2, because brokers are missing" in caplog.text


def test_a_changelog_with_too_few_replicas_to_write_to_waits_for_brokers(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.brokers, kafka.min_isr = 1, "2"
    with monkeypatch.context() as patch:
        patch.setattr(changelog_topics, "_BROKERS_S", 0.0)
        with pytest.raises(KafkaUnavailableError, match="InvalidReplicationFactorError"):
            member(tmp_path)
    assert LOG not in kafka.topics
    kafka.brokers, kafka.refuse = 1, ["a broker returns"]
    member(tmp_path).close()
    assert LOG in kafka.topics
    assert "instead of" not in caplog.text


def by_key(record: Record, state: StateStore) -> None:
    assert record.key
    state.put(record.key, b"%d" % (int(state.get(record.key) or 0) + 1))


def feed(kafka: Kafka, *keys: bytes) -> None:
    for key in keys:
        kafka.append("t", 0, key, b"x")


def items(one: StatefulConsumer) -> dict[bytes, bytes]:
    return dict(one.store(FIRST).items())


def standby(one: StatefulConsumer) -> None:
    one._assignor._copies.kept = frozenset({FIRST})
    give(one)


@contextmanager
def owner_and_standby(kafka: Kafka, folder: Path) -> Iterator[tuple[StatefulConsumer, StatefulConsumer]]:
    """Yield an owner that has processed a record, and a standby that has read nothing yet."""
    with member(folder / "1", process=by_key) as one, member(folder / "2", process=by_key) as copy:
        give(one, 0)
        feed(kafka, b"a")
        drain(one)
        standby(copy)
        yield one, copy


@pytest.mark.parametrize("kept", [0, 3, 6])
def test_a_standby_notices_that_its_changelog_was_cut(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: int
) -> None:
    """Its records are replaced by others at the same offsets and beyond, as of a leader that had not all of them."""
    with (
        member(tmp_path / "1", process=by_key) as one,
        member(tmp_path / "2", process=by_key) as copy,
        member(tmp_path / "3", process=by_key) as fresh,
    ):
        give(one, 0)
        for key in (b"a", b"b", b"c", b"d"):
            feed(kafka, key)
            drain(one)
        standby(copy)
        drain(copy)
        assert items(copy) == dict.fromkeys((b"a", b"b", b"c", b"d"), b"1")
        del kafka.topics[LOG].logs[0][kept:]
        drain(copy)
        drain(one)
        for key in (b"e", b"f", b"g", b"h", b"i"):
            feed(kafka, key)
            drain(one)
        drain(copy)
        standby(fresh)
        drain(fresh)
        assert items(copy) == items(fresh) == items(one)
    assert "t-0: its changelog was recreated: discarding and rebuilding the local state" in caplog.text


@pytest.mark.parametrize("owns", [False, True], ids=["standby", "owner"])
@pytest.mark.parametrize("kept", [3, 6])
def test_a_file_from_before_an_unclean_election_is_not_used(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: int, *, owns: bool
) -> None:
    """While its member is down the log is cut, and soon is longer again than the file knows it."""
    with member(tmp_path / "1", process=by_key) as one:
        give(one, 0)
        with member(tmp_path / "2", process=by_key) as copy:
            for key in (b"a", b"b", b"c", b"d"):
                feed(kafka, key)
                drain(one)
            standby(copy)
            drain(copy)
        del kafka.topics[LOG].logs[0][kept:]
        with member(tmp_path / "3", process=by_key) as other:
            give(one)
            give(other, 0)
            for key in (b"e", b"f", b"g", b"h", b"i", b"j"):
                feed(kafka, key)
                drain(other)
            expected, end = items(other), len(kafka.topics[LOG].logs[0])
            give(other)
        seen: list[tuple[int, int]] = []
        with member(tmp_path / "2", process=by_key, on_restore=lambda _, *read: seen.append(read)) as again:
            give(again, 0) if owns else standby(again)
            drain(again)
            assert items(again) == expected
    # All of it is read again.
    assert seen[-1:] == [(end, end)] * owns
    assert all(0 <= read <= end for read, _ in seen)
    assert "t-0: its changelog does not have the last record that its local file was read up to" in caplog.text


def test_a_file_whose_last_record_is_there_is_used(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with owner_and_standby(kafka, tmp_path) as (one, copy):
        drain(copy)
        copy.close()
        feed(kafka, b"a", b"b")
        drain(one)
        read: list[int] = []
        with member(tmp_path / "2", process=by_key) as again:
            assign = again._logs.assign

            def recorded(positions: Mapping[TopicPartition, int]) -> None:
                read.extend(positions.values())
                assign(positions)

            again._logs.assign = recorded  # type: ignore[method-assign]
            standby(again)
            drain(again)
            assert items(again) == items(one)
    assert read[0] > 0
    assert "discarding" not in caplog.text


def test_a_standby_goes_on_after_a_read_that_has_failed(kafka: Kafka, tmp_path: Path) -> None:
    with owner_and_standby(kafka, tmp_path) as (one, copy):
        drain(copy)
        feed(kafka, b"b", b"c")
        drain(one)
        logs = copy._logs
        raised: list[KafkaPythonPartition] = []

        def position(host: KafkaPythonPartition, timeout_ms: float | None = None) -> int:
            """Fail once, with records that the client has returned and does not return again."""
            del timeout_ms
            if not raised:
                raised.append(host)
                raise KafkaError("no leader")
            return int(logs._reader.at[host])

        logs._reader.position = position
        drain(copy, KafkaError)
        assert raised
        assert items(copy) == items(one)


@pytest.mark.usefixtures("kafka")
def test_a_broker_that_does_not_respond_about_a_changelog_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[KafkaError] = [KafkaConnectionError(), RequestTimedOutError("after 9999 ms")]
    real = Consumer.partitions_for_topic

    def partitions_for_topic(self: Consumer, name: str) -> set[int] | None:
        if name == LOG and errors:
            raise errors.pop()
        return real(self, name)

    monkeypatch.setattr(Consumer, "partitions_for_topic", partitions_for_topic)
    member(tmp_path).close()
    assert not errors
    errors.append(TopicAuthorizationFailedError())
    with pytest.raises(TopicAuthorizationFailedError):
        member(tmp_path)


def test_a_standby_waits_for_a_position_that_is_not_known(kafka: Kafka, tmp_path: Path) -> None:
    with owner_and_standby(kafka, tmp_path) as (one, copy):
        left = [None] * 3
        real = copy._logs._reader.position
        copy._logs._reader.position = lambda host, **options: left.pop() if left else real(host, **options)
        drain(copy)
        assert not left
        assert items(copy) == items(one)


def test_positions_of_many_partitions_are_waited_for_together(kafka: Kafka, tmp_path: Path) -> None:
    kafka.make("many", 50)
    with member(tmp_path, "many") as copy:
        tasks = frozenset(TopicPartition("many", number) for number in range(50))
        copy._assignor._copies.kept = tasks
        give(copy)
        copy.poll(0)
        reader, waited = copy._logs._reader, [0.0]

        def position(host: KafkaPythonPartition, timeout_ms: float) -> int:
            """Wait for a partition that was put back, whichever is asked for, as kafka-python does."""
            time.sleep(timeout_ms / 1000)
            waited[0] += timeout_ms
            return int(reader.at[host])

        reader.position = position
        copy.poll(0)
        assert 0 < waited[0] <= 150


@pytest.mark.parametrize("begins_again", [False, True], ids=["generations go on", "generations begin again"])
def test_a_member_that_was_cut_off_while_the_group_was_reset_begins_again(
    kafka: Kafka,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    begins_again: bool,  # noqa: FBT001
) -> None:
    with member(tmp_path / "1", process=by_key) as away:
        give(away, 0)
        feed(kafka, b"a", b"b", b"a")
        drain(away)
        # Meanwhile retention has removed what it had read.
        kafka.topics["t"].logs[0].clear()
        kafka.topics["t"].logs[0].append(Record(3, b"c", b"x", (), "t", 0, -1))
        del kafka.topics[LOG]
        kafka.committed.clear()
        with member(tmp_path / "2", process=by_key) as other:
            give(other, 0)
            for _ in range(6):
                feed(kafka, b"a")
                drain(other)
            truth = items(other)
            give(other)
            kafka.refuse[:] = ["describe_topics"]
            if begins_again:
                # The group has been deleted: its generations begin again, and lead to the one of before.
                kafka.generation = away._assignor.generation - 1
            assert isinstance(away.consumer, Member)
            away.consumer.member_id = "another-one"
            give(away, 0)
            drain(away)
            assert not kafka.refuse
            assert items(away) == truth == {b"a": b"6", b"c": b"1"}
            feed(kafka, b"a")
            drain(away)
            standby(other)
            drain(other)
            assert items(other) == items(away) == {b"a": b"7", b"c": b"1"}
        assert counted_files(tmp_path / "1") == 1
    assert caplog.text.count("the changelog of t is another topic than before: discarding the local state") == 1
    assert caplog.text.count("nothing is processed yet after an absence: changelogs cannot be described") == 1


def counted_files(folder: Path) -> int:
    return len(list(folder.glob("*.sqlite")))


def test_a_member_that_missed_a_generation_keeps_its_state(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path) as one:
        give(one, 0, 1)
        kafka.feed(0, 3)
        drain(one)
        store = one._shelf.find(FIRST)
        kafka.generation += 4
        give(one, 0, 1)
        drain(one)
        assert one._shelf.find(FIRST) is store
        assert counted(one) == 3
        assert one.active_partitions() == {FIRST, TopicPartition("t", 1)}


def test_a_look_at_changelogs_that_fails_is_not_repeated_with_each_poll(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_tasks, "_AGAIN_S", 60.0)
    monkeypatch.setattr(active_tasks, "_PAUSE_S", 0.0)
    with member(tmp_path) as one:
        give(one, 0)
        kafka.feed(0, 3)
        drain(one)
        kafka.generation += 4
        give(one, 0)
        kafka.refuse[:] = ["describe_topics"] * 9
        drain(one)
        assert len(kafka.refuse) == 8
        kafka.refuse.clear()
        one._active._look_at = 0.0
        one.poll(0)
        assert not one._active._was_absent


@pytest.mark.parametrize(
    "error",
    [
        InvalidTimestampError("Timestamp 9 of message with offset 0 is out of range"),
        InvalidRecordError("Timestamp 9 of message with offset 0 is out of range"),
        KafkaError("a previous request has failed", InvalidTimestampError("Timestamp 9")),
    ],
)
def test_a_changelog_whose_brokers_refuse_the_time_of_records_is_reported_with_the_clock(
    kafka: Kafka, tmp_path: Path, error: KafkaError
) -> None:
    def refuses(*_: object) -> None:
        raise error

    kafka.before_send = refuses
    kafka.feed(0, 3)
    with member(tmp_path) as one:
        give(one, 0)
        with pytest.raises(KafkaError, match=r"g-t-changelog: brokers refuse the time .* the clock of this machine"):
            drain(one)
        kafka.before_send = None
        drain(one)
        assert counted(one) == 3
