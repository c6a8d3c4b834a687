"""A member with state on a Kafka in memory: whatever fails in between, each record counts once.

What a member with state refuses, and what it says.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore, StoreError
from rackassign.stateful import _stateful_consumer as consumer
from rackassign.stateful._changelog_client import client_settings
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._state_directory import StateDirectory
from rackassign.strategies.standby import StandbyOptions
from tests.helpers.fakes.kafka import Kafka, Member, Producer, Record
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.stateful_consumers import (
    FIRST,
    LOG,
    count,
    counted,
    drain,
    give,
    member,
    pause,
    polled,
    settle,
    together,
)


class Stopped(BaseException):
    """As who cancels something raises it."""


def test_the_error_of_a_changelog_that_takes_less_than_it_did_names_it(kafka: Kafka, tmp_path: Path) -> None:
    def refuses(*_: object) -> None:
        raise MessageSizeTooLargeError

    with member(tmp_path) as one:
        give(one, 0)
        drain(one)
        kafka.feed(0, 1)
        kafka.before_send = refuses
        with pytest.raises(
            MessageSizeTooLargeError, match=r"a record of the transaction of g-.* for one of g-t-changelog"
        ):
            drain(one)
        kafka.before_send = None
        drain(one)


def test_what_happens_once_is_counted_once(kafka: Kafka, tmp_path: Path) -> None:
    left: dict[str, int] = {}

    def fails(kind: str, error: BaseException) -> None:
        if left.get(kind):
            left[kind] -= 1
            raise error

    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        fails("process", ValueError("the owner's"))
        fails("stopped", Stopped())

    def before_send(*_: object) -> None:
        fails("send", KafkaTimeoutError("no broker"))
        fails("too large", MessageSizeTooLargeError("too large"))

    kafka.before_send = before_send
    with member(tmp_path, process=process, on_restore=lambda *_: fails("restore", OSError("pipe"))) as one:
        give(one, 0)
        fed = [0, 0]
        # Each of them with one partition that runs and another that has just come, and with both running.
        for kind in ("process", "stopped", "send", "too large", "restore"):
            for partitions in ((0,), (0, 1)):
                left[kind] = 2
                give(one, *partitions)
                for partition in range(2):
                    kafka.feed(partition, 3)
                    fed[partition] += 3
                drain(one, ValueError, Stopped, MessageSizeTooLargeError, OSError)
        for refused in (
            "committed",
            "transaction offsets",
            "transaction end",
            "transaction answer",
            "answer",
            "offsets",
        ):
            give(one, 0)
            drain(one)
            kafka.refuse[:] = [refused]
            give(one, 0, 1)
            kafka.feed(0, 2)
            fed[0] += 2
            drain(one, Exception)
        assert [counted(one, partition) for partition in range(2)] == fed
        assert kafka.committed == {KafkaPythonPartition("t", partition): fed[partition] for partition in range(2)}
    assert not kafka.open


def test_a_full_disk_is_waited_for(
    kafka: Kafka, tmp_path: Path, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with member(tmp_path) as one:
        give(one, 0, 1)
        kafka.feed(0, 2)
        drain(one)
        files.full = True
        kafka.feed(0, 3)
        drain(one)
        assert one.active_partitions() == {TopicPartition("t", 1)}
        files.full = False
        settle(one)
        assert counted(one) == 5
        assert [each.getMessage() for each in caplog.records if "disk is full" in each.getMessage()] == [
            f"{one._shelf.open(FIRST).file}: database or disk is full: t-0 waits until its local file can be used again"
        ]


def test_records_without_effect_are_not_read_again_whatever_was_committed(kafka: Kafka, tmp_path: Path) -> None:
    seen: list[int] = []
    kafka.feed(0, 5)
    for folder in ("1", "2"):
        with member(tmp_path / folder, process=lambda record, _: seen.append(record.offset)) as one:
            give(one, 0)
            drain(one)
        kafka.committed.clear()
    assert seen == [0, 1, 2, 3, 4]
    assert kafka.coordinator.committed == 1


@pytest.mark.parametrize(("kept", "known"), [(0, 0), (3, 1), (9, 3), (17, 6)])
def test_a_log_that_was_cut_is_made_up_for_from_the_input(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: int, known: int
) -> None:
    with member(tmp_path) as one:
        give(one, 0)
        for _ in range(6):
            kafka.feed(0, 1)
            drain(one)
        # Brokers that had not all of it went on without the others.
        del kafka.topics[LOG].logs[0][kept:]
        drain(one)
        kafka.feed(0, 2)
        drain(one)
        assert counted(one) == 8
        if known < 6:
            assert "t-0: its changelog has lost records: discarding and rebuilding the local state" in caplog.text
            assert f"offset 6 is committed, but its changelog has records up to {known} only" in caplog.text


def test_without_a_changelog_the_input_is_read_from_where_the_reset_says(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.feed(0, 5)
    kafka.committed[KafkaPythonPartition("t", 0)] = 3
    with member(tmp_path) as one:
        give(one, 0)
        drain(one)
        assert counted(one) == 5
    assert "offset 3 is committed, but its changelog has records up to 0 only: they are processed again" in caplog.text
    del kafka.topics[LOG]
    kafka.committed[KafkaPythonPartition("t", 0)] = 3
    with member(tmp_path, auto_offset_reset="latest") as one:
        give(one, 0)
        drain(one)
        assert counted(one) == 2
    assert "its state is empty" in caplog.text


@pytest.mark.parametrize("records", [3, 9])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_input_that_was_made_anew_is_read_from_its_first_record(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, records: int, reset: str
) -> None:
    """Whether it is shorter than what was read of the former one, or longer."""
    kafka.feed(0, 5)
    with member(tmp_path) as one:
        give(one, 0)
        drain(one)
    kafka.make("t")
    kafka.feed(0, records)
    for _ in range(2):
        with member(tmp_path, auto_offset_reset=reset) as one:
            give(one, 0)
            drain(one)
            assert counted(one) == 5 + records
    said = [record for record in caplog.records if "was deleted and made again" in record.message]
    assert len(said) == 1


def test_a_file_of_another_changelog_is_not_used(kafka: Kafka, tmp_path: Path) -> None:
    def words(record: Record, store: StateStore) -> None:
        assert record.value
        store.put(record.value, b"1")

    def begun(folder: str, *values: bytes) -> StatefulConsumer:
        for value in values:
            kafka.append("t", 0, None, value)
        one = member(tmp_path / folder, process=words)
        give(one, 0)
        drain(one)
        return one

    begun("1", b"old", b"older", b"oldest").close()
    kafka.make("t")
    del kafka.topics[LOG]
    kafka.committed.clear()
    # By now longer than what the file knows.
    begun("2", *[b"new%d" % number for number in range(9)]).close()
    again = begun("1")
    assert sorted(dict(again.store(FIRST).items())) == [b"new%d" % number for number in range(9)]
    again.close()


def test_rebalances_between_two_lose_and_double_nothing(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path / "1") as one, member(tmp_path / "2") as other:
        fed = 0
        for _ in range(6):
            for owner, rest in ((one, other), (other, one)):
                give(rest, 1)
                give(owner, 0)
                kafka.feed(0, 2)
                fed += 2
                drain(owner)
                assert counted(owner) == fed


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_membership_that_is_lost_and_regained_within_a_poll_skips_nothing(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    with member(tmp_path, auto_offset_reset=reset) as one:
        give(one, 0)
        kafka.feed(0, 3)
        drain(one)
        kafka.committed.clear()
        kafka.feed(0, 5)
        # The host goes on at what is committed, or where the reset says.
        group = one.consumer
        assert isinstance(group, Member)
        group.at[KafkaPythonPartition("t", 0)] = kafka.end(KafkaPythonPartition("t", 0)) if reset == "latest" else 0
        kafka.generation += 1
        together(one)
        drain(one)
        kafka.feed(0, 1)
        drain(one)
        assert counted(one) == 9
    assert "was recreated" not in caplog.text
    assert "restarts" not in caplog.text


def test_what_is_interrupted_anywhere_counts_once(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal's handler may raise between any two steps, and the caller may poll on."""
    left: list[str] = []
    group: dict[str, object] = {}

    def interrupts(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def called(*args: Any, **named: Any) -> Any:
            found = real(*args, **named)
            if name in left and (name != "poll" or args[0] is group["is"]):
                left.remove(name)
                raise Stopped
            return found

        monkeypatch.setattr(owner, name, called)

    for owner, name in (
        (StateFile, "_keep"),
        (StateFile, "commit_record"),
        (StateFile, "apply"),
        (Member, "poll"),
        (Producer, "commit_transaction"),
    ):
        interrupts(owner, name)
    with member(tmp_path / "1") as one, member(tmp_path / "2") as copy:
        group["is"] = one.consumer
        give(one, 0)
        copy._assignor._copies.kept = frozenset({FIRST})
        give(copy)
        together(one)
        for number, name in enumerate(["_keep", "commit_record", "apply", "poll", "commit_transaction"] * 2, 1):
            drain(one)
            drain(copy, Stopped)
            left[:] = [name]
            kafka.feed(0, 3)
            assert len(drain(one, Stopped)) == 1
            assert counted(one) == 3 * number
            left[:] = ["_keep"]
            kafka.feed(0, 0)
            drain(copy, Stopped)
            left.clear()
        copy._assignor._copies.kept = frozenset()
        give(copy, 0)
        drain(copy)
        assert counted(copy) == 30
    with member(tmp_path / "3") as fresh:
        give(fresh, 0)
        drain(fresh)
        assert counted(fresh) == 30


def test_deletions_that_compaction_forgets_take_nothing_with_them(kafka: Kafka, tmp_path: Path) -> None:
    def pairs(record: Record, store: StateStore) -> None:
        count(record, store)
        if store.get(b"left") is None:
            store.put(b"left", b"1")
        else:
            store.delete(b"left")

    with member(tmp_path / "1", process=pairs) as one:
        give(one, 0)
        kafka.feed(0, 6)
        drain(one)
    log = kafka.topics[LOG].logs[0]
    last = {record.key: record.offset for record in log}
    log[:] = [record for record in log if last[record.key] == record.offset and record.value is not None]
    kafka.committed.clear()
    with member(tmp_path / "2", process=pairs) as heir:
        give(heir, 0)
        drain(heir)
        assert dict(heir.store(FIRST).items()) == {b"n": b"6"}


def test_what_the_store_shows_while_records_are_processed_does_not_depend_on_batches(
    kafka: Kafka, tmp_path: Path
) -> None:
    seen: dict[int, list[int]] = {}
    for at_once in (1, 3, 500):
        kafka.make("t")
        kafka.topics.pop(LOG, None)
        kafka.committed.clear()
        sizes = seen.setdefault(at_once, [])

        def process(record: Record, store: StateStore, sizes: list[int] = sizes) -> None:
            store.put(b"%d" % record.offset, b"")
            sizes.append(sum(1 for _ in store.items()))

        kafka.feed(0, 10)
        with member(tmp_path / str(at_once), process=process, max_poll_records=at_once) as one:
            give(one, 0)
            drain(one)
    assert list(seen.values()) == [list(range(1, 11))] * 3


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_an_input_that_is_cut_beyond_the_state_is_told_of(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    kafka.feed(0, 3)
    with member(tmp_path) as one:
        give(one, 0)
        drain(one)
    kafka.feed(0, 17)
    del kafka.topics["t"].logs[0][:10]
    with member(tmp_path, auto_offset_reset=reset) as one:
        give(one, 0)
        drain(one)
        assert counted(one) == 13
    assert "t-0: records 3 to 9 no longer exist" in caplog.text


def test_a_copy_is_told_of_and_one_that_nobody_wants_is_thrown_away(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with member(tmp_path / "1") as one, member(tmp_path / "2") as copy:
        give(one, 0)
        copy._assignor._copies.kept = frozenset({FIRST})
        give(copy)
        kafka.feed(0, 3)
        drain(one)
        drain(copy)
        end = kafka.end(KafkaPythonPartition(LOG, 0))
        # Of what a member runs nothing is told: that it runs it says more.
        assert (one._known.positions, copy._known.positions) == ({}, {FIRST: end})
        assert copy._known.ends[FIRST] == end
        copy._assignor._copies.kept = frozenset()
        drain(copy)
        assert copy._known.positions == {FIRST: end}
        monkeypatch.setattr(consumer, "_KEEP_S", 0.0)
        drain(copy)
        assert copy._known.positions == {}
        assert not list((tmp_path / "2").glob("*.sqlite"))


def test_copies_that_are_too_old_begin_anew(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path) as one:
        give(one, 0)
        kafka.feed(0, 3)
        drain(one)
        # A deletion that compaction has forgotten since.
        log = kafka.topics[LOG].logs[0]
        log[:] = [record for record in log if record.key != b"\1n"]
        pause(one)
        drain(one)
        assert counted(one) == 0


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
        "message.timestamp.type": "LogAppendTime",
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


def test_files_that_cannot_be_opened_wait_and_are_kept(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with member(tmp_path) as one:
        give(one, 0)
        kafka.feed(0, 3)
        drain(one)

    def none_left(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", none_left)
        member(tmp_path).close()
    assert "unable to open database file; each partition needs three open files" in caplog.text
    again = StateDirectory(tmp_path)
    again.open_existing({"t": kafka.topics[LOG].id})
    assert again.positions()[FIRST] > 0
    again.close()
