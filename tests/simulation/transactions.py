"""Transactions of simulated brokers: their coordinators, states of producers in logs, markers, and pending offsets.

As in Kafka 4 for clients that use the protocol of before KIP-890 (`TransactionCoordinator`, `ProducerAppendInfo`), with
the check of each transactional append at the coordinator. `integration/clients/test_simulation.py` compares answers.

Left out: IDs of producers that expire, epochs that are exhausted, and `LogAppendTime`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kafka.protocol.producer import AddPartitionsToTxnResponse
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from tests.simulation.cluster import FENCED_AFTER_S, Partition, Reply, SimulatedCluster
from tests.simulation.group import NOT_COORDINATOR, Committed, Group
from tests.simulation.world import EPOCH_S, Broker, World

NOT_ENOUGH_REPLICAS = 19
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
OUT_OF_ORDER_SEQUENCE = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90

LONGEST_TIMEOUT_MS = 900_000
"""`transaction.max.timeout.ms`."""

_TIMED_OUT_LOOK_S = 10.0
"""`transaction.abort.timed.out.transaction.cleanup.interval.ms`."""

_LEARNS_S = 2.0
"""Seconds until a broker that has stood still knows who leads."""

_REPLAYED = 5
"""Batches of a producer that a log remembers."""

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT = "Empty", "Ongoing", "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"

_PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

_TRANSACTION, _TRANSACTIONAL, _CONTROL = 1, 0x10, 0x20

Key = tuple[str, int]


class Header(NamedTuple):
    """What a batch of a producer says about itself."""

    attributes: int
    last: int
    producer_id: int
    epoch: int
    sequence: int

    @classmethod
    def of(cls, data: bytes) -> Header:
        attributes, last = struct.unpack_from(">hi", data, 21)
        return cls(attributes, last, *struct.unpack_from(">qhi", data, 43))


class Kept(NamedTuple):
    """A batch that a log remembers, by its sequence numbers."""

    first: int
    last: int
    base: int


@dataclass
class Producer:
    """A producer as a log knows it."""

    epoch: int
    batches: deque[Kept] = field(default_factory=lambda: deque(maxlen=_REPLAYED))
    # Where its open transaction begins.
    open_at: int | None = None


class Aborted(NamedTuple):
    """An aborted transaction in a log."""

    producer_id: int
    first: int
    marker: int


@dataclass
class Log:
    """What a log knows of producers and of their transactions."""

    producers: dict[int, Producer] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)

    def stable(self, end: int) -> int:
        return min((each.open_at for each in self.producers.values() if each.open_at is not None), default=end)

    def check(self, header: Header) -> tuple[int, int | None]:
        """Return the error of an append, and the offset of a batch that is there already."""
        known = self.producers.get(header.producer_id)
        if known is None:
            return 0, None
        if header.epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH, None
        if header.epoch > known.epoch:
            return (OUT_OF_ORDER_SEQUENCE if header.sequence else 0), None
        for kept in known.batches:
            if (kept.first, kept.last) == (header.sequence, header.sequence + header.last):
                return 0, kept.base
        # Behind a marker alone, whose epoch is new, a sequence begins with 0.
        expected = known.batches[-1].last + 1 if known.batches else 0
        return (0 if header.sequence == expected else OUT_OF_ORDER_SEQUENCE), None

    def appended(self, header: Header, base: int) -> None:
        known = self.producers.setdefault(header.producer_id, Producer(header.epoch))
        if known.epoch != header.epoch:
            known.epoch = header.epoch
            known.batches.clear()
        known.batches.append(Kept(header.sequence, header.sequence + header.last, base))
        if header.attributes & _TRANSACTIONAL and known.open_at is None:
            known.open_at = base

    def marked(self, producer_id: int, epoch: int, offset: int, *, commit: bool) -> None:
        known = self.producers.setdefault(producer_id, Producer(epoch))
        if known.open_at is not None and not commit:
            self.aborted.append(Aborted(producer_id, known.open_at, offset))
        known.open_at = None
        if known.epoch != epoch:
            known.epoch = epoch
            known.batches.clear()


@dataclass
class Transaction:
    """A transactional ID as its coordinator has written it: another coordinator finds it so."""

    id: str
    broker: Broker
    producer_id: int
    epoch: int
    timeout_s: float
    state: str = EMPTY
    partitions: set[Key] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    began: float = 0.0
    # Partitions and groups that have no marker yet.
    unmarked: list[Key | str] = field(default_factory=list)

    def move(self, broker: Broker) -> None:
        self.broker = broker


class Stale(NamedTuple):
    """What a broker that stands still knows of a partition that it leads."""

    epoch: int
    end: int
    stable: int


class TransactionalCluster(SimulatedCluster):
    """Brokers with transactions, and with what an admin client needs to create topics."""

    def __init__(
        self, world: World, racks: Iterable[str | None], watcher: Any, topics: Mapping[str, int], replication: int = 2
    ) -> None:
        self.logs: dict[Key, Log] = {}
        self.transactions: dict[str, Transaction] = {}
        # Offsets of open transactions: by group and producer, with the member that has sent them.
        self.pending: dict[str, dict[int, dict[Key, tuple[Committed, str]]]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self._stale: dict[tuple[int, str, int], Stale] = {}
        self._rng = world.rng("transactions")
        self._next_id = 0
        super().__init__(world, racks, watcher, topics, replication)
        world.later(_TIMED_OUT_LOOK_S, "transaction timeouts", self._look_for_timeouts)

    def log(self, partition: Partition) -> Log:
        return self.logs.setdefault((partition.topic, partition.index), Log())

    # What happens to brokers.

    def freeze(self, node: int, seconds: float) -> None:
        """Let a broker stand still; once it goes on, it does not know at once that it leads no more.

        Until then it answers with the ends and the records of before. It refuses writes, which a real one does later.
        """
        broker = self.brokers[node]
        if broker.dead or broker.paused_until > self.world.now:
            return
        for partition in (each for partitions in self.topics.values() for each in partitions if each.leader == node):
            stale = Stale(partition.epoch, partition.end, self.log(partition).stable(partition.end))
            self._stale[node, partition.topic, partition.index] = stale
        broker.pause(seconds)
        incarnation = broker.incarnation
        self.world.later(FENCED_AFTER_S, "fence", lambda: self._fence_frozen(broker, incarnation))
        self.world.later(seconds + _LEARNS_S, "returned", lambda: self._returned(broker, incarnation), broker)

    def _fence_frozen(self, broker: Broker, incarnation: int) -> None:
        others = [each for each in self.brokers.values() if each is not broker and not each.dead]
        if broker.paused_until > self.world.now and broker.incarnation == incarnation and others:
            broker.fenced = True
            self._settle_leaders()
            coordinated: list[Group | Transaction] = [*self.groups.values(), *self.transactions.values()]
            for each in coordinated:
                if each.broker is broker:
                    each.move(others[0])

    def _stale_of(self, partition: Partition | None, broker: Broker, epoch: int) -> Stale | None:
        if partition is None or partition.leader == broker.node:
            return None
        stale = self._stale.get((broker.node, partition.topic, partition.index))
        return stale if stale is not None and epoch <= stale.epoch else None

    def _returned(self, broker: Broker, incarnation: int) -> None:
        self._stale = {key: stale for key, stale in self._stale.items() if key[0] != broker.node}
        if not broker.dead and broker.incarnation == incarnation:
            broker.fenced = False
            self._settle_leaders()

    # Coordinators.

    def _coordinator_of(self, kind: int, key: str) -> Broker:
        return self._transaction(key).broker if kind == _TRANSACTION else super()._coordinator_of(kind, key)

    def _transaction(self, name: str) -> Transaction:
        if name not in self.transactions:
            living = [each for each in self.brokers.values() if not each.dead]
            self.transactions[name] = Transaction(name, living[(len(name) + 1) % len(living)], -1, -1, 0.0)
        return self.transactions[name]

    def _fence(self, broker: Broker, incarnation: int) -> None:
        super()._fence(broker, incarnation)
        if broker.fenced:
            for each in self.transactions.values():
                if each.broker is broker:
                    each.move(next(other for other in self.brokers.values() if not other.dead))

    def move_transactions(self, node: int) -> None:
        """Let a broker coordinate all transactions."""
        if not self.brokers[node].dead:
            for each in self.transactions.values():
                each.move(self.brokers[node])

    def _on_InitProducerId(self, link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        def answer(error: int, producer_id: int = -1, epoch: int = -1) -> None:
            reply(new(error_code=error, producer_id=producer_id, producer_epoch=epoch))

        if request.transactional_id is None:
            self._next_id += 1
            answer(0, self._next_id, 0)
            return
        known = self._transaction(request.transactional_id)
        if known.broker is not link.broker:
            answer(NOT_COORDINATOR)
        elif not 0 < request.transaction_timeout_ms <= LONGEST_TIMEOUT_MS:
            answer(INVALID_TRANSACTION_TIMEOUT)
        elif known.producer_id < 0:
            self._next_id += 1
            known.producer_id, known.epoch = self._next_id, 0
            known.timeout_s = request.transaction_timeout_ms / 1000
            answer(0, known.producer_id, 0)
        elif request.producer_id >= 0 and (request.producer_id, request.producer_epoch) != (
            *(known.producer_id, known.epoch),
        ):
            answer(PRODUCER_FENCED)
        elif known.state == ONGOING:
            # This epoch is nobody's: it keeps out what the former producer still sends.
            known.epoch += 1
            self._end(known, commit=False)
            answer(CONCURRENT_TRANSACTIONS)
        elif known.state in _PREPARED:
            answer(CONCURRENT_TRANSACTIONS)
        else:
            known.epoch += 1
            known.state = EMPTY
            known.timeout_s = request.transaction_timeout_ms / 1000
            answer(0, known.producer_id, known.epoch)

    def _error_of(self, name: str, producer_id: int, epoch: int, broker: Broker) -> int:
        known = self._transaction(name)
        if known.broker is not broker:
            return NOT_COORDINATOR
        if known.producer_id != producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if known.epoch != epoch:
            return PRODUCER_FENCED
        return CONCURRENT_TRANSACTIONS if known.state in _PREPARED else 0

    def _begin(self, known: Transaction) -> None:
        if known.state != ONGOING:
            known.state, known.began = ONGOING, self.world.now

    def _on_AddPartitionsToTxn(self, link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        name, topics = request.v3_and_below_transactional_id, request.v3_and_below_topics
        identity = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        missing = {(t.name, i) for t in topics for i in t.partitions if self._partition(t.name, i) is None}
        error = self._error_of(name, *identity, link.broker)

        def code(key: Key) -> int:
            # Of several, those that exist are not attempted (`OPERATION_NOT_ATTEMPTED`).
            return (3 if key in missing else 55) if missing else error

        if not error and not missing:
            known = self._transaction(name)
            self._begin(known)
            known.partitions |= {(t.name, i) for t in topics for i in t.partitions}
        # Not `new`'s: there are others of these names, of version 4.
        result = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
        each = partial(result.AddPartitionsToTxnPartitionResult, version=new.version)
        rows = [result(t.name, [each(i, code((t.name, i))) for i in t.partitions], version=new.version) for t in topics]
        reply(new(results_by_topic_v3_and_below=rows))

    def _on_AddOffsetsToTxn(self, link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        identity = request.producer_id, request.producer_epoch
        error = self._error_of(request.transactional_id, *identity, link.broker)
        if not error:
            known = self._transaction(request.transactional_id)
            self._begin(known)
            known.groups.add(request.group_id)
        reply(new(error_code=error))

    def _on_EndTxn(self, link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        known, commit = self._transaction(request.transactional_id), request.committed
        error = self._error_of(known.id, request.producer_id, request.producer_epoch, link.broker)
        if error in {0, CONCURRENT_TRANSACTIONS} and known.state != ONGOING:
            # A repeated request is answered as the first one was.
            ended = known.state in ({PREPARE_COMMIT, COMPLETE_COMMIT} if commit else {PREPARE_ABORT, COMPLETE_ABORT})
            error = error if ended else INVALID_TXN_STATE
        elif not error:
            self._end(known, commit=commit)
        reply(new(error_code=error))

    def _end(self, known: Transaction, *, commit: bool) -> None:
        known.state = PREPARE_COMMIT if commit else PREPARE_ABORT
        self.world.note("transaction", f"{known.id} {known.state}")
        known.unmarked = [*sorted(known.partitions), *sorted(known.groups)]
        for each in known.unmarked:
            self.world.later(self._pause(), "marker", partial(self._mark, known, each))

    def _pause(self) -> float:
        return self.latency(self._rng)

    def _mark(self, known: Transaction, where: Key | str) -> None:
        """Write a marker, once the coordinator and the leader live."""
        target: Broker | None
        if isinstance(where, str):
            target = self._group(where).broker
        else:
            partition = self._partition(*where)
            assert partition is not None
            target = self.brokers.get(partition.leader)
        if any(each is None or each.dead or each.paused_until > self.world.now for each in (target, known.broker)):
            self.world.later(0.1, "marker", partial(self._mark, known, where))
            return
        commit = known.state == PREPARE_COMMIT
        if isinstance(where, str):
            offsets = self.pending.get(where, {}).pop(known.producer_id, {})
            for key, (offset, member_id) in offsets.items() if commit else ():
                self._group(where).commit(key, offset, member_id)
        else:
            assert partition is not None
            self.log(partition).marked(known.producer_id, known.epoch, partition.end, commit=commit)
            partition.append(self._marker(known, commit=commit))
        known.unmarked.remove(where)
        if not known.unmarked:
            known.state = COMPLETE_COMMIT if commit else COMPLETE_ABORT
            known.partitions.clear()
            known.groups.clear()

    def _marker(self, known: Transaction, *, commit: bool) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=True,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
            base_sequence=-1,
            batch_size=1 << 10,
        )
        key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
        builder.append(0, int((EPOCH_S + self.world.now) * 1000), key, value, [])
        data = bytearray(builder.build())
        struct.pack_into(">h", data, 21, struct.unpack_from(">h", data, 21)[0] | _CONTROL)
        struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
        return bytes(data)

    def _look_for_timeouts(self) -> None:
        for known in self.transactions.values():
            over = self.world.now > known.began + known.timeout_s
            if known.state == ONGOING and over and not known.broker.dead:
                known.epoch += 1
                self._end(known, commit=False)
        self.world.later(_TIMED_OUT_LOOK_S, "transaction timeouts", self._look_for_timeouts)

    # Offsets.

    def _on_TxnOffsetCommit(self, link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        group = self._coordinated(link, request.group_id)
        error = NOT_COORDINATOR if group is None else self._offsets_error(group, request)
        offsets = {
            (t.name, each.partition_index): (
                Committed(each.committed_offset, each.committed_leader_epoch, each.committed_metadata),
                request.member_id,
            )
            for t in request.topics
            for each in t.partitions
        }
        if not error:
            self.pending.setdefault(request.group_id, {}).setdefault(request.producer_id, {}).update(offsets)
        topics = [
            new.TxnOffsetCommitResponseTopic(
                t.name, [new.TxnOffsetCommitResponsePartition(each.partition_index, error) for each in t.partitions]
            )
            for t in request.topics
        ]
        reply(new(topics=topics))

    def _offsets_error(self, group: Group, request: Any) -> int:
        known = self._transaction(request.transactional_id)
        error = self._error_of(known.id, request.producer_id, request.producer_epoch, known.broker)
        if error or known.state != ONGOING or group.name not in known.groups:
            return _as_verified(error)
        return group.transaction_error(request.member_id, request.group_instance_id, request.generation_id)

    def _offset_error(self, group: str, partition: Key, *, stable: bool) -> int:
        waits = stable and any(partition in offsets for offsets in self.pending.get(group, {}).values())
        return UNSTABLE_OFFSET_COMMIT if waits else 0

    # Logs.

    def _on_Produce(self, link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        def answer(topic: str, asked: Any) -> Any:
            partition = self._partition(topic, asked.index)
            error, base, start = self._leader_error(partition, link.broker, -1), -1, -1
            if partition is not None and not error:
                error, base, start = self._appended(partition, request.transactional_id, bytes(asked.records))
            why = "Partition was not added to the transaction" if error == INVALID_TXN_STATE else None
            return new.PartitionProduceResponse(
                index=asked.index,
                error_code=error,
                base_offset=base,
                log_append_time_ms=-1,
                log_start_offset=start,
                error_message=why,
            )

        topics = [
            new.TopicProduceResponse(name=t.name, partition_responses=[answer(t.name, p) for p in t.partition_data])
            for t in request.topic_data
        ]
        reply(new(responses=topics))

    def _appended(self, partition: Partition, transactional_id: str | None, data: bytes) -> tuple[int, int, int]:
        """Return the error, the offset of the batch, and where the log begins, which an error of its own names, too."""
        header, log = Header.of(data), self.log(partition)
        if header.producer_id < 0:
            return 0, partition.append(data), 0
        if header.attributes & _TRANSACTIONAL and transactional_id is not None:
            known = log.producers.get(header.producer_id)
            if known is None or known.open_at is None:
                error = self._verified(transactional_id, header, (partition.topic, partition.index))
                if error:
                    return error, -1, -1
        error, there = log.check(header)
        if error or there is not None:
            return error, -1 if there is None else there, 0
        # Those who wait for records read at once what is stable by then.
        log.appended(header, partition.end)
        return 0, partition.append(data), 0

    def _verified(self, name: str, header: Header, key: Key) -> int:
        """Ask the coordinator whether a partition is in a transaction."""
        known = self._transaction(name)
        if known.broker.dead or known.broker.paused_until > self.world.now:
            return NOT_ENOUGH_REPLICAS
        error = self._error_of(name, header.producer_id, header.epoch, known.broker)
        if error == CONCURRENT_TRANSACTIONS:
            return NOT_ENOUGH_REPLICAS
        if error:
            return _as_verified(error)
        return 0 if known.state == ONGOING and key in known.partitions else INVALID_TXN_STATE

    def _listed(self, partition: Partition | None, broker: Broker, epoch: int, isolation: int) -> tuple[int, int, int]:
        stale = self._stale_of(partition, broker, epoch)
        if stale is not None:
            return 0, stale.stable if isolation else stale.end, stale.epoch
        error, end, now = super()._listed(partition, broker, epoch, isolation)
        if partition is not None and not error and isolation:
            end = self.log(partition).stable(end)
        return error, end, now

    def _fetched(self, partition: Partition | None, broker: Broker, epoch: int) -> tuple[int, int, int]:
        stale = self._stale_of(partition, broker, epoch)
        if stale is not None:
            return 0, stale.end, stale.stable
        error, end, stable = super()._fetched(partition, broker, epoch)
        return error, end, stable if partition is None or error else self.log(partition).stable(end)

    def _read(self, partition: Partition, asked: Any, up_to: int, aborted: Callable[..., Any] | None) -> Any:
        records, _ = super()._read(partition, asked, up_to, None)
        if aborted is None:
            return records, None
        found = self.log(partition).aborted
        return records, [
            aborted(*each[:2]) for each in found if each.marker >= asked.fetch_offset and each.first < up_to
        ]

    # Topics.

    def _on_CreateTopics(self, _link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        results = []
        living = [each for each in self.brokers.values() if not each.fenced]
        for asked in request.topics:
            error = TOPIC_ALREADY_EXISTS if asked.name in self.topics else 0
            if asked.replication_factor > len(living):
                error = error or INVALID_REPLICATION_FACTOR
            if not error and not request.validate_only:
                self.topics[asked.name] = []
                self.add_partitions(asked.name, asked.num_partitions, asked.replication_factor)
                self.configs[asked.name] = {each.name: each.value for each in asked.configs}
            topic_id = UUID(int=0 if error or request.validate_only else list(self.topics).index(asked.name) + 1)
            results.append(
                new.CreatableTopicResult(
                    name=asked.name,
                    topic_id=topic_id,
                    error_code=error,
                    num_partitions=asked.num_partitions,
                    replication_factor=asked.replication_factor,
                    configs=[],
                )
            )
        reply(new(topics=results))

    def _on_CreatePartitions(self, _link: Any, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        results = []
        for asked in request.topics:
            error = INVALID_PARTITIONS if asked.count <= len(self.topics[asked.name]) else 0
            if not error:
                self.add_partitions(asked.name, asked.count, len(self.topics[asked.name][0].replicas))
            results.append(new.CreatePartitionsTopicResult(asked.name, error, None))
        reply(new(results=results))

    def _known_configs(self, _link: Any) -> Mapping[str, Mapping[str, str]]:
        return {name: _DEFAULTS | self.configs.get(name, {}) for name in self.topics}


_DEFAULTS = {
    "cleanup.policy": "delete",
    "unclean.leader.election.enable": "false",
    "max.message.bytes": "1048588",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
}


def _as_verified(error: int) -> int:
    """Return the error by which a broker tells a client of before KIP-890 that the coordinator has refused."""
    if error == PRODUCER_FENCED:
        return INVALID_PRODUCER_EPOCH
    return error or INVALID_TXN_STATE
