"""What a member with state refuses, and what it says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StoreError
from rackassign.stateful.client_settings import client_settings
from rackassign.stateful.files.directory import StateDirectory
from rackassign.strategies.standby import StandbyOptions
from tests.helpers.fakes.kafka import Kafka
from tests.helpers.stateful_consumers import FIRST, LOG, count, drain, give, member, polled


@pytest.mark.parametrize(
    ("prepared", "problem"),
    [
        (lambda kafka: kafka.topics.pop("t"), "topic t does not exist"),
        (lambda kafka: kafka.make(LOG, 3), "g-t-changelog has 3 partitions and t has 2"),
        (
            lambda kafka: kafka.make(LOG, configs={"cleanup.policy": "delete"}),
            "must have cleanup.policy=compact, but has delete",
        ),
        (
            lambda kafka: kafka.make(LOG, configs={"cleanup.policy": "compact,delete"}),
            "must have cleanup.policy=compact, but has compact,delete",
        ),
        (
            lambda kafka: kafka.make(LOG, configs={"delete.retention.ms": "0", "min.compaction.lag.ms": "1000"}),
            "has delete.retention.ms=0 and min.compaction.lag.ms=1000: one must be at least 60000",
        ),
    ],
)
def test_changelogs_that_do_not_fit_are_refused(
    kafka: Kafka, tmp_path: Path, prepared: Callable[[Kafka], object], problem: str
) -> None:
    prepared(kafka)
    with pytest.raises(ConfigError, match=problem):
        member(tmp_path)
    assert not kafka.open


def test_a_changelog_that_forgets_deletions_soon_is_told_of(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.make(LOG, configs={"delete.retention.ms": "60000", "min.compaction.lag.ms": "60000"})
    with member(tmp_path) as one:
        # Local files are discarded after half of that.
        assert one._shelf.deletes_ms == 60_000
    assert "g-t-changelog has delete.retention.ms=60000: with less than 86400000, copies may differ" in caplog.text


def test_deletions_are_kept_until_they_may_be_compacted(kafka: Kafka, tmp_path: Path) -> None:
    """Otherwise each poll would discard the state, and no record would be processed."""
    kafka.make(LOG, configs={"delete.retention.ms": "0"})
    with member(tmp_path) as one:
        assert one._shelf.deletes_ms == 3_600_000


def test_a_changelog_that_may_be_led_without_its_last_records_is_told_of(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.make(LOG, configs={"unclean.leader.election.enable": "true"})
    member(tmp_path).close()
    assert "g-t-changelog has unclean.leader.election.enable=true: a leader without its last records" in caplog.text


def test_a_changelog_is_made_with_what_local_files_need(kafka: Kafka, tmp_path: Path) -> None:
    member(tmp_path).close()
    assert kafka.topics[LOG].configs == {
        "cleanup.policy": "compact",
        "delete.retention.ms": "86400000",
        "min.compaction.lag.ms": "3600000",
        "unclean.leader.election.enable": "false",
        "max.message.bytes": "1048588",  # Of the broker.
    }


def test_a_cluster_that_does_not_answer_is_told_in_a_line(kafka: Kafka, tmp_path: Path) -> None:
    kafka.refuse = ["describe_topics"]
    with pytest.raises(KafkaUnavailableError, match=r"changelogs cannot be prepared on Kafka at x: .*refused"):
        member(tmp_path)
    assert not kafka.open


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"client_tags": ["zone"]}, "client_tags must be keys with values, got an array of 1"),
        ({"standbys": 2}, "standbys must be StandbyOptions, got 2"),
        ({"process": None}, "process must be a function of a record and a state, got null"),
        ({"state_dir": 5}, "state_dir must be a path, got 5"),
        ({"state_dir": ""}, "state_dir is empty, which would be the directory in which the program was started"),
        ({"on_restore": 5}, "on_restore must be a function, got 5"),
        ({"changelog": lambda _: 5}, "the changelog of t cannot be called 5"),
        ({"changelog": lambda _: b"log"}, "the changelog of t cannot be called"),
        ({"changelog": lambda _: ["log"]}, "the changelog of t cannot be called an array of 1"),
        ({"group_id": ""}, "topics and group_id are needed"),
        ({"group_id": "my group"}, 'the changelog of t cannot be called "my group-t-changelog": see changelog='),
        ({"changelog": lambda _: None}, "the changelog of t cannot be called null"),
        ({"changelog": lambda _: "x" * 300}, "the name has 300 characters, of which Kafka allows 249; see changelog="),
        ({"group_id": "g" * 240}, "the name has 252 characters, of which Kafka allows 249; see changelog="),
        ({"value_deserializer": bytes.decode}, "value_deserializer is not supported by this consumer"),
        ({"auto_commit_interval_ms": 5000}, "has no effect in this consumer: use commit_interval_ms"),
        ({"default_offset_commit_callback": print}, "default_offset_commit_callback has no effect in this consumer"),
        ({"consumer_timeout_ms": 100}, "consumer_timeout_ms has no effect in this consumer"),
        ({"copartitioned": "no"}, 'copartitioned must be True or False, got "no"'),
        ({"copartitioned": 1}, "copartitioned must be True or False, got 1"),
        ({"auto_offset_reset": "none"}, 'auto_offset_reset must be earliest or latest, got "none"'),
    ],
)
def test_typos_are_told(kafka: Kafka, tmp_path: Path, more: dict[str, Any], problem: str) -> None:
    told = {"process": count, "state_dir": tmp_path, "group_id": "g", "bootstrap_servers": "x", **more}
    with pytest.raises(ConfigError, match=problem):
        StatefulConsumer("t", **told)
    assert not kafka.open


def test_a_long_time_for_requests_is_a_setting_of_producers_too() -> None:
    for request_ms in (1000, 119_999, 150_000):
        made = client_settings({"bootstrap_servers": "x", "request_timeout_ms": request_ms}).producer
        assert made["delivery_timeout_ms"] >= max(120_000, request_ms + 1000)
    assert "delivery_timeout_ms" not in client_settings({"bootstrap_servers": "x"}).producer


def test_topics_are_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="topics must be names, one after the other, got an array of 1"):
        StatefulConsumer(["t"], process=count, state_dir=tmp_path, group_id="g")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"rack_aware_assignment_tags": ("zone", 1)},
        {"rack_aware_assignment_tags": 5},
        {"rack_aware_assignment_tags": "zone"},
        {"rack_aware_assignment_tags": [["zone"]]},
        {"forced_tag_values": ["zone"]},
        {"rack_aware_assignment_tags": ("zone",), "forced_tag_values": {"zone": [1]}},
        {"rack_aware_assignment_tags": ("zone",), "forced_tag_values": {"zone": "a"}},
    ],
)
def test_tags_are_lists_of_names(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        StandbyOptions(1, **given)


def test_what_is_no_bytes_is_no_value(kafka: Kafka, tmp_path: Path) -> None:
    kafka.feed(0, 1)
    with member(tmp_path, process=lambda _, store: store.put(b"k", 5)) as one:
        give(one, 0)
        with pytest.raises(TypeError, match="keys and values of a state are bytes, got int"):
            polled(one)


@pytest.mark.usefixtures("kafka")
def test_a_state_that_is_not_here_is_not_made(tmp_path: Path) -> None:
    with member(tmp_path) as one:
        give(one, 0)
        drain(one)
        for place in (TopicPartition("t", 1), TopicPartition("u", 0)):
            with pytest.raises(StoreError, match="has no local state"):
                one.store(place)
        assert one._known.positions == {}
    with pytest.raises(StoreError, match="t-0 has no local state"):
        one.store(FIRST)


def test_files_that_cannot_be_opened_are_left_alone(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path) as one:
        give(one, 0)
        kafka.feed(0, 3)
        drain(one)

    def none_left(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", none_left)
        with pytest.raises(StoreError, match="unable to open database file; each partition needs three open files"):
            member(tmp_path)
    again = StateDirectory(tmp_path)
    again.open_existing({"t": kafka.topics[LOG].id})
    assert again.positions()[FIRST] > 0
    again.close()
