"""Members that are stopped or cut off and resume: they take nothing back, and process nothing before they are sure."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rackassign.stateful import StatefulConsumer, StateStore
from tests.helpers.fakes.kafka import Kafka, Member, Membership
from tests.helpers.stateful_consumers import be_away, counted, drain, give, member


def test_a_former_owner_that_resumes_commits_nothing_and_disturbs_nobody(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path / "1") as one, member(tmp_path / "2") as other:
        give(one, 0)
        drain(one)
        give(other, 0)
        drain(other)
        asked: list[int] = []
        other._assignor.request_rejoin = lambda: asked.append(1)  # type: ignore[method-assign]
        kafka.feed(0, 3)
        # It has not noticed.
        drain(one)
        assert kafka.committed == {}
        drain(other)
        assert (counted(other), asked) == (3, [])
        # With its next generation it is a member as any other.
        give(one, 0)
        kafka.feed(0, 1)
        drain(one)
        assert counted(one) == 4


def test_a_group_that_begins_again_at_generation_one_goes_on(kafka: Kafka, tmp_path: Path) -> None:
    for number, generation in enumerate((57, 1, 2), 1):
        kafka.generation = generation - 1
        with member(tmp_path / str(generation)) as one:
            give(one, 0)
            kafka.feed(0, 2)
            drain(one)
            assert counted(one) == 2 * number


def test_a_static_member_that_restarts_within_a_generation_takes_its_partitions(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path / "1") as before, member(tmp_path / "2") as after:
        give(before, 0)
        kafka.feed(0, 1)
        drain(before)
        give(after, 0)
        for one in (before, after):
            group = one.consumer
            assert isinstance(group, Member)
            one._assignor._standby_codec.generation = group.generation_id = kafka.generation = 1
        drain(after)
        kafka.feed(0, 2)
        drain(after)
        assert counted(after) == 3


@pytest.mark.parametrize("where", ["poll", "process"])
def test_after_a_pause_of_more_than_its_session_a_member_processes_nothing_until_it_is_confirmed(
    kafka: Kafka, tmp_path: Path, where: str
) -> None:
    seen: list[int] = []

    def note(record: object, _: StateStore) -> None:
        seen.append(record.offset)  # type: ignore[attr-defined]
        if where == "process":
            be_away(one, 46)
            kafka.generation += 1

    with member(tmp_path, process=note) as one:
        give(one, 0)
        drain(one)
        kafka.feed(0, 3)
        if where == "poll":
            be_away(one, 46)
            # The group went on meanwhile, and nobody has this member's partitions yet.
            kafka.generation += 1
        drain(one)
        first = [] if where == "poll" else [0]
        assert seen == first
        where = "over"
        give(one, 0)
        drain(one)
        # What was processed in a generation that is over was not committed.
        assert seen == [*first, 0, 1, 2]
        be_away(one, 46)
        kafka.feed(0, 1)
        drain(one)
        assert seen == [*first, 0, 1, 2, 3]


def test_a_member_of_a_machine_that_was_suspended_is_confirmed_before_it_goes_on(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processed: list[int] = []
    with member(tmp_path, process=lambda record, _: processed.append(record.offset)) as one:
        give(one, 0)
        drain(one)
        # The time of day and CLOCK_BOOTTIME go on meanwhile, and CLOCK_MONOTONIC does not.
        clock, day = time.clock_gettime, time.time
        monkeypatch.setattr(time, "clock_gettime", lambda number: clock(number) + 3600)
        monkeypatch.setattr(time, "time", lambda: day() + 3600)
        kafka.feed(0, 1)
        kafka.generation += 1
        drain(one)
        assert processed == []
        give(one, 0)
        drain(one)
        assert processed == [0]


def test_an_unconfirmed_member_sends_one_request_in_a_poll_whatever_the_number_of_partitions(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def unknown(_: Membership, timeout_ms: float) -> bool:
        asked.append(timeout_ms)
        return False

    monkeypatch.setattr(Membership, "confirm", unknown)
    one: StatefulConsumer

    def goes_away(*_: object) -> None:
        be_away(one, 46)

    with member(tmp_path, process=goes_away) as one:
        give(one, 0, 1)
        drain(one)
        kafka.feed(0, 2)
        kafka.feed(1, 2)
        # One record is processed, and then the member has been away.
        assert one.poll(0) == 1
        assert len(asked) == 1
        for number in (2, 3):
            assert one.poll(0) == 0
            assert len(asked) == number
