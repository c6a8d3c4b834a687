"""What a changelog means, whoever dies or goes on writing: against a recomputation from the input.

A former owner that resumes, at whatever time, neither becomes the owner again nor fences the living one off.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition as KafkaPythonPartition

from rackassign.errors import WireError
from rackassign.stateful import StatefulConsumer, StateStore
from rackassign.stateful._changelog import HEADER, ChangelogRecord, ChangelogReplay, Claim, in_order, read_change
from tests.helpers.changelog_input import KEYS, apply, effect, recomputed
from tests.helpers.examples import examples
from tests.helpers.fakes.kafka import Kafka, Member, Membership
from tests.helpers.stateful_consumers import LOG, be_away, counted, drain, give, member

A, B, C = KEYS


class Copy:
    """A local file: a state, and how far it is."""

    def __init__(self) -> None:
        self.state: dict[bytes, bytes] = {}
        self.replay = ChangelogReplay()
        self.at = 0

    def read(self, log: list[tuple[int, ChangelogRecord]], end: int) -> None:
        for offset, change in log:
            if self.at <= offset < end:
                apply(self.state, self.replay.take(change))
                self.at = offset + 1


class Owner:
    """Runs the partition, or thinks it does."""

    def __init__(self, log: Log, copy: Copy) -> None:
        self.log, self.copy = log, copy
        copy.read(log.records, log.end)
        self.epoch = copy.replay.epoch + 1
        self.left: list[ChangelogRecord] = [ChangelogRecord("fence", self.epoch)]
        self.begun = False

    def step(self) -> None:
        """Write one record, or see to it that there is one to write."""
        if self.left:
            self.log.append(self.left.pop(0))
            if not self.left:
                self.copy.read(self.log.records, self.log.end)
                if not self.begun:
                    self.begun = True
                    self.left = self.heals()
            return
        if self.copy.replay.epoch > self.epoch:
            # Fenced, and sees it now.
            return
        heals = self.heals()
        if heals:
            self.left = heals
            return
        commit = self.copy.replay.commit + 1
        changes = effect(self.copy.state, commit)
        self.left = [
            ChangelogRecord("last" if number == len(changes) else "change", self.epoch, commit, key, value)
            for number, (key, value) in enumerate(changes.items(), 1)
        ]

    def heals(self) -> list[ChangelogRecord]:
        fence = [ChangelogRecord("fence", self.epoch)] * self.copy.replay.fence_overwritten
        commit = self.copy.replay.commit
        return fence + [
            ChangelogRecord("rewrite", self.epoch, commit, key, self.copy.state.get(key))
            for key in self.copy.replay.keys_to_rewrite()
        ]


class Log:
    """A changelog. Compaction looks no further than `clean`, as Kafka's does at the lag it is told."""

    def __init__(self) -> None:
        self.records: list[tuple[int, ChangelogRecord]] = []
        self.epochs: set[int] = set()
        self.end = 0

    def append(self, change: ChangelogRecord) -> None:
        read = read_change(change.log_key(), change.value, change.header())
        self.epochs.add(change.epoch)
        assert read == change
        self.records.append((self.end, read))
        self.end += 1

    def compact(self, clean: int) -> None:
        last = {change.log_key(): offset for offset, change in self.records if offset < clean}
        self.records = [(at, change) for at, change in self.records if at >= clean or last[change.log_key()] == at]

    def forget_deletions(self, clean: int) -> None:
        """Do what compaction does a day later; all that read the log have come that far by then."""
        self.compact(clean)
        self.records = [(at, change) for at, change in self.records if at >= clean or change.log_value() is not None]


moves = st.lists(
    st.sampled_from(
        ["step", "step", "step", "many", "takeover", "fresh", "zombie", "zombie", "compact", "copy", "a day"]
    ),
    max_size=40,
)


@given(moves)
@settings(max_examples=examples(1500))
def test_whoever_dies_or_goes_on_the_state_is_that_of_the_input(moves: list[str]) -> None:
    log, spare = Log(), Copy()
    owner, former = Owner(log, Copy()), None
    clean, whole = 0, -1
    for move in [*moves, "takeover", "many", "many"]:
        if move == "step":
            owner.step()
        elif move == "many":
            for _ in range(9):
                owner.step()
        elif move == "takeover":
            # Whoever was stopped before has noticed by the time the next one is.
            former, owner, spare = owner, Owner(log, spare), Copy()
        elif move == "fresh":
            former, owner = owner, Owner(log, Copy())
            # Whatever compaction has left: no epoch begins twice.
            assert owner.epoch not in log.epochs
        elif move == "zombie" and former is not None:
            # It writes what it has begun, and before it looks it may begin one record more.
            if not former.left and former.copy.replay.epoch == former.epoch:
                former.step()
            if former.left:
                log.append(former.left.pop(0))
        elif move == "copy":
            spare.read(log.records, log.end)
        elif move == "compact":
            log.compact(clean)
        elif move == "a day":
            spare.read(log.records, log.end)
            log.forget_deletions(clean)
        if owner.begun and not owner.left and owner.copy.at == log.end and not owner.heals():
            clean = log.end
            assert owner.copy.replay.commit >= whole
            whole = owner.copy.replay.commit
    while owner.left or owner.copy.at < log.end:
        owner.step()
    reader = Copy()
    for copy in (reader, spare, owner.copy):
        copy.read(log.records, log.end)
        if not copy.replay.uncommitted:
            assert copy.state == recomputed(copy.replay.commit + 1)
    assert owner.copy.replay.commit > 0


def test_what_is_no_change_is_refused() -> None:
    good = ChangelogRecord("last", 3, 7, b"\1k", b"v")
    for key, header in (
        (b"\1k", None),
        (b"\1k", b"short"),
        (b"\1k", b"\x07" + good.header()[1:]),
        (b"\xff" + b"\1k", good.header()),
        (None, good.header()),
        (b"", good.header()),
    ):
        if key == b"\xff\1k" or not key or header != good.header():
            with pytest.raises(WireError):
                read_change(key, b"v", header)
    assert read_change(good.log_key(), b"v", good.header()) == good
    for other in (ChangelogRecord("fence", 4), ChangelogRecord("lost", 4)):
        assert read_change(other.log_key(), None, other.header()) == other
        assert other.log_key() != ChangelogRecord("change", 1, key=b"\1" + other.kind.encode()).log_key()
        # Compaction keeps it.
        assert other.log_value()


def test_changes_of_a_commit_count_when_it_is_known_to_be_complete() -> None:
    replay = ChangelogReplay()
    assert list(replay.take(ChangelogRecord("change", 1, 5, A, b"1"))) == []
    assert list(replay.take(ChangelogRecord("last", 1, 5, B, b"2"))) == [(A, b"1"), (B, b"2")]
    assert replay.commit == 5
    # The mark of record 6 is gone with its change: compaction has found a later one of that key.
    assert list(replay.take(ChangelogRecord("change", 1, 6, A, b"3"))) == []
    assert list(replay.take(ChangelogRecord("last", 1, 7, B, b"4"))) == [(A, b"3"), (B, b"4")]
    # An owner dies within a record: what is there of it is healed away, or else it is whole.
    for healed, left in ((True, []), (False, [(A, b"5")])):
        replay = ChangelogReplay()
        assert not [
            *replay.take(ChangelogRecord("change", 1, 8, A, b"5")),
            *replay.take(ChangelogRecord("fence", 2)),
        ]
        assert replay.keys_to_rewrite() == [A]
        if healed:
            assert list(replay.take(ChangelogRecord("rewrite", 2, 7, A, b"3"))) == [(A, b"3")]
        assert list(replay.take(ChangelogRecord("last", 2, 8, C, b"6"))) == [*left, (C, b"6")]


def test_what_a_former_owner_writes_counts_for_nothing_and_is_healed() -> None:
    replay = ChangelogReplay()
    for change in (
        ChangelogRecord("fence", 2),
        ChangelogRecord("last", 2, 1, A, b"1"),
        ChangelogRecord("last", 1, 9, A, b"old"),
    ):
        assert (A, b"old") not in replay.take(change)
    assert (replay.commit, replay.keys_to_rewrite()) == (1, [A])
    assert list(replay.take(ChangelogRecord("fence", 1))) == []
    assert list(replay.take(ChangelogRecord("rewrite", 2, 1, A, b"1"))) == [(A, b"1")]
    assert replay.keys_to_rewrite() == []


def test_a_fence_that_comes_late_is_made_good() -> None:
    replay = ChangelogReplay()
    for change in (ChangelogRecord("fence", 2), ChangelogRecord("fence", 1)):
        list(replay.take(change))
    assert (replay.epoch, replay.commit, replay.fence_overwritten) == (2, -1, True)
    list(replay.take(ChangelogRecord("fence", 2)))
    assert (replay.epoch, replay.commit, replay.fence_overwritten) == (2, -1, False)


def test_records_of_the_format_with_a_commit_for_each_input_record_are_refused() -> None:
    header = ChangelogRecord("last", 3, 7, A, b"v").header()
    for kind in range(8):
        with pytest.raises(WireError, match="kind"):
            read_change(A, b"v", bytes([kind]) + header[1:])


def test_lost_is_lost_whoever_says_it() -> None:
    replay = ChangelogReplay(epoch=7)
    assert list(replay.take(ChangelogRecord("lost", 3))) == []
    assert replay.lost


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
    assert kafka.end(KafkaPythonPartition(LOG, 0)) > 1


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
