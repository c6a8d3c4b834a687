"""Local files and those who own partitions, on a changelog in memory that fails when it likes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackassign.errors import KafkaUnavailableError, RackassignError
from rackassign.model import TopicPartition
from rackassign.stateful import State, StatefulConsumer, StoreError
from rackassign.stateful import _local_state as state_file
from rackassign.stateful._active_task import ActiveTask, FencedError
from rackassign.stateful._changelog import ChangelogRecord, Claim, read_change
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._state_directory import StateDirectory
from tests.helpers.changelog_input import KEYS, effect, recomputed
from tests.helpers.examples import examples
from tests.helpers.memory_directory import memory_directory

PLACE = TopicPartition("t", 3)


class Write(NamedTuple):
    """What has become of records; None if nobody knows."""

    offsets: tuple[int, int] | None

    def done(self) -> bool:
        return True

    def result(self) -> tuple[int, int]:
        if self.offsets is None:
            raise KafkaUnavailableError("gone")
        return self.offsets


class Memory:
    """A changelog in memory."""

    def __init__(self, breaks: Sequence[int | None] = ()) -> None:
        # `breaks`: for writes in order the bits of those of their records that are written although the answer is lost;
        # None for all, and an answer. A client that gives up a batch may write the ones behind it.
        self.records: list[ChangelogRecord] = []
        self._breaks = list(breaks)

    def send(self, place: TopicPartition, changes: Sequence[ChangelogRecord]) -> Write:
        assert place == PLACE
        broken = self._breaks.pop(0) if self._breaks else None
        first = len(self.records)
        self.records += [change for at, change in enumerate(changes) if broken is None or broken >> at & 1]
        return Write(None if broken is not None else (first, len(self.records)))

    def offset_range(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(places, (0, len(self.records)))

    def read_range(self, place: TopicPartition, start: int, end: int) -> list[ChangelogRecord]:
        assert place == PLACE
        return self.records[start:end]


def fed(owner: ActiveTask, log: Memory) -> None:
    """Do for an owner what a consumer does until it is ready."""
    while not owner.ready:
        owner.store.apply(log.records[owner.store.position :], len(log.records))
        try:
            owner.continue_restore()
        except KafkaUnavailableError:
            continue


def process(owner: ActiveTask, records: int) -> None:
    """Process so many records, each of which is committed while the next one is processed."""
    for number in range(owner.store.replay.commit + 1, owner.store.replay.commit + 1 + records):
        state = {key: value for key in KEYS if (value := owner.store.get(key)) is not None}
        owner.store.begin()
        for key, value in effect(state, number).items():
            owner.store.change(key, value)
        owner.store.commit_record()
        settled(owner)
        owner.commit(owner.store.take_commit())
    settled(owner)


def settled(owner: ActiveTask) -> None:
    try:
        owner.settle(wait=True)
    except (KafkaUnavailableError, FencedError):
        owner.store.discard_uncommitted()
        raise


def check(store: StateFile) -> None:
    if not store.replay.uncommitted:
        assert dict(store.between(b"", None)) == recomputed(store.replay.commit + 1)


moves = st.lists(
    st.sampled_from(["one", "three", "heir", "fresh", "copy", "former", "look"])
    | st.tuples(st.just("one"), st.integers(1, 4)),
    max_size=25,
)


@given(moves, st.lists(st.none() | st.integers(0, 7), max_size=12))
@settings(max_examples=examples(200), deadline=None)
def test_owners_leave_what_the_input_says(moves: list[str | tuple[str, int]], breaks: list[int | None]) -> None:
    log = Memory(breaks)
    stores: list[StateFile] = []
    with memory_directory() as folder:

        def new_store() -> StateFile:
            stores.append(StateFile(Path(folder) / f"{len(stores)}.sqlite"))
            return stores[-1]

        def seated(store: StateFile) -> ActiveTask:
            owner = ActiveTask(PLACE, store, log)
            fed(owner, log)
            return owner

        owner, spare = seated(new_store()), new_store()
        former: ActiveTask | None = None
        for move in moves:
            if move == "heir":
                former, owner, spare = owner, seated(spare), new_store()
            elif move == "fresh":
                former, owner = owner, seated(new_store())
            elif move == "copy":
                spare.apply(log.records[spare.position :], len(log.records))
            elif move == "former" and former is not None:
                with suppress(KafkaUnavailableError, FencedError):
                    process(former, 1)
                former = None
            elif move != "former":
                try:
                    owner.reconcile() if move == "look" else process(owner, move[1] if isinstance(move, tuple) else 1)
                except KafkaUnavailableError:
                    owner = seated(owner.store)
            check(owner.store)
        for store in stores:
            store.apply(log.records[store.position :], len(log.records))
            check(store)
            store.close()


@pytest.fixture
def state_file_of(tmp_path: Path) -> Iterator[Callable[[int], StateFile]]:
    """Opens files by number, which are closed at the end."""
    with ExitStack() as opened:
        yield lambda number: opened.enter_context(closing(StateFile(tmp_path / f"{number}.sqlite")))


def test_a_former_owner_learns_that_it_is_one_and_takes_nothing_in(state_file_of: Callable[[int], StateFile]) -> None:
    log = Memory()
    first = ActiveTask(PLACE, state_file_of(1), log)
    fed(first, log)
    process(first, 3)
    second = ActiveTask(PLACE, state_file_of(2), log)
    fed(second, log)
    before = dict(second.store.between(b"", None))
    with pytest.raises(FencedError, match="t-3: epoch 1 has begun"):
        process(first, 2)
    assert dict(first.store.between(b"", None)) == before
    # What it has written all the same is healed: compaction would keep it, and not what counts.
    spoiled = {c.key for c in log.records if c.epoch == 0 and c.commit >= 3}
    second.reconcile()
    healed = {change.key: change.value for change in log.records if change.kind == "rewrite"}
    assert healed == {key: before.get(key) for key in spoiled}
    # A fence that comes late would be all that compaction leaves, and its epoch the last to be known of.
    log.records.append(ChangelogRecord("fence", 0))
    second.reconcile()
    assert [change.epoch for change in log.records if change.kind == "fence"] == [0, 1, 0, 1]
    process(second, 4)
    check(second.store)


def test_a_file_holds_what_it_held_and_how_far_it_is(tmp_path: Path) -> None:
    file = tmp_path / "t-3.sqlite"
    on_disk = StateFile(file)
    store = State(on_disk)
    on_disk.apply(
        [
            ChangelogRecord("fence", 1),
            ChangelogRecord("last", 1, 0, b"\1k", b"v"),
            ChangelogRecord("change", 1, 1, b"\1j", b"w"),
        ],
        3,
    )
    with pytest.raises(StoreError, match="is changed by input records alone"):
        store.put(b"k", b"v")
    on_disk.begin()
    store.put(b"k", b"not written")
    assert (store.get(b"k"), on_disk.stored_value(b"\1k")) == (b"not written", b"v")
    on_disk.rollback_record()
    on_disk.begin()
    store.put(b"a", b"new")
    assert list(store.items()) == [(b"a", b"new"), (b"k", b"v")]
    on_disk.rollback_record()
    on_disk.begin()
    store.delete(b"k")
    on_disk.commit_record()
    assert on_disk.take_commit() == {b"\1k": None}
    assert (store.get(b"k"), on_disk.stored_value(b"\1k")) == (None, b"v")
    on_disk.close()
    again = StateFile(file)
    assert (again.position, again.replay, dict(State(again).items())) == (3, on_disk.replay, {b"k": b"v"})
    assert again.replay.uncommitted == {b"\1j": b"w"}
    again.clear()
    assert (again.position, again.get(b"\1k"), again.replay.uncommitted) == (0, None, {})
    again.close()


def test_files_that_cannot_be_used_begin_anew_and_a_folder_is_one_member_s(tmp_path: Path) -> None:
    (tmp_path / "t-1@1d.sqlite").write_bytes(b"no database at all, whatever its name" * 99)
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing({"t": "1d"})
    assert state_directory.positions() == {}
    assert state_directory.open(TopicPartition("t", 1)).position == 0
    state_directory.open(PLACE).apply([ChangelogRecord("last", 1, 0, b"\1k", b"v")], 7)
    assert state_directory.positions() == {TopicPartition("t", 1): 0, PLACE: 7}
    with pytest.raises(
        StoreError,
        match=r"is in use: each member .* of its own\. If its member was killed, .*: `fuser .*/lock` shows it",
    ):
        StateDirectory(tmp_path)
    state_directory.delete(PLACE)
    assert state_directory.positions() == {TopicPartition("t", 1): 0}
    with pytest.raises(StoreError, match="no name of a topic"):
        state_directory.open(TopicPartition("../t", 0))
    state_directory.close()
    StateDirectory(tmp_path).close()


def test_files_that_are_old_or_of_another_changelog_are_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 1), TopicPartition("t", 2)]
    state_directory = StateDirectory(tmp_path)
    state_directory.open_existing({"t": "1d", "u": "5e"})
    # As a copied folder has it: the files are new, and their content is old.
    for place, age_h in zip(places, (13, 11, 0, -13), strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(state_file, "time_of_day_ms", lambda: int((time.time() - age_h * 3600) * 1000))  # noqa: B023
            state_directory.open(place).apply([ChangelogRecord("last", 1, 0, b"\1k", b"v")], 5)
    state_directory.close()
    (tmp_path / "notes.sqlite").touch()
    os.utime(tmp_path / "t-1@1d.sqlite", (1.0, 1.0))
    again = StateDirectory(tmp_path)
    again.open_existing({"t": "1d", "u": "new"})
    assert again.positions() == {TopicPartition("t", 1): 5}
    assert again.open(places[2]).position == 0
    again.close()
    left = {file.name for file in tmp_path.glob("*.sqlite")}
    assert left == {"notes.sqlite", "t-1@1d.sqlite", "u-1@new.sqlite"}


def test_what_cannot_work_is_told_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: dict[str, Any] = {"process": lambda *_: None, "state_dir": tmp_path / "state", "group_id": "g"}
    for topics, more, problem in (
        ((), {}, "topics and group_id are needed"),
        (("t",), {"group_id": None}, "topics and group_id are needed"),
        (("t",), {"enable_auto_commit": True}, "enable_auto_commit is set by this consumer"),
        (("t",), {"client_tags": {"k" * 21: "v"}}, "Tag key exceeds maximum length of 20"),
        (("t",), {"state_dir": tmp_path / "file"}, "state_dir: .* cannot be used: "),
    ):
        with pytest.raises(RackassignError, match=problem):
            StatefulConsumer(*topics, **{**told, **more})
    # The folder was given back.
    StateDirectory(tmp_path / "state").close()


def test_of_two_owners_with_one_epoch_the_first_fence_counts(state_file_of: Callable[[int], StateFile]) -> None:
    log = Memory()
    late = ActiveTask(PLACE, state_file_of(1), log)
    # It looks, and is stopped before it writes its fence; meanwhile another has begun the same epoch.
    late.store.apply([], 0)
    early = ActiveTask(PLACE, state_file_of(2), log)
    fed(early, log)
    process(early, 3)
    bounds = log.offset_range

    def once_stale(places: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        log.offset_range = bounds  # type: ignore[method-assign]
        return dict.fromkeys(places, (0, 0))

    log.offset_range = once_stale  # type: ignore[method-assign]
    with pytest.raises(FencedError, match="epoch 0 is another member's"):
        late.continue_restore()
    process(early, 3)
    early.reconcile()
    check(early.store)


def test_fences_outlive_compaction() -> None:
    fence = ChangelogRecord("fence", 7)
    assert fence.log_value() is not None
    assert read_change(fence.log_key(), fence.log_value(), fence.header()) == fence
    assert ChangelogRecord("last", 1, 0, b"\1k", None).log_value() is None


@given(st.lists(st.tuples(st.sampled_from(["move", "work", "resume", "late"]), st.integers(0, 3)), max_size=30))
@settings(max_examples=examples(150), deadline=None)
def test_whenever_former_owners_resume_the_living_one_stays(moves: list[tuple[str, int]]) -> None:
    """Each move begins a generation with another owner; former ones come back with the claims they had."""
    log = Memory()
    stores: list[StateFile] = []
    with memory_directory() as folder:

        def taken(generation: int, number: int, *, current: bool) -> ActiveTask:
            stores.append(StateFile(Path(folder) / f"{len(stores)}.sqlite"))
            return ActiveTask(PLACE, stores[-1], log, Claim(0, generation, number), lambda: current)

        generation = 1
        owner = taken(generation, 0, current=True)
        fed(owner, log)
        former: list[tuple[int, int, ActiveTask]] = []
        for move, number in moves:
            if move == "move":
                former.append((generation, number, owner))
                generation += 1
                owner = taken(generation, number, current=True)
                fed(owner, log)
            elif move == "work":
                process(owner, number + 1)
            elif move == "resume" and former:
                with pytest.raises(FencedError):
                    process(former[number % len(former)][2], 1)
            elif move == "late" and former:
                old, who, _ = former[number % len(former)]
                with pytest.raises(FencedError):
                    fed(taken(old, who, current=False), log)
                # It had looked before the living owner wrote its fence.
                end = len(log.records)
                log.records.append(ChangelogRecord("fence", owner.store.replay.epoch + 1, claim=Claim(0, old, who)))
                owner.reconcile()
                assert log.records[end:][-2].kind == "fence"
            owner.reconcile()
            assert owner.store.replay.claim == Claim(0, generation, owner._claim.member)
            check(owner.store)
        for store in stores:
            store.apply(log.records[store.position :], len(log.records))
            check(store)
            store.close()
