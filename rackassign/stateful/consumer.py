"""`StatefulConsumer`: it processes records with state that other members can take over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from rackassign.clients.kafka_python import RackAwareConsumer, StandbyAwareAssignor
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful.active_partition import ActivePartition, FencedError
from rackassign.stateful.changelog import ChangelogBatch, ChangelogClient
from rackassign.stateful.clock import LONGEST_LEFT_S, ElapsedTime
from rackassign.stateful.sqlite_file import StoreError
from rackassign.stateful.state_directory import StateDirectory
from rackassign.stateful.state_store import StateStore
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
    """Values that the assignor reads from another thread: replaced as a whole, never changed."""

    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class StatefulConsumer:
    """A group member that keeps state for each partition it reads, and standbys of other members' state (KIP-708).

    The state has the effects of each record exactly once, whichever member fails at any time: the state is what the
    changelog contains, together with the offset of the input. Other effects of `process` (calls, output) may happen
    twice.

    It may be used by one thread only. `process` must not keep a reference to the store.

    Args:
        *topics: Topics to read.
        process: Processes a record.
        state_dir: Directory of local files, for this member only. Existing files are reused.
        client_tags: Location of this member, for the distribution of standbys (`zone`, `cluster`, ..).
        standbys: How standbys are placed.
        on_restore: Called with the progress of a restore.
        changelog: Return the changelog's name for a topic; `{group}-{topic}-changelog` by default. Missing ones are
            created.
        client_rack: As for `RackAwareConsumer`.
        **config: As for `RackAwareConsumer`; `bootstrap_servers` and `group_id` are required.

    Raises:
        ConfigError: An option is invalid, or a changelog does not match its topic.
        KafkaUnavailableError: Kafka does not respond.
        StoreError: Another member uses the directory.
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
        **config: Any,  # noqa: ANN401 - as in kafka-python
    ) -> None:
        check(topics, process, state_dir, config)
        group = config["group_id"]
        self._process = process
        self._on_restore = on_restore
        self._known = _Known({}, {})
        self._owners: dict[TopicPartition, ActivePartition] = {}
        self._unwanted: dict[TopicPartition, float] = {}
        self._looked = float("-inf")
        self._since_poll = ElapsedTime()
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
            # `close` closes these in the same order.
            self._begun = begun.pop_all()

    @property
    def consumer(self) -> RackAwareConsumer:
        """The consumer of the topics; do not poll it."""
        return self._consumer

    def active_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that this member processes, with their state restored."""
        return frozenset(tp for tp, owner in self._owners.items() if owner.ready)

    def standby_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions of this member's standbys."""
        return self._assignor.standbys - set(self._owners)

    def store(self, tp: TopicPartition) -> StateStore:
        """Return the local state of a partition, active or standby.

        Raises:
            StoreError: The partition has no local state.
        """
        file = self._shelf.find(tp)
        if file is None:
            raise StoreError(f"{tp.topic}-{tp.partition} has no local state")
        return StateStore(file)

    def poll(self, timeout_ms: int = 500) -> int:
        """Read and process records, and update standbys; return the number of processed records.

        Args:
            timeout_ms: How long to wait for records.

        Raises:
            Exception: Any error of `process`; the changes of that record are discarded, and it is processed again.
            StateLostError: A changelog was deleted or truncated while its partition was active.
        """
        try:
            return self._polled(timeout_ms)
        except Exception:
            raise
        except BaseException:
            # If interrupted anywhere, in kafka-python too, records are read again with the state of the files.
            for tp in list(self._owners):
                self._release(tp)
            raise

    def _polled(self, timeout_ms: int) -> int:
        self._reset_after_long_pause()
        restoring = any(not owner.ready for owner in self._owners.values())
        polled = self._consumer.poll(timeout_ms=0 if restoring else timeout_ms)
        todo = {TopicPartition(*client_tp): batch for client_tp, batch in polled.items()}
        done, ends = 0, dict[TopicPartition, int]()
        try:
            # By now it is known whether this is still a member of the group. Only then are other owners fenced.
            self._apply_assignment()
            reading = {tp for tp, owner in self._owners.items() if owner.reads}
            self._follow()
            self._take(self._logs.read(_RESTORING_MS if restoring else 0))
            self._advance()
            for tp, batch in list(todo.items()):
                # A new partition gets its state first, which determines the offset where to begin.
                owner = self._owners.get(tp)
                if owner is not None and tp in reading and owner.store.failure is None:
                    count, failure = self._processed(tp, owner, batch, ends)
                    done += count
                    if failure is not None:
                        raise failure
                    if tp in self._owners:
                        del todo[tp]
        finally:
            for tp, batch in todo.items():
                # After any error, records that were not reached, or not completed, are read again.
                self._stop_reading(tp)
                if KafkaPythonPartition(*tp) in self._consumer.assignment():
                    # If there is no state yet, this offset is stored nowhere else.
                    self._consumer.seek(KafkaPythonPartition(*tp), batch[0].offset)
            self._commit(ends)
            self._publish()
        return done

    def _reset_after_long_pause(self) -> None:
        """Discard the state after a pause so long that compaction may have removed deletions since."""
        if self._since_poll.seconds() > LONGEST_LEFT_S:
            for tp in list(self._owners):
                self._release(tp)
            self._shelf.expire()
        self._since_poll.restart()

    def _stop_reading(self, tp: TopicPartition) -> None:
        """Pause a partition; an active one continues later behind the records in its state."""
        if tp in self._owners:
            self._owners[tp].reads = False
        client_tp = KafkaPythonPartition(*tp)
        if client_tp in self._consumer.assignment():
            self._consumer.pause(client_tp)

    def close(self) -> None:
        """Leave the group and close everything; the files remain, so that the next start need not restore them."""
        self._begun.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _apply_assignment(self) -> None:
        """Add assigned partitions, and release revoked ones."""
        assigned = {TopicPartition(*client_tp) for client_tp in self._consumer.assignment()}
        for tp in set(self._owners) - assigned:
            self._owners.pop(tp).store.discard_uncommitted()
        for tp, owner in list(self._owners.items()):
            if owner.store.failure is not None:
                self._store_failed(tp, owner.store.failure)
        if self._assignor.generation != self._generation:
            self._generation = self._assignor.generation
            self._fenced.clear()
            for tp in self._owners:
                # The partition may have been lost and reassigned within one poll: it is then read from another offset.
                self._stop_reading(tp)
        for tp in sorted(assigned - set(self._owners) - self._fenced):
            if tp.partition >= self._logs.sizes[tp.topic]:
                raise ConfigError(
                    f"{tp.topic} has partition {tp.partition}, but its changelog has only "
                    f"{self._logs.sizes[tp.topic]} partitions: partitions cannot be added to a topic with state"
                )
            self._stop_reading(tp)
            store = self._shelf.available(tp)
            if store is not None:
                self._owners[tp] = ActivePartition(tp, store, self._logs, self._generation)

    def _follow(self) -> None:
        """Read the changelogs of standbys and restoring partitions; delete files no longer needed."""
        wanted = self.standby_partitions() | {tp for tp, owner in self._owners.items() if not owner.ready}
        found = {tp: self._shelf.available(tp) for tp in wanted}
        self._logs.assign({tp: store.position for tp, store in found.items() if store is not None})
        now = time.monotonic()
        for tp in self._shelf.tps() - wanted - set(self._owners):
            if now - self._unwanted.setdefault(tp, now) > _KEEP_S:
                self._shelf.delete(tp)
        self._unwanted = {p: since for p, since in self._unwanted.items() if p not in wanted and p not in self._owners}

    def _take(self, found: Mapping[TopicPartition, ChangelogBatch]) -> None:
        for tp, read in found.items():
            store = self._shelf.available(tp)
            if store is None:
                continue
            try:
                if read.start < store.position:
                    # Reading began at the position, so the changelog was recreated: the state belongs to the old one.
                    log.warning("%s-%d: its changelog was recreated: discarding and rebuilding the local state", *tp)
                    store.clear()
                else:
                    store.apply(read.changes, read.end)
            except StoreError as error:
                self._store_failed(tp, error)

    def _advance(self) -> None:
        """Continue restores, and check whether another member writes to the changelogs of active partitions."""
        for tp, owner in list(self._owners.items()):
            if owner.reads or not (owner.ready or self._guarded(tp, owner.continue_restore)):
                continue
            restored = owner.first is not None
            if owner.ready:
                self._begin(tp, owner)
            if self._on_restore is not None and not restored:
                self._on_restore(tp, *owner.progress())
        if time.monotonic() - self._looked >= _ENDS_S:
            self._looked = time.monotonic()
            self._check_changelogs()

    def _check_changelogs(self) -> None:
        """Read the ends of changelogs; rewrite keys that another member has written in active ones."""
        try:
            bounds = self._logs.offset_range(self._logs.tps())
        except KafkaUnavailableError as error:
            log.warning("%s", error)
            return
        self._known = _Known(self._known.positions, {tp: end for tp, (_, end) in bounds.items()})
        self._shelf.confirm(self._known.ends)
        for tp, owner in list(self._owners.items()):
            if owner.ready and bounds[tp][1] != owner.store.position:
                self._guarded(tp, owner.reconcile)

    def _begin(self, tp: TopicPartition, owner: ActivePartition) -> None:
        """Read the input from where the state ends, now or, if Kafka does not respond, with the next poll."""
        client_tp, start = KafkaPythonPartition(*tp), owner.store.replay.source + 1
        if owner.first is None:
            try:
                owner.first = self._where_to_begin(tp, start)
            except KafkaError as error:
                self._once.warn("begin", "%s-%d: cannot determine where to begin: %s", *tp, error, about=tp)
                return
        start = max(start, owner.first)
        if start:
            self._consumer.seek(client_tp, start)
        elif self._from_the_start:
            self._consumer.seek_to_beginning(client_tp)
        self._consumer.resume(client_tp)
        owner.reads = True

    def _where_to_begin(self, tp: TopicPartition, start: int) -> int:
        """Return the offset where the input continues, and log a warning if records are missing or repeated.

        Args:
            tp: The partition.
            start: Offset where its state ends; 0 without state.

        Raises:
            KafkaError: Kafka does not report the beginning of the input or the committed offset.
        """
        client_tp = KafkaPythonPartition(*tp)
        committed: int = self._consumer.committed(client_tp) or 0
        begins: int = self._consumer.beginning_offsets([client_tp])[client_tp]
        if committed > start:
            log.warning(
                "%s-%d: offset %d is committed, but its changelog has records up to %d only: %s",
                *(*tp, committed, start),
                "they are processed again"
                if start or self._from_the_start
                else "its state is empty (auto_offset_reset)",
            )
        if 0 < start < begins:
            log.warning("%s-%d: records %d to %d no longer exist", *tp, start, begins - 1)
            return begins
        return start

    def _processed(
        self, tp: TopicPartition, owner: ActivePartition, batch: Sequence[Any], ends: dict[TopicPartition, int]
    ) -> tuple[int, Exception | None]:
        """Process records, write their changes, and store up to which offset all are done.

        Returns:
            Number of processed records, and the error of `process`, from which on they are processed again.
        """
        changed: list[tuple[int, dict[bytes, bytes | None]]] = []
        failure: Exception | None = None
        for record in batch:
            if record.offset <= owner.store.replay.source:
                # The state already has the effects of this record, wherever it comes from.
                self._once.warn(
                    "restarted",
                    "%s-%d: its input restarts at %d, but its state has records up to %d: skipping records up to there;"
                    " if the topic was recreated, delete its changelog as well",
                    *(*tp, record.offset, owner.store.replay.source),
                    about=tp,
                )
                continue
            owner.store.begin()
            try:
                self._process(record, StateStore(owner.store))
            except Exception as error:  # noqa: BLE001 - the user's error; earlier records are kept
                owner.store.rollback_record()
                failure = error
            if owner.store.failure is not None:
                # Whatever `process` has made of it: what it has read may be wrong.
                self._store_failed(tp, owner.store.failure)
                return 0, None
            if failure is not None:
                break
            changed.append((record.offset, owner.store.commit_record()))
        if changed:
            if not self._guarded(tp, lambda: owner.write(changed)):
                return 0, None
            ends[tp] = changed[-1][0] + 1
        return len(changed), failure

    def _guarded(self, tp: TopicPartition, act: Callable[[], None]) -> bool:
        """Act as the owner of a partition; return whether that succeeded. If not, the state is restored again."""
        try:
            act()
        except FencedError:
            log.info("%s-%d: another member owns it, or has owned it", *tp)
            # Either another member owned it between two generations of this member, or this member is out of the group
            # and has not noticed yet: then its next generation may have the partition.
            if self._owners[tp].generation == self._generation:
                self._fenced.add(tp)
                self._assignor.request_rejoin()
        except KafkaUnavailableError as error:
            self._once.warn(
                "again", "%s-%d: changes cannot be stored, records are processed again: %s", *tp, error, about=tp
            )
        except StoreError as error:
            self._shelf.failed(tp, error)
        except BaseException:
            # It is unknown what the changelog has of it: the state is restored again.
            self._release(tp)
            raise
        else:
            return True
        self._release(tp)
        return False

    def _release(self, tp: TopicPartition) -> None:
        """Discard what is not in the file; the next owner, maybe this member, restores the state."""
        self._owners.pop(tp).store.discard_uncommitted()
        self._stop_reading(tp)

    def _store_failed(self, tp: TopicPartition, error: StoreError) -> None:
        """Restore a partition once its local file can be used again."""
        if tp in self._owners:
            self._release(tp)
        self._shelf.failed(tp, error)

    def _commit(self, ends: Mapping[TopicPartition, int]) -> None:
        if not ends:
            return
        try:
            self._consumer.commit({KafkaPythonPartition(*p): OffsetAndMetadata(end, "", -1) for p, end in ends.items()})
        except KafkaError as error:
            # The changelogs have these offsets, and the next owners use them.
            log.info("offsets of %d partitions cannot be committed: %s", len(ends), error)

    def _publish(self) -> None:
        positions = {tp: at for tp, at in self._shelf.positions().items() if tp not in self._owners}
        self._known = _Known(positions, self._known.ends)
