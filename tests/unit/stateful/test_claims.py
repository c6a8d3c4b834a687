"""A former owner that resumes, at whatever time, neither becomes the owner again nor fences the living one off."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kafka import TopicPartition as HostPartition

from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.stateful.changelog.replay import HEADER, ChangelogRecord, Claim, in_order, read_change
from tests.helpers.fakes.kafka import Kafka, Member, Membership
from tests.helpers.stateful_consumers import LOG, be_away, counted, drain, give, member


def fences(kafka: Kafka) -> list[ChangelogRecord]:
    records = [read_change(each.key, each.value, dict(each.headers)[HEADER]) for each in kafka.topics[LOG].logs[0]]
    return [record for record in records if record.kind == "fence"]


def asked_to_rejoin(one: StatefulConsumer) -> list[int]:
    asked: list[int] = []
    one._assignor.request_rejoin = lambda: asked.append(1)  # type: ignore[method-assign]
    return asked


def test_a_former_owner_that_resumes_after_a_rebalance_it_took_part_in_takes_nothing_back(
    kafka: Kafka, tmp_path: Path
) -> None:
    with member(tmp_path / "1") as one, member(tmp_path / "2") as other:
        give(one, 0)
        drain(one)
        # A rebalance in which it keeps the partition; then it is stopped, and the group goes on without it.
        give(one, 0)
        drain(one)
        give(other, 0)
        drain(other)
        asked = asked_to_rejoin(one)
        kafka.feed(0, 3)
        drain(one)
        assert (one.active_partitions(), asked) == (frozenset(), [1])
        epoch = fences(kafka)[-1].epoch
        disturbed = asked_to_rejoin(other)
        drain(other)
        assert counted(other) == 3
        assert ([fence.epoch for fence in fences(kafka)][-1], disturbed) == (epoch, [])
        # With its next generation it is a member as any other.
        give(one, 0)
        kafka.feed(0, 1)
        drain(one)
        assert counted(one) == 4


def test_one_that_is_stopped_before_its_fence_does_not_fence_the_living_owner_off(kafka: Kafka, tmp_path: Path) -> None:
    with member(tmp_path / "1") as one, member(tmp_path / "2") as other:
        give(one, 0)
        assert one.active_partitions() == frozenset()
        give(other, 0)
        kafka.feed(0, 3)
        drain(other)
        disturbed = asked_to_rejoin(other)
        drain(one)
        kafka.feed(0, 2)
        drain(other)
        assert (counted(other), disturbed, one.active_partitions()) == (5, [], frozenset())


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
        assert seen == [0, 1, 2]
        be_away(one, 46)
        kafka.feed(0, 1)
        drain(one)
        assert seen == [0, 1, 2, 3]


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


def test_a_group_that_begins_again_at_generation_one_goes_on(kafka: Kafka, tmp_path: Path) -> None:
    for generation in (57, 1, 2):
        kafka.generation = generation - 1
        with member(tmp_path / str(generation)) as one:
            give(one, 0)
            kafka.feed(0, 2)
            drain(one)
    assert [fence.claim and fence.claim[:2] for fence in fences(kafka)] == [(0, 57), (1, 1), (1, 2)]
    assert counted_in(kafka, tmp_path / "last") == 6


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


def counted_in(kafka: Kafka, folder: Path) -> int:
    kafka.feed(0, 0)
    with member(folder) as one:
        give(one, 0)
        drain(one)
        return counted(one)


def test_changelogs_without_claims_are_taken_over(kafka: Kafka, tmp_path: Path) -> None:
    old = ChangelogRecord("fence", 4)
    kafka.make(LOG)
    kafka.append(LOG, 0, old.log_key(), old.log_value(), [(HEADER, old.header())])
    with member(tmp_path) as one:
        give(one, 0)
        kafka.feed(0, 1)
        drain(one)
        assert counted(one) == 1
    assert [(fence.epoch, fence.claim is None) for fence in fences(kafka)] == [(4, True), (5, False)]
    assert kafka.end(HostPartition(LOG, 0)) > 1


def test_a_fence_keeps_its_claim() -> None:
    fence = ChangelogRecord("fence", 7, claim=Claim(1, 2, 3))
    assert read_change(fence.log_key(), fence.log_value(), fence.header()) == fence


@pytest.mark.parametrize(
    ("claim", "last", "expected"),
    [
        (Claim(0, 5, 1), None, True),
        (None, Claim(0, 5, 1), True),
        (Claim(0, 6, 1), Claim(0, 5, 9), True),
        (Claim(0, 4, 1), Claim(0, 5, 1), False),
        (Claim(0, 5, 1), Claim(0, 5, 1), True),
        (Claim(0, 5, 9), Claim(0, 5, 1), False),
        (Claim(1, 1, 1), Claim(0, 57, 1), True),
        (Claim(0, 58, 1), Claim(1, 1, 1), False),
    ],
)
def test_claims_are_ordered_by_term_and_generation(claim: Claim | None, last: Claim | None, *, expected: bool) -> None:
    assert in_order(claim, last) is expected
