"""`StatefulConsumer`: it processes records with state that other members can take over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import KafkaError, KafkaTimeoutError

from rackassign.clients.kafka_python import RackAwareConsumer, StandbyAwareAssignor
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful.active_partition import ActivePartition, FencedError
from rackassign.stateful.batches import process_batch
from rackassign.stateful.changelog import ChangelogBatch, ChangelogClient
from rackassign.stateful.claims import continued
from rackassign.stateful.client_settings import client_settings
from rackassign.stateful.clock import LONGEST_LEFT_S, ElapsedTime
from rackassign.stateful.input_start import where_to_begin
from rackassign.stateful.membership_check import MembershipCheck
from rackassign.stateful.offset_commits import OffsetCommits
from rackassign.stateful.process_call import Process
from rackassign.stateful.sqlite_file import StoreError
from rackassign.stateful.state_directory import StateDirectory
from rackassign.stateful.state_file import StateFile
from rackassign.stateful.state_store import StateStore
from rackassign.stateful.validation import OnRestore, check
from rackassign.strategies.standby import StandbyOptions
from rackassign.util.log_once import WarnOnce

if TYPE_CHECKING:
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
        process: Processes a record before it returns; it is no coroutine or generator function.
        state_dir: Directory of local files, for this member only. Existing files are reused.
        client_tags: Location of this member, for the distribution of standbys (`zone`, `cluster`, ..).
        standbys: How standbys are placed.
        on_restore: Called with the progress of a restore.
        changelog: Return the changelog's name for a topic; `{group}-{topic}-changelog` by default. Missing ones are
            created.
        client_rack: As for `RackAwareConsumer`.
        **config: As for `RackAwareConsumer`; `bootstrap_servers` and `group_id` are required. Settings of connections
            apply to the clients of the changelog as well.

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
        client_settings(config)
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
        # Partitions whose errors of `process` were raised, in this order: the last one comes after the others.
        self._raised: dict[TopicPartition, int] = {}
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
            self._commits = OffsetCommits(self._consumer)
            begun.callback(self._commits.close)
            self._check = MembershipCheck(self._consumer, self._once)
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
            Exception: Any error of `process`; the changes of that record are discarded, and it is processed again with
                one of the next polls. The other partitions continue.
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
            self._apply_assignment()
            reading = {tp for tp, owner in self._owners.items() if owner.reads}
            self._follow()
            self._take(self._logs.read(_RESTORING_MS if restoring else 0))
            if self._present():
                self._advance()
                done = self._process_all(todo, reading, ends)
        finally:
            for tp, batch in todo.items():
                # After any error, records that were not reached, or not completed, are read again.
                self._stop_reading(tp)
                if KafkaPythonPartition(*tp) in self._consumer.assignment():
                    # If there is no state yet, this offset is stored nowhere else.
                    self._consumer.seek(KafkaPythonPartition(*tp), batch[0].offset)
            self._commits.send(ends)
            self._publish()
        return done

    def _present(self) -> bool:
        return self._check.present(self._generation)

    def _process_all(
        self,
        todo: dict[TopicPartition, Sequence[Any]],
        reading: AbstractSet[TopicPartition],
        ends: dict[TopicPartition, int],
    ) -> int:
        """Process records, and remove the partitions that are done; return the number of processed records."""
        done = 0
        failures: list[tuple[TopicPartition, Exception]] = []
        for tp in sorted(todo, key=lambda tp: self._raised.get(tp, 0)):
            # A new partition gets its state first, which determines the offset where to begin.
            owner, batch = self._owners.get(tp), todo[tp]
            if owner is None or tp not in reading:
                continue
            count, failure = self._processed(tp, owner, batch, ends)
            done += count
            if batch[-1].offset <= owner.store.replay.source:
                del todo[tp]
            if failure is not None:
                failures.append((tp, failure))
            if self._check.doubted:
                # Each of the other partitions would wait for another request.
                break
        for tp, other in failures[1:]:
            log.warning("%s-%d: process raised here as well; the record is processed again", *tp, exc_info=other)
        if failures:
            tp, first = failures[0]
            self._raised[tp] = max(self._raised.values(), default=0) + 1
            raise first
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

    def __exit__(self, *_: object) -> None:
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
            consecutive = self._assignor.generation == self._generation + 1
            self._generation = self._assignor.generation
            self._fenced.clear()
            for tp in list(self._owners):
                if consecutive:
                    # If it was lost and reassigned within one poll, the client has another offset.
                    self._stop_reading(tp)
                else:
                    # Another member may have owned it in a generation that this one has not seen.
                    self._release(tp)
        self._grow(assigned | self._assignor.standbys)
        for tp in sorted(assigned - set(self._owners) - self._fenced):
            self._stop_reading(tp)
            store = self._shelf.available(tp) if tp.partition < self._logs.sizes[tp.topic] else None
            if store is not None:
                self._owners[tp] = self._taken(tp, store)

    def _grow(self, tps: AbstractSet[TopicPartition]) -> None:
        """Extend changelogs if their topics have new partitions; those are not processed until that succeeds."""
        if all(tp.partition < self._logs.sizes[tp.topic] for tp in tps):
            return
        try:
            self._logs.grow()
        except (ConfigError, KafkaUnavailableError) as error:
            self._once.warn("grow", "new partitions are not processed yet: %s", error, about=str(error))

    def _taken(self, tp: TopicPartition, store: StateFile) -> ActivePartition:
        generation = self._generation
        claim = self._check.claim(generation)
        return ActivePartition(tp, store, self._logs, claim, lambda: self._check.confirmed(generation))

    def _follow(self) -> None:
        """Read the changelogs of standbys and restoring partitions; delete files no longer needed."""
        kept = {tp for tp in self.standby_partitions() if tp.partition < self._logs.sizes[tp.topic]}
        wanted = kept | {tp for tp, owner in self._owners.items() if not owner.ready}
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
        late = False
        for tp, owner in list(self._owners.items()):
            if owner.reads or not (owner.ready or self._guarded(tp, owner.continue_restore)):
                continue
            restored = owner.first is not None
            if owner.ready and not late:
                late = not self._begin(tp, owner)
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

    def _begin(self, tp: TopicPartition, owner: ActivePartition) -> bool:
        """Read the input from where the state ends, now or, if Kafka does not respond, with the next poll.

        Returns:
            Whether Kafka responded in time.
        """
        client_tp, start = KafkaPythonPartition(*tp), owner.store.replay.source + 1
        if owner.first is None:
            try:
                owner.first = where_to_begin(self._consumer, tp, start, repeated=self._from_the_start)
            except KafkaTimeoutError:
                # During a rebalance the coordinator responds once all members have joined.
                return False
            except KafkaError as error:
                self._once.warn("begin", "%s-%d: cannot determine where to begin: %s", *tp, error, about=tp)
                return True
        start = max(start, owner.first)
        if start:
            self._consumer.seek(client_tp, start)
        elif self._from_the_start:
            self._consumer.seek_to_beginning(client_tp)
        self._consumer.resume(client_tp)
        owner.reads = True
        return True

    def _processed(
        self, tp: TopicPartition, owner: ActivePartition, batch: Sequence[Any], ends: dict[TopicPartition, int]
    ) -> tuple[int, Exception | None]:
        """Process records, write their changes, and store up to which offset all are done.

        Returns:
            Number of processed records, and the error of `process`, from which on they are processed again.
        """
        found = process_batch(tp, owner.store, batch, self._process, present=self._present, once=self._once)
        if isinstance(found, StoreError):
            self._store_failed(tp, found)
            return 0, None
        changed, failure = found
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
            if continued(self._check.claim(self._generation), self._owners[tp].store.replay.claim) is None:
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

    def _publish(self) -> None:
        positions = {tp: at for tp, at in self._shelf.positions().items() if tp not in self._owners}
        self._known = _Known(positions, self._known.ends)
