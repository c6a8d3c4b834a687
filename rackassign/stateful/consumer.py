"""`StatefulConsumer`: reads, changes its state by what it reads, and hands both over when it dies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition as HostPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from rackassign.clients.kafka_python import RackAwareConsumer, StandbyAwareAssignor
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful.active_partition import ActivePartition, FencedError
from rackassign.stateful.changelog import ChangelogBatch, ChangelogClient
from rackassign.stateful.state_directory import LONGEST_LEFT_S, StateDirectory
from rackassign.stateful.state_store import StateStore, StoreError
from rackassign.stateful.validation import OnRestore, Process, check
from rackassign.strategies.standby import StandbyOptions
from rackassign.util.log_once import WarnOnce

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

log = logging.getLogger(__name__)

_ENDS_S = 2.0
_KEEP_S = 600.0
_RESTORING_MS = 50


@dataclass(slots=True)
class _Known:
    """What an assignor asks for on another thread: replaced as a whole, never changed."""

    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class StatefulConsumer:
    """A member of a group that keeps state for each partition it reads, and warm copies of others' (KIP-708).

    Each record's effects on the state are there once, whoever dies when: the state is what the changelog says, and the
    offset of the input goes with it. What `process` does besides (calls, output) may be done twice.

    For one thread. `process` must not keep the store.

    Args:
        *topics: To read.
        process: What a record does.
        state_dir: Folder for local files, one member's own. What is in it from before is made use of.
        client_tags: Where this member stands, for who spreads copies (`zone`, `cluster`, ..).
        standby_partitions: How copies are placed.
        on_restore: Told how far a restore is.
        changelog: Names the changelog of a topic; `{group}-{topic}-changelog` by default. Made where it is missing.
        client_rack: As for `RackAwareConsumer`.
        **config: The same; `bootstrap_servers` and `group_id` are needed.

    Raises:
        ConfigError: An option cannot work, or a changelog does not fit its topic.
        NoAnswerError: Kafka does not answer.
        StoreError: Another member uses the folder.
    """

    def __init__(
        self,
        *topics: str,
        process: Process,
        state_dir: str | Path,
        client_tags: Mapping[str, str] | None = None,
        standbys: StandbyOptions | None = None,
        on_restore: OnRestore | None = None,
        changelog: Callable[[str], str] | None = None,
        client_rack: str | None = None,
        **config: Any,  # noqa: ANN401 - as kafka-python has them
    ) -> None:
        check(topics, process, state_dir, config)
        group = config["group_id"]
        self._process = process
        self._on_restore = on_restore
        self._known = _Known({}, {})
        self._owners: dict[TopicPartition, ActivePartition] = {}
        self._unwanted: dict[TopicPartition, float] = {}
        self._looked = float("-inf")
        self._polled_at = time.monotonic()
        self._generation = -1
        self._fenced: set[TopicPartition] = set()
        self._once = WarnOnce(log)
        self._from_the_start = config.get("auto_offset_reset", "earliest") == "earliest"
        named: Callable[[str], str] = changelog or (lambda topic: f"{group}-{topic}-changelog")
        self._assignor = StandbyAwareAssignor(
            client_rack,
            client_tags=client_tags,
            standbys=standbys,
            positions=lambda: self._known.positions,
            ends=lambda: self._known.ends,
            changelog=named,
        )
        with ExitStack() as begun:
            self._shelf = StateDirectory(Path(state_dir))
            begun.callback(self._shelf.close)
            self._logs = ChangelogClient(named, topics, config, client_rack)
            begun.callback(self._logs.close)
            self._shelf.open_existing(self._logs.ids)
            self._consumer = RackAwareConsumer(
                client_rack=client_rack,
                enable_auto_commit=False,
                partition_assignment_strategy=[self._assignor],
                **{"auto_offset_reset": "earliest", **config},
            )
            begun.callback(self._consumer.close)
            self._publish()
            self._consumer.subscribe(list(topics))
            # What was begun is closed in `close`, in the same order.
            self._begun = begun.pop_all()

    @property
    def consumer(self) -> RackAwareConsumer:
        """The consumer that reads the topics; for looking, not for polling."""
        return self._consumer

    def active_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions this member runs, their state restored."""
        return frozenset(place for place, owner in self._owners.items() if owner.ready)

    def standby_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions this member keeps a copy of."""
        return self._assignor.standbys - set(self._owners)

    def store(self, place: TopicPartition) -> StateStore:
        """Return the state of a partition that is here, run or copied.

        Raises:
            StoreError: It is not.
        """
        if place not in self._shelf.positions():
            raise StoreError(f"{place.topic}-{place.partition} is not here")
        return self._shelf.open(place)

    def poll(self, timeout_ms: int = 500) -> int:
        """Read and process what there is, bring copies up to date; return how many records were processed.

        Args:
            timeout_ms: How long to wait for records.

        Raises:
            Exception: Whatever `process` raises; nothing of that record is kept, and it comes again.
            StateLostError: A changelog was deleted or cut while its partition was run.
        """
        try:
            return self._polled(timeout_ms)
        except Exception:
            raise
        except BaseException:
            # Interrupted anywhere, in the host as well: what was read is read again, to what is in the files.
            for place in list(self._owners):
                self._release(place)
            raise

    def _polled(self, timeout_ms: int) -> int:
        self._reset_after_long_pause()
        restoring = any(not owner.ready for owner in self._owners.values())
        polled = self._consumer.poll(timeout_ms=0 if restoring else timeout_ms)
        todo = {TopicPartition(*host): batch for host, batch in polled.items()}
        done, ends = 0, dict[TopicPartition, int]()
        try:
            # Whether this is still a member is known by now, and only then anybody is fenced off.
            self._apply_assignment()
            reading = {place for place, owner in self._owners.items() if owner.reads}
            self._follow()
            self._take(self._logs.read(_RESTORING_MS if restoring else 0))
            self._advance()
            for place, batch in list(todo.items()):
                # What has just come has its state read first, which knows where to begin.
                owner = self._owners.get(place)
                if owner is not None and place in reading:
                    count, failure = self._processed(place, owner, batch, ends)
                    done += count
                    if failure is not None:
                        raise failure
                    del todo[place]
        finally:
            for place, batch in todo.items():
                # Whatever was raised: what was not come to, or not done with, is read again.
                self._stop_reading(place)
                if HostPartition(*place) in self._consumer.assignment():
                    # Where there is no state yet, nothing else says where that is.
                    self._consumer.seek(HostPartition(*place), batch[0].offset)
            self._commit(ends)
            self._publish()
        return done

    def _reset_after_long_pause(self) -> None:
        """Begin anew after a pause that was so long that compaction may have forgotten deletions since."""
        now, before = time.monotonic(), self._polled_at
        self._polled_at = now
        if now - before > LONGEST_LEFT_S:
            for place in list(self._owners):
                self._release(place)
            for place in self._shelf.positions():
                self._shelf.open(place).clear()

    def _stop_reading(self, place: TopicPartition) -> None:
        """Read a partition no further; if it is run here, it goes on behind what is in its state."""
        if place in self._owners:
            self._owners[place].reads = False
        host = HostPartition(*place)
        if host in self._consumer.assignment():
            self._consumer.pause(host)

    def close(self) -> None:
        """Leave the group and close everything. The files stay: whoever begins here again need not restore."""
        self._begun.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _apply_assignment(self) -> None:
        """Take up partitions that were given, and let go of those that were taken."""
        assigned = {TopicPartition(*host) for host in self._consumer.assignment()}
        for place in set(self._owners) - assigned:
            self._owners.pop(place).store.discard_uncommitted()
        if self._assignor.generation != self._generation:
            self._generation = self._assignor.generation
            self._fenced.clear()
            for place in self._owners:
                # It may have been lost and given back within one poll: then it is read from somewhere else.
                self._stop_reading(place)
        for place in sorted(assigned - set(self._owners) - self._fenced):
            if place.partition >= self._logs.sizes[place.topic]:
                raise ConfigError(
                    f"{place.topic} has partition {place.partition}, and its changelog has "
                    f"{self._logs.sizes[place.topic]} partitions: partitions cannot be added where there is state"
                )
            self._stop_reading(place)
            self._owners[place] = ActivePartition(place, self._shelf.open(place), self._logs, self._generation)

    def _follow(self) -> None:
        """Read the changelogs of copies, and of what is being restored; throw away what nobody wants any more."""
        wanted = self.standby_partitions() | {place for place, owner in self._owners.items() if not owner.ready}
        self._logs.assign({place: self._shelf.open(place).position for place in wanted})
        now = time.monotonic()
        for place in set(self._shelf.positions()) - wanted - set(self._owners):
            if now - self._unwanted.setdefault(place, now) > _KEEP_S:
                self._shelf.delete(place)
        self._unwanted = {p: since for p, since in self._unwanted.items() if p not in wanted and p not in self._owners}

    def _take(self, found: Mapping[TopicPartition, ChangelogBatch]) -> None:
        for place, read in found.items():
            store = self._shelf.open(place)
            if read.start < store.position:
                # It was read from there: the changelog was made anew, and what is here is of another one.
                log.warning("%s-%d: its changelog begins anew; so does its state", *place)
                store.clear()
            else:
                store.apply(read.changes, read.end)

    def _advance(self) -> None:
        """Bring restores further, and see whether somebody else writes to what this member runs."""
        for place, owner in list(self._owners.items()):
            if owner.reads or not (owner.ready or self._guarded(place, owner.continue_restore)):
                continue
            restored = owner.first is not None
            if owner.ready:
                self._begin(place, owner)
            if self._on_restore is not None and not restored:
                self._on_restore(place, *owner.progress())
        if time.monotonic() - self._looked >= _ENDS_S:
            self._looked = time.monotonic()
            self._check_changelogs()

    def _check_changelogs(self) -> None:
        """Find out where changelogs end; what somebody else has written to one that is run here is healed."""
        try:
            bounds = self._logs.offset_range(self._logs.places())
        except KafkaUnavailableError as error:
            log.warning("%s", error)
            return
        self._known = _Known(self._known.positions, {place: end for place, (_, end) in bounds.items()})
        for place, owner in list(self._owners.items()):
            if owner.ready and bounds[place][1] != owner.store.position:
                self._guarded(place, owner.reconcile)

    def _begin(self, place: TopicPartition, owner: ActivePartition) -> None:
        """Read the input from where the state ends, now or, if Kafka does not answer, with the next poll."""
        host, start = HostPartition(*place), owner.store.replay.source + 1
        if owner.first is None:
            try:
                owner.first = self._where_to_begin(place, start)
            except KafkaError as error:
                self._once.warn("begin", "%s-%d: where to begin cannot be told: %s", *place, error, about=place)
                return
        start = max(start, owner.first)
        if start:
            self._consumer.seek(host, start)
        elif self._from_the_start:
            self._consumer.seek_to_beginning(host)
        self._consumer.resume(host)
        owner.reads = True

    def _where_to_begin(self, place: TopicPartition, start: int) -> int:
        """Return where the input goes on, and warn if anything is not as it should be.

        Args:
            place: The partition.
            start: Where its state ends; 0 if there is none.

        Raises:
            KafkaError: Kafka does not say where the input begins or what is committed.
        """
        host = HostPartition(*place)
        committed: int = self._consumer.committed(host) or 0
        begins: int = self._consumer.beginning_offsets([host])[host]
        if committed > start:
            log.warning(
                "%s-%d: %d is committed, but its changelog knows of records up to %d only: %s",
                *(*place, committed, start),
                "they come again" if start or self._from_the_start else "its state begins empty (auto_offset_reset)",
            )
        if 0 < start < begins:
            log.warning("%s-%d: records %d to %d are not there any more", *place, start, begins - 1)
            return begins
        return start

    def _processed(
        self, place: TopicPartition, owner: ActivePartition, batch: Sequence[Any], ends: dict[TopicPartition, int]
    ) -> tuple[int, Exception | None]:
        """Process records, have what they change written, and note up to where all is done.

        Returns:
            How many were processed, and what `process` raised, from where on they come again.
        """
        changed: list[tuple[int, dict[bytes, bytes | None]]] = []
        failure: Exception | None = None
        for record in batch:
            if record.offset <= owner.store.replay.source:
                # Wherever it comes from, its effects are there.
                self._once.warn(
                    "anew",
                    "%s-%d: its input begins anew at %d, and its state has records up to %d: up to there they are left "
                    "out; if the topic was made anew, delete its changelog as well",
                    *(*place, record.offset, owner.store.replay.source),
                    about=place,
                )
                continue
            owner.store.begin()
            try:
                self._process(record, owner.store)
            except Exception as error:  # noqa: BLE001 - the user's; what was done before it is kept
                owner.store.rollback_record()
                failure = error
                break
            changed.append((record.offset, owner.store.commit_record()))
        if changed:
            if not self._guarded(place, lambda: owner.write(changed)):
                return 0, None
            ends[place] = changed[-1][0] + 1
        return len(changed), failure

    def _guarded(self, place: TopicPartition, act: Callable[[], None]) -> bool:
        """Do something as the owner of a partition; tell whether it was. If not, the state is restored anew."""
        try:
            act()
        except FencedError:
            log.info("%s-%d: another member runs it, or has run it", *place)
            # Either it was another's between two generations of this member, or this member is out of the group and
            # does not know it yet: then its next generation may have the partition.
            if self._owners[place].generation == self._generation:
                self._fenced.add(place)
                self._assignor.request_rejoin()
        except KafkaUnavailableError as error:
            self._once.warn(
                "again", "%s-%d: what was done cannot be kept, and is done again: %s", *place, error, about=place
            )
        except BaseException:
            # Nobody knows what the changelog has of it: its state is found out anew.
            self._release(place)
            raise
        else:
            return True
        self._release(place)
        return False

    def _release(self, place: TopicPartition) -> None:
        """Forget what is not in the file; who owns the partition next, this member maybe, finds out what there is."""
        self._owners.pop(place).store.discard_uncommitted()
        self._stop_reading(place)

    def _commit(self, ends: Mapping[TopicPartition, int]) -> None:
        if not ends:
            return
        try:
            self._consumer.commit({HostPartition(*p): OffsetAndMetadata(end, "", -1) for p, end in ends.items()})
        except KafkaError as error:
            # Changelogs know it, and whoever has the partitions next goes by them.
            log.info("offsets of %d partitions cannot be committed: %s", len(ends), error)

    def _publish(self) -> None:
        positions = {place: at for place, at in self._shelf.positions().items() if place not in self._owners}
        self._known = _Known(positions, self._known.ends)
