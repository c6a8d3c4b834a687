"""Brokers that answer the requests of clients: connections, metadata, logs, fetches and offsets, and where a group is.

Requests arrive as bytes and answers leave as bytes. As a broker does, one that is asked reads the next request of a
connection only when the one before is answered: what is behind a join waits for it.

Left out: replication takes no time, so a follower has all that its leader has; no incremental fetch sessions (brokers
refuse them too, if they have no room); no quotas, no transactions, no authorization.
"""

from __future__ import annotations

import random
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any
from uuid import UUID

from kafka.protocol import admin as admin_api
from kafka.protocol import consumer as group_api
from kafka.protocol import metadata as metadata_api
from kafka.protocol import producer as producer_api
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.record.memory_records import MemoryRecordsBuilder

from tests.simulation.group import NOT_COORDINATOR, STABLE, Committed, Group, Joined, Synced
from tests.simulation.world import EPOCH_S, Broker, ClientProcess, Process, World

UNKNOWN_TOPIC = 3
NOT_LEADER = 6
OFFSET_OUT_OF_RANGE = 1
LEADER_NOT_AVAILABLE = 5
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_VERSION = 35

FENCED_AFTER_S = 9.0
"""Seconds until a broker that is gone is no leader any more (`broker.session.timeout.ms`)."""

_BASE_LATENCY_S = 0.001

_NOTHING = Committed(-1, -1, "")

_MODULES = (group_api, metadata_api, producer_api, admin_api)

_REQUESTS: Mapping[int, tuple[Any, Any]] = {
    getattr(module, name).API_KEY: (getattr(module, name), getattr(module, f"{name[:-7]}Response"))
    for module in _MODULES
    for name in dir(module)
    if name.endswith("Request")
    and hasattr(module, f"{name[:-7]}Response")
    and hasattr(getattr(module, name), "API_KEY")
} | {FetchRequest.API_KEY: (FetchRequest, FetchResponse)}

NEWEST = max(BROKER_API_VERSIONS)

Reply = Callable[[Any], None]


class Batch:
    """A batch of records as it is in a log."""

    __slots__ = ("base", "data", "end", "epoch")

    def __init__(self, data: bytes, base: int, epoch: int) -> None:
        # What a broker writes into a batch; its checksum begins behind both.
        self.data = struct.pack(">q", base) + data[8:12] + struct.pack(">i", epoch) + data[16:]
        self.base, self.epoch = base, epoch
        self.end = base + struct.unpack_from(">i", data, 23)[0] + 1


@dataclass
class Partition:
    """A partition: its replicas and its log."""

    topic: str
    index: int
    replicas: list[int]
    leader: int
    epoch: int = 0
    # All that are not fenced, if it is not given.
    isr: list[int] | None = None
    batches: list[Batch] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def append(self, data: bytes) -> int:
        base = self.end
        self.batches.append(Batch(data, base, self.epoch))
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()
        return base

    def read(self, offset: int, limit: int, up_to: int | None = None) -> bytes:
        found: list[bytes] = []
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.batches[middle].end <= offset else (low, middle)
        for batch in self.batches[low:]:
            limit -= len(batch.data)
            if (found and limit < 0) or (up_to is not None and batch.base >= up_to):
                break
            found.append(batch.data)
        return b"".join(found)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the end offset of the largest epoch up to this one, and that epoch."""
        if epoch >= self.epoch:
            return self.end, self.epoch
        later = next((batch.base for batch in self.batches if batch.epoch > epoch), self.end)
        before = [batch.epoch for batch in self.batches if batch.epoch <= epoch]
        return (later, before[-1]) if before else (-1, -1)


class Link:
    """A connection from a client to a broker."""

    def __init__(self, cluster: SimulatedCluster, client: ClientProcess, broker: Broker) -> None:
        self._cluster, self.client, self.broker = cluster, client, broker
        self._incarnation = broker.incarnation
        self.rng = cluster.rng_of_link(client, broker)
        self.socket: Any = None
        self.closed = False
        self._sent = bytearray()
        self._inbox: deque[bytes] = deque()
        self._busy = False
        self._to_broker = self._to_client = 0.0

    @property
    def broken(self) -> bool:
        return self.closed or self.broker.dead or self.broker.incarnation != self._incarnation

    def send(self, data: bytes) -> None:
        self._sent += data
        while len(self._sent) >= 4 and len(self._sent) >= 4 + (size := int.from_bytes(self._sent[:4], "big")):
            frame = bytes(self._sent[4 : 4 + size])
            del self._sent[: 4 + size]
            delay = self._cluster.delay(self, _name(frame), "request")
            self._to_broker = max(self._to_broker, self._cluster.world.now + delay)
            self._cluster.world.at(self._to_broker, "request", partial(self._arrive, frame), self.broker)

    def _arrive(self, frame: bytes) -> None:
        if not self.broken:
            self._inbox.append(frame)
            self._next()

    def _next(self) -> None:
        while self._inbox and not self._busy and not self.broken:
            self._busy = True
            self._cluster.serve(self, self._inbox.popleft())

    def answer(self, name: str, data: bytes) -> None:
        """Send an answer, and read the next request."""
        self._busy = False
        if self.broken:
            return
        delay = self._cluster.delay(self, name, "response")
        self._to_client = max(self._to_client, self._cluster.world.now + delay)
        self._cluster.world.at(self._to_client, "response", lambda: self._receive(name, data), self.client)
        self._cluster.world.later(0.0, "next request", self._next, self.broker)

    def _receive(self, name: str, data: bytes) -> None:
        if not self.closed:
            self._cluster.world.note(f"<{name}", self.client.name)
            self.socket.receive(data)
            self.client.wake_loop()

    def lose(self) -> None:
        """Lose the connection: what is under way is lost, and the client sees its end."""
        if not self.closed:
            self.closed = True
            self._cluster.links.discard_link(self)
            self._cluster.world.later(self._cluster.latency(self.rng), "connection lost", self._end, self.client)

    def _end(self) -> None:
        self.socket.end()
        self.client.wake_loop()

    def close(self) -> None:
        self.closed = True
        self._cluster.links.discard_link(self)


class Links(list[Link]):
    """The connections that there are, in the order in which they were made."""

    def discard_link(self, link: Link) -> None:
        if link in self:
            self.remove(link)


class SimulatedCluster:
    """Brokers, their partitions and their groups."""

    def __init__(
        self, world: World, racks: Iterable[str | None], watcher: Any, topics: Mapping[str, int], replication: int = 2
    ) -> None:
        self.world, self.watcher = world, watcher
        self.brokers = {node: Broker(world, node, rack) for node, rack in enumerate(racks, 1)}
        self.topics: dict[str, list[Partition]] = {}
        self.groups: dict[str, Group] = {}
        self.links = Links()
        # Names of clients whose metadata are malformed, and brokers that metadata do not list.
        self.malformed: set[str] = set()
        self.unlisted: set[int] = set()
        # Returns the key of the record at an offset; without it records have none.
        self.key_of: Callable[[int], bytes] | None = None
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._delays: list[tuple[str, str, str, float]] = []
        for topic, partitions in topics.items():
            self.topics[topic] = []
            self.add_partitions(topic, partitions, replication)

    def add_partitions(self, topic: str, total: int, replication: int = 2) -> None:
        nodes = list(self.brokers)
        for index in range(len(self.topics[topic]), total):
            replicas = [nodes[(index + step) % len(nodes)] for step in range(min(replication, len(nodes)))]
            partition = Partition(topic, index, replicas, replicas[0])
            self.topics[topic].append(partition)
            self._elect(partition)

    def delete_topic(self, topic: str) -> None:
        self.topics[topic] = []

    # The network.

    @property
    def bootstrap_servers(self) -> list[str]:
        return [f"{host}:{port}" for host, port in (each.address for each in self.brokers.values())]

    def latency(self, rng: random.Random) -> float:
        if not self.world.noise:
            return _BASE_LATENCY_S
        # Most are quick, and some are slower than others that follow on another connection.
        drawn = rng.random()
        return _BASE_LATENCY_S * (0.2 + drawn) + (0.03 * rng.random() if drawn > 0.9 else 0.0)

    def rng_of_link(self, client: Process, broker: Broker) -> random.Random:
        """Return a generator for the next connection of this client to this broker."""
        self._numbers[client.name, broker.node] += 1
        return self.world.rng((client.name, broker.node, self._numbers[client.name, broker.node]))

    def delay(self, link: Link, name: str, kind: str) -> float:
        for each in self._delays:
            if each[:3] == (link.client.name, name, kind):
                self._delays.remove(each)
                return each[3]
        return self.latency(link.rng)

    def delay_next(self, client: str, name: str, kind: str, seconds: float) -> None:
        """Delay the next request or response of this name of a client."""
        self._delays.append((client, name, kind, seconds))

    def forget_delays(self) -> None:
        self._delays.clear()

    def connect(self, client: ClientProcess, address: tuple[str, int]) -> Link | None:
        broker = next(each for each in self.brokers.values() if each.address == address)
        if broker.dead:
            return None
        link = Link(self, client, broker)
        self.links.append(link)
        return link

    def serve(self, link: Link, frame: bytes) -> None:
        api_key, version, correlation = struct.unpack_from(">hhi", frame)
        request_class, response_class = _REQUESTS[api_key]
        name = request_class.__name__[:-7]

        def reply(response: Any) -> None:
            response.with_header(correlation)
            link.answer(name, response.encode(header=True, framed=True))

        self.world.note(f">{name}", link.client.name)
        if api_key == metadata_api.ApiVersionsRequest.API_KEY:
            reply(self._api_versions(version))
            return
        request = request_class.decode(frame, version=version, header=True)
        handler = getattr(self, f"_on_{name}")
        handler(link, request, _Answers(response_class, version), reply)

    def _api_versions(self, version: int) -> Any:
        kind = metadata_api.ApiVersionsResponse
        keys = [
            kind.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in BROKER_API_VERSIONS[NEWEST].items()
        ]
        newest = BROKER_API_VERSIONS[NEWEST][kind.API_KEY][1]
        if version > newest:
            return kind(version=0, error_code=UNSUPPORTED_VERSION, api_keys=keys)
        return kind(version=version, error_code=0, api_keys=keys)

    # What happens to brokers and partitions.

    def kill_broker(self, node: int) -> None:
        broker = self.brokers[node]
        if broker.dead or sum(not each.dead for each in self.brokers.values()) == 1:
            return
        broker.dead = True
        broker.incarnation += 1
        for link in [each for each in self.links if each.broker is broker]:
            link.lose()
        incarnation = broker.incarnation
        self.world.later(FENCED_AFTER_S, "fence", lambda: self._fence(broker, incarnation))

    def _fence(self, broker: Broker, incarnation: int) -> None:
        if broker.dead and broker.incarnation == incarnation:
            broker.fenced = True
            self._settle_leaders()
            for group in self.groups.values():
                if group.broker is broker:
                    group.move(next(each for each in self.brokers.values() if not each.dead))

    def start_broker(self, node: int) -> None:
        broker = self.brokers[node]
        if broker.dead:
            broker.dead = broker.fenced = False
            self._settle_leaders()
            for group in self.groups.values():
                if group.broker is broker:
                    group.move(broker)

    def _settle_leaders(self) -> None:
        for partitions in self.topics.values():
            for partition in partitions:
                self._elect(partition)

    def _elect(self, partition: Partition) -> None:
        """Keep a leader that lives; otherwise the first replica that does leads."""
        living = [node for node in partition.replicas if not self.brokers[node].fenced and not self.brokers[node].dead]
        known = self.brokers.get(partition.leader)
        if known is not None and not known.fenced and partition.leader in partition.replicas:
            return
        self.lead(partition, living[0] if living else -1)

    def lead(self, partition: Partition, node: int) -> None:
        if partition.leader != node:
            partition.leader = node
            partition.epoch += 1
            waiting, partition.waiting = partition.waiting, []
            for wake in waiting:
                wake()

    def reassign(self, topic: str, index: int, replicas: list[int]) -> None:
        partition = self.topics[topic][index]
        partition.replicas = list(replicas)
        self._elect(partition)

    def move_coordinator(self, name: str, node: int) -> None:
        broker = self.brokers[node]
        if name in self.groups and not broker.dead and self.groups[name].broker is not broker:
            self.groups[name].move(broker)

    def produce(self, topic: str, index: int, number: int) -> None:
        builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
        for offset in range(self.topics[topic][index].end, self.topics[topic][index].end + number):
            key = None if self.key_of is None else self.key_of(offset)
            builder.append(timestamp=int((EPOCH_S + self.world.now) * 1000), key=key, value=b"v")
        builder.close()
        self.topics[topic][index].append(bytes(builder.buffer()))
        self.watcher.written((topic, index), self.topics[topic][index].end)

    # Requests. What an answer is made of is given in the order of the protocol, as its version has it.

    def _on_Metadata(self, link: Link | None, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        known_topics, fenced, controller = self._known(link)
        known = list(known_topics)
        topics = []
        there = [name for name in known if known_topics[name]]
        for name in there if request.topics is None else [each.name for each in request.topics]:
            parts = [
                new.MetadataResponsePartition(
                    error_code=0 if each.leader >= 0 else LEADER_NOT_AVAILABLE,
                    partition_index=each.index,
                    leader_id=each.leader,
                    leader_epoch=each.epoch,
                    replica_nodes=each.replicas,
                    isr_nodes=[n for n in each.replicas if n not in fenced] if each.isr is None else each.isr,
                    offline_replicas=[n for n in each.replicas if n in fenced],
                )
                for each in known_topics.get(name, ())
            ]
            error, topic_id = (0, known.index(name) + 1) if name in there else (UNKNOWN_TOPIC, 0)
            topics.append(
                new.MetadataResponseTopic(
                    error_code=error, name=name, topic_id=UUID(int=topic_id), is_internal=False, partitions=parts
                )
            )
        living = [each for node, each in self.brokers.items() if node not in fenced and node not in self.unlisted]
        brokers = [new.MetadataResponseBroker(each.node, *each.address, each.rack) for each in living]
        reply(new(brokers=brokers, cluster_id="simulation", controller_id=controller, topics=topics))

    def _known(self, link: Link | None) -> tuple[Mapping[str, list[Partition]], set[int], int]:  # noqa: ARG002
        """Return topics, fenced brokers and the controller, as the broker knows them that is asked."""
        return self.topics, {each.node for each in self.brokers.values() if each.fenced}, 1

    def metadata(self) -> Any:
        """Return the metadata of all topics, as an answer of a broker."""
        answers: list[Any] = []
        self._on_Metadata(
            None, metadata_api.MetadataRequest(topics=None), _Answers(_REQUESTS[3][1], 12), answers.append
        )
        return answers[0]

    def _on_FindCoordinator(self, _link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        if new.version < 4:
            broker = self._coordinator_of(request.key_type, request.key)
            reply(new(error_code=0, node_id=broker.node, host=broker.address[0], port=broker.address[1]))
            return
        found = [(key, self._coordinator_of(request.key_type, key)) for key in request.coordinator_keys]
        answers = [new.Coordinator(key, each.node, *each.address, 0, None) for key, each in found]
        reply(new(coordinators=answers))

    def _coordinator_of(self, _kind: int, key: str) -> Broker:
        return self._group(key).broker

    def coordinator(self, group: str) -> Broker:
        return self._group(group).broker

    def _group(self, name: str) -> Group:
        if name not in self.groups:
            living = [each for each in self.brokers.values() if not each.dead]
            self.groups[name] = Group(self.world, name, living[len(name) % len(living)], self.watcher)
        return self.groups[name]

    def _coordinated(self, link: Link, name: str) -> Group | None:
        group = self._group(name)
        return group if group.broker is link.broker else None

    def _on_DescribeGroups(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        found = []
        for name in request.groups:
            group = self._coordinated(link, name)
            if group is None:
                found.append(new.DescribedGroup(error_code=NOT_COORDINATOR, group_id=name))
                continue
            # Metadata are shown of a stable group only.
            stable = group.state == STABLE
            rows = [
                new.DescribedGroupMember(
                    member_id=each.id,
                    group_instance_id=each.instance_id,
                    member_metadata=each.metadata(group.protocol) if stable else b"",
                    member_assignment=each.assignment,
                )
                for each in group.members.values()
            ]
            described = {"protocol_data": (group.protocol or "") if stable else "", "members": rows}
            state = {"group_state": group.state, "protocol_type": group.protocol_type or ""}
            found.append(new.DescribedGroup(error_code=0, group_id=name, **state, **described))
        reply(new(groups=found))

    def _on_JoinGroup(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        def answer(joined: Joined) -> None:
            error, member_id, generation, protocol, leader, members, protocol_type = joined
            if new.version < 7:
                protocol = protocol or ""
            rows = [new.JoinGroupResponseMember(*row) for row in members]
            named = {"protocol_type": protocol_type, "protocol_name": protocol, "leader": leader, "members": rows}
            reply(new(error_code=error, generation_id=generation, member_id=member_id, **named))

        group = self._coordinated(link, request.group_id)
        for protocol in request.protocols if link.client.name in self.malformed else ():
            protocol.metadata = b"\xff"
        if group is None:
            answer(Joined(NOT_COORDINATOR, request.member_id))
        else:
            group.join(request, link.client.name.split("#")[0], answer)

    def _on_SyncGroup(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        def answer(synced: Synced) -> None:
            error, assignment, kind, protocol = synced
            reply(new(error_code=error, protocol_type=kind, protocol_name=protocol, assignment=assignment))

        group = self._coordinated(link, request.group_id)
        if group is None:
            answer(Synced(NOT_COORDINATOR))
        else:
            group.sync(request, answer)

    def _on_Heartbeat(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        group = self._coordinated(link, request.group_id)
        reply(new(error_code=NOT_COORDINATOR if group is None else group.heartbeat(request)))

    def _on_LeaveGroup(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        group = self._coordinated(link, request.group_id)
        if group is None:
            reply(new(error_code=NOT_COORDINATOR, members=[]))
            return
        if new.version < 3:
            reply(new(error_code=group.leave(request.member_id, None)))
            return
        left = [(each.member_id, each.group_instance_id) for each in request.members]
        reply(new(error_code=0, members=[new.MemberResponse(*each, group.leave(*each)) for each in left]))

    def _on_OffsetCommit(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        group, generation = self._coordinated(link, request.group_id), request.generation_id_or_member_epoch
        error = NOT_COORDINATOR
        if group is not None:
            error = group.commit_error(request.member_id, request.group_instance_id, generation)
        topics = []
        for topic in request.topics:
            kept = [each for each in topic.partitions if self._partition(topic.name, each.partition_index) is not None]
            for each in kept:
                if group is None or error:
                    break
                offset = Committed(each.committed_offset, each.committed_leader_epoch, each.committed_metadata)
                group.commit((topic.name, each.partition_index), offset, request.member_id)
            parts = [
                new.OffsetCommitResponsePartition(each.partition_index, error or (0 if each in kept else UNKNOWN_TOPIC))
                for each in topic.partitions
            ]
            topics.append(new.OffsetCommitResponseTopic(topic.name, parts))
        reply(new(topics=topics))

    def commit_in_transaction(self, metadata: Any, offsets: Mapping[tuple[str, int], int]) -> int:
        """Commit as a producer's transaction that is completed at once; return the error (`TxnOffsetCommit`)."""
        group, member_id = self._group(metadata.group_id), metadata.member_id
        error = 0
        # A producer that knows no member is not fenced by the group.
        if metadata.generation_id >= 0 or member_id:
            error = group.commit_error(member_id, metadata.group_instance_id, metadata.generation_id)
        for partition, offset in offsets.items() if not error else ():
            group.commit(partition, Committed(offset, -1, ""), member_id)
        return error

    def _on_OffsetFetch(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        several = new.version >= 8
        answers = []
        for asked in request.groups if several else [request]:
            group, topics = self._coordinated(link, asked.group_id), []
            new_topic = new.OffsetFetchResponseTopics if several else new.OffsetFetchResponseTopic
            new_part = new.OffsetFetchResponsePartitions if several else new.OffsetFetchResponsePartition
            for topic in asked.topics:
                if group is None:
                    break
                parts = []
                for index in topic.partition_indexes:
                    key = (topic.name, index)
                    code = self._offset_error(group.name, key, stable=request.require_stable)
                    offset, epoch, metadata = _NOTHING if code else group.offsets.get(key, _NOTHING)
                    found = {"committed_offset": offset, "committed_leader_epoch": epoch, "metadata": metadata}
                    parts.append(new_part(partition_index=index, error_code=code, **found))
                topics.append(new_topic(name=topic.name, partitions=parts))
            answers.append((asked.group_id, topics, 0 if group is not None else NOT_COORDINATOR))
        if several:
            reply(new(groups=[new.OffsetFetchResponseGroup(*each) for each in answers]))
        else:
            ((_, topics, error),) = answers
            reply(new(topics=topics, error_code=error))

    # What transactions change; without them, as here, all that is in a log is stable.

    def _offset_error(self, _group: str, _partition: tuple[str, int], *, stable: bool) -> int:  # noqa: ARG002
        return 0

    def _listed(self, partition: Partition | None, broker: Broker, epoch: int, _isolation: int) -> tuple[int, int, int]:
        """Return the error of a broker that is asked for an end, the end, and the epoch."""
        error = self._leader_error(partition, broker, epoch)
        return (error, -1, -1) if error or partition is None else (0, partition.end, partition.epoch)

    def _fetched(self, partition: Partition | None, broker: Broker, epoch: int) -> tuple[int, int, int]:
        """Return the error of a broker that is read from, the end, and the last stable offset."""
        error = self._leader_error(partition, broker, epoch, follower=True)
        return (error, -1, -1) if error or partition is None else (0, partition.end, partition.end)

    def _read(self, partition: Partition, asked: Any, up_to: int, _aborted: Callable[..., Any] | None) -> Any:
        """Return records, and transactions among these records that were aborted, for a reader of committed ones."""
        return partition.read(asked.fetch_offset, asked.partition_max_bytes, up_to), None

    def _partition(self, topic: str, index: int) -> Partition | None:
        partitions = self.topics.get(topic, [])
        return partitions[index] if index < len(partitions) else None

    def _on_ListOffsets(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        def answer(topic: str, asked: Any) -> Any:
            partition = self._partition(topic, asked.partition_index)
            isolation = request.isolation_level
            error, end, epoch = self._listed(partition, link.broker, asked.current_leader_epoch, isolation)
            offset = end if asked.timestamp == -1 or error else 0
            found = {"timestamp": -1, "offset": offset, "leader_epoch": epoch}
            return new.ListOffsetsPartitionResponse(asked.partition_index, error, **found)

        reply(new(topics=[new.ListOffsetsTopicResponse(t.name, _each(answer, t.name, t)) for t in request.topics]))

    def _on_OffsetForLeaderEpoch(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        def answer(topic: str, asked: Any) -> Any:
            partition = self._partition(topic, asked.partition)
            error = self._leader_error(partition, link.broker, asked.current_leader_epoch)
            end, epoch = (-1, -1) if error or partition is None else partition.end_of_epoch(asked.leader_epoch)
            return new.EpochEndOffset(error, asked.partition, epoch, end)

        topics = [new.OffsetForLeaderTopicResult(t.topic, _each(answer, t.topic, t)) for t in request.topics]
        reply(new(topics=topics))

    def _leader_error(self, partition: Partition | None, broker: Broker, epoch: int, *, follower: bool = False) -> int:
        if partition is None:
            return UNKNOWN_TOPIC
        if 0 <= epoch < partition.epoch:
            return FENCED_LEADER_EPOCH
        if epoch > partition.epoch:
            return UNKNOWN_LEADER_EPOCH
        here = partition.leader == broker.node or (follower and broker.node in partition.replicas)
        return 0 if here else NOT_LEADER

    def _on_Fetch(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        done = False

        def answer(topic: str, asked: Any) -> Any:
            partition = self._partition(topic, asked.partition)
            error, end, stable = self._fetched(partition, link.broker, asked.current_leader_epoch)
            preferred, records, aborted = -1, b"", None
            if partition is not None and not error:
                preferred = self._preferred(partition, link.broker, request.rack_id)
                if preferred >= 0:
                    self.watcher.sent_away(link.client.name, (topic, asked.partition))
                if not 0 <= asked.fetch_offset <= end:
                    error = OFFSET_OUT_OF_RANGE
                elif preferred < 0:
                    committed = request.isolation_level == 1
                    kind = new.AbortedTransaction if committed else None
                    records, aborted = self._read(partition, asked, stable if committed else end, kind)
            start = 0 if end >= 0 else -1
            return new.PartitionData(asked.partition, error, end, stable, start, aborted, preferred, records)

        def finish(*, at_once: bool = False) -> None:
            nonlocal done
            if done or link.broken:
                return
            topics = [new.FetchableTopicResponse(t.topic, _each(answer, t.topic, t)) for t in request.topics]
            parts = [part for topic in topics for part in topic.partitions]
            ready = any(part.error_code or part.records or part.preferred_read_replica >= 0 for part in parts)
            if ready or not at_once:
                done = True
                timer.cancel()
                reply(new(error_code=0, session_id=0, responses=topics))

        timer = self.world.later(request.max_wait_ms / 1000, "fetch wait", finish, link.broker)
        finish(at_once=True)
        asked = [self._partition(topic.topic, each.partition) for topic in request.topics for each in topic.partitions]
        for partition in asked if not done else ():
            if partition is not None:
                partition.waiting.append(finish)

    def _preferred(self, partition: Partition, broker: Broker, rack: str) -> int:
        """Return the replica that a leader names (`RackAwareReplicaSelector`), or -1 for itself."""
        if not rack or partition.leader != broker.node or broker.rack == rack:
            return -1
        near = [n for n in partition.replicas if self.brokers[n].rack == rack and not self.brokers[n].fenced]
        return near[0] if near else -1

    def _on_Produce(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        def answer(topic: str, asked: Any) -> Any:
            partition = self._partition(topic, asked.index)
            error = self._leader_error(partition, link.broker, -1)
            base = -1 if error or partition is None else partition.append(bytes(asked.records))
            return new.PartitionProduceResponse(asked.index, error, base, -1, 0)

        topics = [
            new.TopicProduceResponse(name=t.name, partition_responses=_each(answer, t.name, t, "partition_data"))
            for t in request.topic_data
        ]
        reply(new(responses=topics))

    def _known_configs(self, _link: Link) -> Mapping[str, Mapping[str, str]]:
        """Return configurations by the name of their topic, as the broker knows them that is asked."""
        return {}

    def _on_DescribeConfigs(self, link: Link, request: Any, new: _Answers, reply: Reply) -> None:  # noqa: N802
        results = []
        for asked in request.resources:
            values = self._known_configs(link).get(asked.resource_name)
            wanted = asked.configuration_keys
            rows = [
                new.DescribeConfigsResourceResult(
                    name=name, value=value, read_only=False, config_source=1, is_sensitive=False, synonyms=[]
                )
                for name, value in (values or {}).items()
                if wanted is None or name in wanted
            ]
            error = UNKNOWN_TOPIC if values is None else 0
            results.append(new.DescribeConfigsResult(error, None, asked.resource_type, asked.resource_name, rows))
        reply(new(results=results))


def _each(answer: Callable[[str, Any], Any], topic: str, asked: Any, field_name: str = "partitions") -> list[Any]:
    return [answer(topic, each) for each in getattr(asked, field_name)]


class _Answers:
    """Makes answers of one version; the types of their parts are its attributes."""

    def __init__(self, kind: Any, version: int) -> None:
        self._kind, self.version = kind, version

    def __call__(self, **fields: Any) -> Any:
        return self._kind(version=self.version, **fields)

    def __getattr__(self, name: str) -> Any:
        return partial(_part(self._kind, name), version=self.version)


@cache
def _part(kind: Any, name: str) -> Any:
    return next(each for each in _parts(kind) if each.__name__ == name)


def _parts(kind: Any) -> Iterable[Any]:
    for name in dir(kind):
        part = kind.__dict__.get(name)
        if isinstance(part, type) and name != "__class__":
            yield part
            yield from _parts(part)


def _name(frame: bytes) -> str:
    return str(_REQUESTS[int.from_bytes(frame[:2], "big")][0].__name__)[:-7]
