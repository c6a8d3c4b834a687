"""Commits that nobody waits for: one at a time, and none is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Offset

from rackassign.model import TopicPartition
from tests.helpers.fakes.confluent import ONE, TWO, ConsumerHarness, message

FOR_A_WHILE = KafkaError(KafkaError._TRANSPORT, "x", retriable=True)
REBALANCING = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)
FOR_EVER = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


class Committing(ConsumerHarness):
    """Two partitions, committed by hand, and what `on_commit` is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[int | None, dict[int, int]]] = []
        super().__init__(enable_auto_commit=False, on_commit=self.note)
        self.give(ONE, TWO)
        self.member.log.clear()

    def note(self, error: Any, offsets: list[Any]) -> None:
        self.heard.append((error and error.code(), {each.partition: each.offset for each in offsets}))

    def commit(self, place: TopicPartition, *offsets: int) -> list[Any]:
        """Commit messages before these offsets; return what was sent meanwhile."""
        before = len(self.member.log)
        for offset in offsets:
            self.commits.commit(message(place, offset - 1), None, asynchronous=True, timeout=1)
        return self.member.log[before:]

    def answer(self, error: KafkaError | None = None) -> None:
        """Have the host know what came of the last; it says so when it is asked."""
        self.member.answers.append((self.member.pending[-1], error))


@pytest.fixture
def stage() -> Committing:
    return Committing()


def test_many_commits_are_one_at_a_time_and_merged(stage: Committing) -> None:
    assert stage.commit(ONE, *range(1, 200)) == [("later", {ONE: 1})]
    assert stage.commit(TWO, 7) == []
    stage.answer()
    assert stage.play() == [("later", {ONE: 199, TWO: 7})]
    assert stage.heard == [(None, {0: 1})]
    stage.answer()
    assert stage.play() == []
    assert stage.heard[1:] == [(None, {0: 199, 1: 7})]


@pytest.mark.parametrize("error", [FOR_A_WHILE, REBALANCING])
def test_what_fails_for_a_while_is_sent_again(stage: Committing, error: KafkaError) -> None:
    stage.commit(ONE, 1)
    stage.commit(TWO, 7)
    stage.commit(ONE, 2)
    stage.answer(error)
    assert stage.play() == [("later", {ONE: 2, TWO: 7})]
    stage.answer(error)
    assert stage.play() == [("later", {ONE: 2, TWO: 7})]
    stage.answer()
    stage.play()
    assert stage.heard == [(None, {0: 2, 1: 7})]


def test_the_last_word_counts_and_not_the_highest_offset(stage: Committing) -> None:
    stage.commit(ONE, 9, 8, 3)
    stage.answer()
    assert stage.play() == [("later", {ONE: 3})]


def test_what_is_open_is_committed_before_it_is_given_up(stage: Committing) -> None:
    stage.commit(ONE, 1, 2)
    stage.commit(TWO, 7)
    assert stage.give(TWO) == [("revoke", {0}), ("commit", {ONE: 2, TWO: 7})]
    assert stage.heard == [(None, {0: 2, 1: 7})]
    # The answer that nobody has waited for.
    stage.answer(FOR_A_WHILE)
    assert stage.play() == []
    assert len(stage.heard) == 1


def test_what_is_lost_is_not_committed_but_told(stage: Committing) -> None:
    stage.commit(ONE, 1, 2)
    stage.commit(TWO, 7)
    stage.member.is_lost = True
    assert stage.play() == [("lost", {0, 1})]
    assert stage.heard == [(KafkaError.ILLEGAL_GENERATION, {0: 2, 1: 7})]
    stage.member.is_lost = False
    stage.answer(FOR_A_WHILE)
    # What comes back is another tenure.
    assert stage.give(ONE) == [("assign", {0})]
    assert stage.heard[1:] == [(FOR_A_WHILE.code(), {0: 1})]


def test_what_is_not_assigned_is_told_and_the_rest_is_committed(stage: Committing) -> None:
    stage.give(ONE)
    stage.commits.commit(None, [Offset(*ONE, 3), Offset(*TWO, 4)], asynchronous=True, timeout=1)
    stage.answer()
    stage.play()
    assert stage.heard == [(KafkaError.ILLEGAL_GENERATION, {1: 4}), (None, {0: 3})]


def test_what_is_lost_on_its_way_is_told_at_the_end(stage: Committing) -> None:
    stage.commit(ONE, 1)
    stage.member.is_lost = True
    stage.play()
    stage.commits.end()
    stage.commits.end()
    assert stage.heard == [(KafkaError.ILLEGAL_GENERATION, {0: 1})]
    assert not [entry for entry in stage.member.log if entry[0] == "commit"]


def test_an_answer_that_nobody_waits_for_any_more_is_not_taken_for_another(stage: Committing) -> None:
    stage.commit(ONE, 1)
    late = stage.member.pending[-1]
    stage.commits.commit(message(ONE, 8), None, asynchronous=False, timeout=1)
    assert stage.commit(TWO, 7, 8) == [("later", {TWO: 7})]
    stage.member.answers.append((late, FOR_EVER))
    assert stage.play() == []
    assert stage.heard == [(None, {0: 1})]
    stage.answer()
    assert stage.play() == [("later", {TWO: 8})]


def test_what_cannot_even_be_sent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KafkaException(FOR_EVER)

    stage = Committing()
    stage.commit(ONE, 1)
    monkeypatch.setattr(stage.member, "run_commit_callbacks", refuse)
    monkeypatch.setattr(stage.member, "commit_async", refuse)
    stage.commit(ONE, 2)
    stage.play()
    assert stage.heard == [(FOR_EVER.code(), {0: 1}), (FOR_EVER.code(), {0: 2})]


def test_who_is_told_may_raise_and_the_others_are_told_all_the_same(stage: Committing) -> None:
    stage.commit(ONE, 1)
    stage.answer()
    stage.commit(ONE, 2)
    stage.answer()
    stage.commit(ONE, 3)
    note, stage.heard = stage.note, []

    def fail(error: Any, offsets: list[Any]) -> None:
        note(error, offsets)
        raise LookupError

    object.__setattr__(stage.commits._properties, "on_commit", fail)
    for _ in range(2):
        with pytest.raises(LookupError):
            stage.play()
    assert stage.heard == [(None, {0: 1}), (None, {0: 2})]


def test_what_is_open_does_not_follow_a_later_commit_of_its_partition(stage: Committing) -> None:
    stage.commit(ONE, 50)
    stage.commit(TWO, 7)
    refused = KafkaException(REBALANCING)

    def commit(offsets: Any, _: float) -> None:
        if stage.member.refusing is refused:
            # For a moment.
            stage.member.refusing = None
            raise refused
        stage.member.log.append(("commit", {place: each[0] for place, each in offsets.items()}))

    stage.member.refusing = refused
    stage.member.commit = commit  # type: ignore[assignment, method-assign]
    stage.commits.commit(message(ONE, 99), None, asynchronous=False, timeout=1)
    sent = stage.member.log + stage.play()
    assert [offsets for kind, offsets in sent if kind != "later"] == [{ONE: 100}]
    assert sent[-1] == ("later", {TWO: 7})
    assert stage.heard[0] == (REBALANCING.code(), {0: 50})


def test_what_a_signal_interrupts_as_it_is_sent_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    stage = Committing()
    with monkeypatch.context() as patched:
        patched.setattr(stage.member, "commit_async", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stage.commit(ONE, 1)
    assert stage.commit(TWO, 7) == [("later", {ONE: 1, TWO: 7})]
    stage.answer()
    stage.play()
    assert stage.heard == [(None, {0: 1, 1: 7})]


def test_so_is_what_a_signal_interrupts_as_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    stage = Committing()
    stage.commit(ONE, 1, 2)
    stage.commit(TWO, 7)
    with monkeypatch.context() as patched:
        patched.setattr(stage.member, "commit", interrupt)
        # The last commit before a partition is revoked, which may take seconds.
        with pytest.raises(KeyboardInterrupt):
            stage.give(TWO)
    # What is not assigned any more is not committed, and what is committed afterwards is not held back.
    assert stage.play() == [("later", {TWO: 7})]
    assert stage.heard == [(KafkaError.ILLEGAL_GENERATION, {0: 2})]
    stage.answer()
    assert stage.commit(TWO, 8) == [("later", {TWO: 8})]


@pytest.mark.parametrize("taken_again", [True, False])
def test_who_waits_commits_nothing_that_is_revoked_meanwhile(stage: Committing, *, taken_again: bool) -> None:
    stage.commit(TWO, 7)

    def rebalance(offsets: Any, _: float) -> None:
        stage.member.log.append(("commit", {place: each[0] for place, each in offsets.items()}))
        if len(stage.member.log) == 2:
            # The commit before waits for a join, and the polling thread goes on.
            stage.give(TWO)
            if taken_again:
                stage.give(ONE, TWO)

    stage.member.commit = rebalance  # type: ignore[assignment, method-assign]
    both = [Offset(*ONE, 3), Offset(*TWO, 9)]
    committed = stage.commits.commit(None, both, asynchronous=False, timeout=1)
    assert [(each.partition, each.offset) for each in committed or ()] == [(1, 9)]
    commits = [offsets for kind, offsets in stage.member.log if kind == "commit"]
    assert commits[-1] == {TWO: 9}
    assert not any(ONE in offsets for offsets in commits)


@pytest.mark.parametrize("at_the_end", [True, False])
def test_what_cannot_be_committed_in_time_is_told_and_not_sent_again(stage: Committing, *, at_the_end: bool) -> None:
    stage.commit(ONE, 1, 2)
    stage.member.refusing = KafkaException(FOR_A_WHILE)
    if at_the_end:
        stage.commits.end()
    else:
        assert stage.give(TWO) == [("revoke", {0})]
    assert stage.play() == []
    assert stage.heard == [(FOR_A_WHILE.code(), {0: 2})]
