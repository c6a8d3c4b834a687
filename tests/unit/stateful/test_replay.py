"""What a changelog means, whoever dies or goes on writing: against a recomputation from the input."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.errors import WireError
from rackassign.stateful.changelog.replay import ChangelogRecord, ChangelogReplay, read_change
from tests.helpers.changelog_input import KEYS, apply, effect, recomputed
from tests.helpers.examples import examples

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
