"""What users see of members with state: whatever fails in between, each record counts once, and what is refused."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rackassign.errors import ConfigError
from rackassign.stateful import StatefulConsumer, StateStore, StoreError
from rackassign.strategies.standby import StandbyOptions
from tests.helpers.faulty_files import FULL, FaultyFiles, overwrite
from tests.helpers.stateful_world import FIRST, LOG, Stage, StoppedError, count
from tests.helpers.tasks import Record

WARM = {"standbys": StandbyOptions(num_standby_replicas=1)}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_record_whose_processing_fails_is_repeated_and_others_go_on(
    stage: Stage, caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    errors: list[BaseException] = []
    restored: list[int] = []

    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        if record.partition == 0 and record.offset == 2 and errors:
            raise errors[-1]

    def told(*_: object) -> None:
        restored.append(1)
        if len(restored) == 1:
            raise OSError("pipe")

    one = stage.start(process=process, on_restore=told, auto_offset_reset=reset, max_poll_records=2)
    errors[:] = [StoppedError(), ValueError("the owner's")]
    for _ in range(2):
        stage.feed(6)
        stage.feed(6, 1)
        stage.run()
    assert (one.counted(), one.counted(1)) == (2, 12)
    assert stage.committed() == {("t", 0): 2, ("t", 1): 12}
    assert caplog.text.count('process raised at t-0, offset 2: ValueError("the owner\'s"); it is tried again') == 1
    errors.pop()
    stage.run()
    errors.clear()
    stage.run()
    assert {type(each) for each in one.raised} == {OSError, ValueError, StoppedError}
    assert (one.counted(), one.counted(1)) == (12, 12)
    assert stage.committed() == {("t", 0): 12, ("t", 1): 12}


def test_each_of_several_records_that_fail_is_raised_in_turn(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    def process(record: Record, store: StateStore) -> None:
        count(record, store)
        if record.offset == 1:
            raise ZeroDivisionError(f"partition {record.partition}")

    one = stage.start(process=process)
    for partition in range(2):
        stage.feed(3, partition)
    stage.run(3.0)
    raised = [str(each) for each in one.raised]
    assert abs(raised.count("partition 0") - raised.count("partition 1")) <= 1
    assert len(raised) > 2
    assert "process raised here as well" in caplog.text
    assert (one.counted(), one.counted(1)) == (1, 1)


def test_calls_within_a_poll_are_refused_and_leave_nothing_behind(stage: Stage) -> None:
    """Such a commit, if it failed, would discard the state below the records that follow."""
    calls = {3: "close", 5: "commit", 8: "poll"}

    def process(record: Record, store: StateStore, output: Any) -> None:
        count(record, store)
        output.send(store.get(b"n"))
        if record.offset in calls:
            getattr(one.stateful, calls.pop(record.offset))()

    stage.remake("out")
    one = stage.start(process=process, output="out", commit_interval_ms=60_000)
    stage.feed(10)
    stage.run(3.0)
    for call, error in zip(("close", "commit", "poll"), one.raised, strict=True):
        assert str(error).startswith(f"{call}() was called while poll() is running: by process,")
    stage.stop(one)
    assert sorted(stage.values("out")) == sorted(b"%d" % (number + 1) for number in range(10))
    assert stage.start("2", process=process, output="out").counted() == 10


def test_records_without_effect_are_not_read_again_whatever_was_committed(stage: Stage) -> None:
    seen: list[int] = []
    stage.feed(5)
    for place in ("1", "2"):
        stage.stop_after(stage.start(place, process=lambda record, _: seen.append(record.offset)))
        stage.cluster.groups.clear()
    assert seen == [0, 1, 2, 3, 4]


def test_a_static_member_that_restarts_restores_nothing_and_has_its_transactional_id(stage: Stage) -> None:
    restores: list[tuple[int, int]] = []
    for number in (1, 2):
        one = stage.start(on_restore=lambda _, *read: restores.append(read), group_instance_id="static")
        stage.feed(3)
        stage.run()
        assert one.counted() == 3 * number
        one.kill()
    assert set(restores) == {(0, 0)}
    (name,) = stage.cluster.transactions
    assert re.fullmatch("group-[0-9a-f]{32}", name)


def test_a_group_that_begins_again_goes_on(stage: Stage) -> None:
    one = stage.start()
    stage.feed(2)
    stage.run()
    stage.cluster.groups.clear()
    stage.feed(2)
    stage.run(6.0)
    assert (one.counted(), stage.committed()["t", 0]) == (4, 4)


def test_what_was_processed_of_a_revoked_partition_is_committed_before_it_is_released(stage: Stage) -> None:
    seen: list[tuple[int, int]] = []

    def process(record: Record, store: StateStore) -> None:
        seen.append((record.partition, record.offset))
        count(record, store)

    one = stage.start("1", process=process, commit_interval_ms=60_000)
    for number in (1, 6):
        # The first commit is due at once.
        for partition in range(2):
            stage.feed(number, partition)
        stage.run()
    assert stage.committed() == {("t", 0): 1, ("t", 1): 1}
    other = stage.start("2", process=process, commit_interval_ms=60_000)
    (mine,) = other.stateful.active_partitions()
    assert (other.counted(mine.partition), len(one.stateful.active_partitions())) == (7, 1)
    # What is left is committed at the end.
    stage.stop(one)
    stage.stop(other)
    assert stage.committed() == {("t", 0): 7, ("t", 1): 7}
    assert len(seen) == 14


def test_a_member_that_resumes_after_its_session_processes_nothing_before_it_is_confirmed(stage: Stage) -> None:
    seen: list[int] = []

    def process(record: Record, store: StateStore) -> None:
        seen.append(record.offset)
        count(record, store)

    # It has received them all, and takes one with each poll.
    one = stage.start(process=process, max_poll_records=1)
    stage.feed(40)
    stage.run(0.5)
    taken = len(seen)
    one.pause(20.0)
    stage.run(30.0)
    assert 0 < taken < 40
    assert (one.counted(), stage.committed()["t", 0]) == (40, 40)
    # It would be processed again. A poll returns what it has processed, which is nothing meanwhile.
    assert seen == list(range(40))
    assert one.done == 40


# What happens to topics.


@pytest.mark.parametrize("kept", [0, 4])
def test_a_changelog_that_lost_records_is_made_up_for_from_the_input(
    stage: Stage, caplog: pytest.LogCaptureFixture, kept: int
) -> None:
    # Its member begins behind a state, which is gone later.
    stage.feed()
    stage.stop_after(stage.start("1"))
    one, copy = stage.start("1", **WARM), stage.start("2", **WARM)
    for _ in range(3):
        stage.feed()
        stage.run(0.3)
    owner, other = (one, copy) if FIRST in one.stateful.active_partitions() else (copy, one)
    stage.cut(LOG, kept)
    stage.run(1.0)
    stage.feed(2)
    stage.run(8.0)
    assert [member.counted() for member in (owner, other)] == [6, 6]
    assert "t-0: its changelog" in caplog.text


def test_a_file_whose_last_record_is_in_its_changelog_is_used_and_no_other_one(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [b"one"]

    def by_offset(record: Record, store: StateStore) -> None:
        store.put(b"%d" % record.offset, keys[-1])

    def played(place: str, records: int) -> dict[bytes, bytes]:
        one = stage.start(place, process=by_offset)
        for _ in range(records):
            stage.feed()
            stage.run(0.3)
        found = one.items()
        stage.stop(one)
        return found

    assert played("1", 4) == played("1", 0) == {b"%d" % number: b"one" for number in range(4)}
    assert "discarding" not in caplog.text
    # While it is down an unclean election cuts the log, which soon is longer again than the file knows it.
    stage.cut(LOG, 4)
    keys.append(b"two")
    expected = played("2", 6)
    assert played("1", 0) == expected
    assert sorted(expected.values()) == [b"one"] * 2 + [b"two"] * 8
    assert "t-0: its changelog does not have the last record that its local file was read up to" in caplog.text


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_without_a_changelog_the_input_is_read_from_where_the_reset_says(
    stage: Stage, caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    stage.feed(5)
    stage.stop_after(stage.start())
    stage.remake(LOG)
    # Its file is of a changelog that is gone.
    again = stage.start(auto_offset_reset=reset)
    stage.run()
    assert again.counted() == (5 if reset == "earliest" else 0)
    done = "they are processed again" if reset == "earliest" else "its state is empty"
    assert f"t-0: offset 5 is committed, but its changelog has records up to 0 only: {done}" in caplog.text
    stage.feed(1)
    stage.run()
    assert again.counted() == (6 if reset == "earliest" else 1)


@pytest.mark.parametrize(("records", "reset"), [(3, "earliest"), (9, "latest")])
def test_an_input_that_was_made_anew_is_read_from_its_first_record(
    stage: Stage, caplog: pytest.LogCaptureFixture, records: int, reset: str
) -> None:
    """Whether it is shorter than what was read of the former one, or longer."""
    stage.feed(5)
    stage.stop_after(stage.start())
    stage.remake("t")
    stage.feed(records)
    for _ in range(2):
        one = stage.start(auto_offset_reset=reset)
        stage.run()
        assert one.counted() == 5 + records
        stage.stop(one)
    assert caplog.text.count("t-0: the topic was deleted and made again") == 1


def test_an_input_that_is_cut_beyond_the_state_is_told_of(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.feed(3)
    stage.stop_after(stage.start())
    stage.feed(17)
    again = stage.launch("1")
    again.todo.append(lambda one: setattr(one.consumer, "beginning_offsets", lambda tps, **_: dict.fromkeys(tps, 10)))
    stage.run(3.0)
    assert again.counted() == 13
    assert "t-0: records 3 to 9 no longer exist" in caplog.text


def test_a_member_that_was_cut_off_while_the_group_was_reset_begins_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    away = stage.start("1")
    stage.feed(3)
    stage.run()
    away.pause(30.0)
    stage.run(8.0)
    stage.remake(LOG)
    stage.remake("t")
    stage.cluster.groups.clear()
    other = stage.start("2")
    stage.feed(6)
    stage.run()
    stage.stop(other)
    stage.run(25.0)
    assert away.counted() == 6
    stage.feed(1)
    stage.run()
    assert (away.counted(), away.raised) == (7, [])
    assert caplog.text.count("the changelog of t is another topic than before: discarding the local state") == 1
    assert len(list(away.folder.glob("*.sqlite"))) == 2


def test_files_that_nobody_wants_are_deleted_and_a_state_that_is_too_old_begins_anew(stage: Stage) -> None:
    restores: list[tuple[int, int]] = []
    one = stage.start("1", on_restore=lambda _, *read: restores.append(read))
    stage.feed(3)
    stage.feed(3, 1)
    stage.run()
    other = stage.start("2")
    for hours, files in ((0.0, 2), (0.2, 1)):
        # As if all machines had been suspended.
        stage.world.now += hours * 3600
        stage.run(3.0)
        assert len(list(one.folder.glob("*.sqlite"))) == files
    restores.clear()
    # Compaction may have removed deletions since.
    stage.world.now += 13 * 3600.0
    stage.run(11.0)
    assert max(restores) == (3, 3)
    owners = [(each, tp.partition) for each in (one, other) for tp in each.stateful.active_partitions()]
    assert [each.counted(partition) for each, partition in owners] == [3, 3]


# What fails on this machine.


def test_a_file_that_fails_stops_its_partition_alone(
    stage: Stage, files: FaultyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    def looks(record: Record, store: StateStore) -> None:
        count(record, store)
        list(store.items())

    one = stage.start(process=looks)
    broken: list[tuple[str, Exception]] = []

    def fails(file: str, text: str) -> Exception | None:
        if broken and file.startswith("t-0") and text.startswith(broken[-1][0]):
            return broken.pop()[1]
        return None

    files.before = fails
    full = sqlite3.OperationalError(FULL)
    malformed = sqlite3.DatabaseError("database disk image is malformed")
    for number, (statement, error) in enumerate(
        [
            ("BEGIN", full),
            ("SELECT value", malformed),
            ("SELECT value", full),
            ("SELECT key", sqlite3.OperationalError("disk I/O error")),
            ("INSERT", malformed),
            ("DELETE", full),
            ("COMMIT", full),
            ("COMMIT", sqlite3.OperationalError("unable to open database file")),
        ],
        1,
    ):
        # A while after it was damaged before: one that is damaged again waits.
        stage.run(1.0)
        broken[:] = [(statement, error)] * 2
        stage.feed(2)
        stage.feed(2, 1)
        stage.run(2.0)
        assert (broken, one.counted(), one.counted(1)) == ([], 2 * number, 2 * number)
    assert 2 <= caplog.text.count("it is deleted, and the state of t-0 is restored from its changelog") <= 6
    assert caplog.text.count("t-0 waits until its local file can be used again") == 1
    # Also the folder of the test may be called so: pytest-10.
    assert re.search(r"\bt-1\b", caplog.text) is None


@pytest.mark.long
def test_a_damaged_file_of_an_owner_and_of_a_copy_costs_a_restore(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def keep(record: Record, store: StateStore) -> None:
        count(record, store)
        for number in range(150):
            key = b"%064d" % (number * 7919 % 150)
            store.put(key, (store.get(key) or b"") + b"%1000d" % record.offset)

    one, copy = (stage.start(place, process=keep, **WARM) for place in ("1", "2"))
    stage.feed(2)
    stage.run(3.0)
    for member in (one, copy):
        overwrite(next(member.folder.glob("t-0@*.sqlite")))
    stage.feed(2)
    stage.run(4.0)
    assert one.items() == copy.items()
    assert one.counted() == 4
    assert caplog.text.count("it is deleted, and the state of t-0 is restored from its changelog") == 2


# What is refused.


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
        ({"sesion_timeout_ms": 1}, '"sesion_timeout_ms" is no setting of KafkaConsumer; did you mean session'),
        ({"linger_ms": 1}, '"linger_ms" is no setting of KafkaConsumer$'),
        ({"output": "out", "transactional_id": ""}, 'transactional_id must be a name, got ""'),
        ({"output": []}, "output must be the name of a topic, or a list of names, got"),
        ({"output": ["out", "out"]}, "each topic of output can be given once"),
        ({"transaction_timeout_ms": 999}, "transaction_timeout_ms must be an integer from 1000, got 999"),
        ({"output": "out"}, r"with output=\.\., process is called with 3 arguments \(record, state, output\)"),
        ({"process": lambda *, _: 1}, r"without output=\.\., process is called with 2 arguments \(record, state\)"),
        *(
            ({"commit_interval_ms": given}, "commit_interval_ms must be an integer from 0 to 60000")
            for given in (-1, 60_001, 1.5, "100", True, None)
        ),
        ({"topics": "orders"}, "topics must be a list of names"),
        ({"topics": 5}, "topics must be a list of names"),
        ({"topics": ["orders", 5]}, "topics must be names"),
        ({"topics": [["orders"]]}, "topics must be names, one after the other, got an array of 1"),
        ({"topics": ["t"]}, "each topic can be given once"),
        ({"auto_offset_reset": "none"}, 'auto_offset_reset must be earliest or latest, got "none"'),
    ],
)
def test_typos_are_told(tmp_path: Path, more: dict[str, Any], problem: str) -> None:
    told = {"process": count, "state_dir": tmp_path / "state", "group_id": "g", "bootstrap_servers": "x", **more}
    with pytest.raises(ConfigError, match=problem):
        StatefulConsumer("t", **told)


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


def test_a_state_that_is_not_here_is_not_made(stage: Stage) -> None:
    one = stage.start().stateful
    for place in (("t", 2), ("typo", 0)):
        for ask in (one.store, one.state):
            with pytest.raises(StoreError, match="has no local state"):
                ask(place)
