"""Reassignments of simulated brokers: replicas that copy bytes, in-sync ones, throttles, elections, and a controller.

As with KRaft (`PartitionReassignmentReplicas`, `PartitionReassignmentRevert`, `PartitionChangeBuilder`), including that
another target may hang. What the controller has done brokers learn later, each by itself; they send a request again
that a controller has not answered when it died. `integration/clients/test_simulation.py` compares answers.

Left out: records, of which only bytes are counted; throttles of single brokers, and the windows of their quotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from rackassign.placement.cluster_state import RATES, THROTTLED
from tests.simulation.cluster import UNKNOWN_TOPIC, Link, Partition, Reply, SimulatedCluster
from tests.simulation.world import World

INVALID_REPLICA_ASSIGNMENT, NOT_CONTROLLER, NO_REASSIGNMENT_IN_PROGRESS = 39, 41, 85
PREFERRED_LEADER_NOT_AVAILABLE, ELECTION_NOT_NEEDED = 80, 84
MIN_ISR = "min.insync.replicas"

_LOOK_S, _NETWORK = 0.25, 50_000_000
"""Seconds between looks of replicas, and bytes that a broker sends, and receives, in a second."""
_LAG_S, _ELECTION_S = 30.0, 1.5
"""`replica.lag.time.max.ms`, and about how long there is no controller when one has died."""
_LONGEST_VALUE = 32_767


@dataclass
class Replicated(Partition):
    """A partition whose replicas have so many bytes; its leader's are all there are."""

    isr: list[int] = field(default_factory=list)
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)
    have: Counter[int] = field(default_factory=Counter)
    acked: int = 0
    # When replicas had all bytes last.
    caught_up: dict[int, float] = field(default_factory=dict)

    @property
    def target(self) -> tuple[int, ...] | None:
        """Its replicas after the reassignment that is under way; None without one."""
        return tuple(n for n in self.replicas if n not in self.removing) if self.adding or self.removing else None


class Image(NamedTuple):
    """What a broker knows."""

    version: int
    topics: Mapping[str, list[Partition]]
    fenced: set[int]
    configs: Mapping[str, Mapping[str, str]]


class ReassigningCluster(SimulatedCluster):
    """Brokers that copy replicas; `configs` has those of topics and, with an empty name, of all brokers."""

    def __init__(self, world: World, racks: Iterable[str | None], watcher: Any) -> None:
        super().__init__(world, racks, watcher, {})
        self.configs: dict[str, dict[str, str]] = {"": {}}
        self.controller: int | None = 1
        # Seconds by which brokers lag behind the controller, brokers that copy nothing, bytes that are written to
        # partitions in a second, and errors with which the next request of a kind is answered.
        self.lags: dict[int, float] = {}
        self.stuck: dict[int, bool] = {}
        self.rates: dict[int, int] = {}
        self.errors: dict[str, int] = {}
        self._rng = world.rng("brokers")
        self.images: dict[int, Image] = {}
        self._version = self.configured = 0
        self._waiting: list[Callable[[], None]] = []
        self._room: dict[tuple[str, int], int] = {}
        world.later(_LOOK_S, "replicate", self._replicate)

    def create(self, topic: str, lists: Iterable[Sequence[int]], size: int, configs: Mapping[str, str]) -> None:
        self.configs[topic] = {MIN_ISR: "1", **configs}
        self.topics[topic] = [
            Replicated(topic, i, list(row), row[0], isr=list(row), have=Counter(dict.fromkeys(row, size)), acked=size)
            for i, row in enumerate(lists)
        ]
        self.images = dict.fromkeys(self.brokers, self._image())

    def replicated(self) -> list[Replicated]:
        return [p for row in self.topics.values() for p in row if isinstance(p, Replicated)]

    def serve(self, link: Link, frame: bytes) -> None:
        super().serve(link, frame)
        self.watcher.served(link.client)

    # What brokers know.

    def _image(self) -> Image:
        topics = {
            name: [replace(p, replicas=list(p.replicas), isr=list(p.isr or ())) for p in row]
            for name, row in self.topics.items()
        }
        fenced = {node for node, broker in self.brokers.items() if broker.fenced}
        return Image(self._version, topics, fenced, {name: dict(values) for name, values in self.configs.items()})

    def changed(self) -> None:
        self._version += 1
        image = self._image()
        for node in self.brokers:
            lag_s = self.lags.get(node, 0.0) + 0.3 * self._rng.random() ** 3
            self.world.later(lag_s, "learn", partial(self._learn, node, image))

    def _learn(self, node: int, image: Image) -> None:
        self.images[node] = max(self.images[node], image, key=lambda each: each.version)

    def _known(self, link: Link | None) -> tuple[Mapping[str, list[Partition]], set[int], int]:
        image = self._image() if link is None else self.images[link.broker.node]
        # With KRaft any broker takes requests to the controller.
        return image.topics, image.fenced, self._rng.choice([n for n, each in self.brokers.items() if not each.fenced])

    # The controller, and brokers that die.

    def kill_broker(self, node: int) -> None:
        super().kill_broker(node)
        if self.brokers[node].dead and self.controller == node:
            self.move_controller()

    def start_broker(self, node: int) -> None:
        if self.brokers[node].dead:
            super().start_broker(node)
            # It takes part when it has read the log of metadata.
            self._learn(node, self._image())

    def move_controller(self) -> None:
        self.controller = None
        self.world.later(_ELECTION_S * (0.5 + self._rng.random()), "controller", self._take_over)

    def _take_over(self) -> None:
        self.controller = self._rng.choice([node for node, broker in self.brokers.items() if not broker.dead])
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()

    def _control(self, link: Link, act: Callable[[], Any], reply: Reply) -> None:
        """Let the controller act, and the broker answer; if the controller dies in between, the next one acts again."""
        if self.controller is None:
            self._waiting.append(partial(self._control, link, act, reply))
            return
        by, answer = self.controller, act()

        def answered() -> None:
            if self.controller == by:
                reply(answer)
            else:
                self._control(link, act, reply)

        self.world.later(self.latency(self._rng), "controller answers", answered, link.broker)

    def _elect(self, partition: Partition) -> None:
        """Take fenced replicas out of the in-sync ones, except for the last; keep a leader, or elect one of them."""
        assert isinstance(partition, Replicated)
        up = [node for node in partition.isr if not self.brokers[node].fenced]
        partition.isr = up or partition.isr[:1]
        if partition.leader not in up:
            self.lead(partition, next((node for node in partition.replicas if node in up), -1))
        self._complete(partition)
        self.changed()

    def lead(self, partition: Partition, node: int) -> None:
        assert isinstance(partition, Replicated)
        super().lead(partition, node)
        if node >= 0:
            # Others cut off what it does not have.
            partition.have = Counter({n: min(have, partition.have[node]) for n, have in partition.have.items()})

    # Reassignments.

    def alter(self, p: Any, row: Sequence[int] | None) -> int:
        """Begin a reassignment, or cancel one; return the error."""
        if p is None:
            return UNKNOWN_TOPIC
        if row is None:
            return self._cancel(p)
        if not row or len(set(row)) < len(row) or not set(row) <= set(self.brokers):
            return INVALID_REPLICA_ASSIGNMENT
        adding, removing = sorted(set(row) - set(p.replicas)), sorted(set(p.replicas) - set(row))
        p.replicas = [*row, *removing]
        # What is empty changes nothing, so what was added or removed before may stay so for ever.
        p.adding, p.removing = adding or p.adding, removing or p.removing
        self._complete(p)
        self.changed()
        return 0

    def _cancel(self, p: Replicated) -> int:
        if p.target is None:
            return NO_REASSIGNMENT_IN_PROGRESS
        isr = [node for node in p.isr if node not in p.adding]
        if not isr:
            return INVALID_REPLICA_ASSIGNMENT
        self._end(p, [node for node in p.replicas if node not in p.adding], isr)
        return 0

    def _complete(self, p: Replicated) -> None:
        isr = [node for node in p.isr if node not in p.removing]
        if p.target and isr and set(isr) >= set(p.adding or p.target):
            self.watcher.completed(p, isr)
            self._end(p, list(p.target), isr)

    def _end(self, p: Replicated, replicas: list[int], isr: list[int]) -> None:
        p.replicas, p.isr, p.adding, p.removing = replicas, isr, [], []
        p.have = Counter({node: have for node, have in p.have.items() if node in replicas})
        self._elect(p)

    # Replication.

    def _replicate(self) -> None:
        for node in self.brokers:
            for rate, key in zip(RATES, THROTTLED, strict=True):
                limit = int(int(self.configs[""].get(rate, _NETWORK)) * _LOOK_S)
                # What in-sync replicas have taken beyond the limit is missing later.
                self._room[key, node] = min(self._room.get((key, node), 0), 0) + limit
        led = [p for p in self.replicated() if p.leader >= 0 and not self.brokers[p.leader].dead]
        for p in led:
            if len(p.isr) >= int(self.configs[p.topic][MIN_ISR]):
                p.have[p.leader] += int(self.rates.get(p.index, 0) * _LOOK_S)
        for in_sync in (True, False):
            for p in led:
                for node in p.replicas:
                    if (node in p.isr) == in_sync and node != p.leader and self._copies(node):
                        self._copy(p, node)
        for p in led:
            self._look(p)
        self.world.later(_LOOK_S, "replicate", self._replicate)

    def _copies(self, node: int) -> bool:
        return not self.brokers[node].dead and node not in self.stuck

    def _copy(self, p: Replicated, node: int) -> None:
        ends = zip(THROTTLED, (p.leader, node), strict=True)
        limited = [(key, broker) for key, broker in ends if self.is_throttled(p, key, broker)]
        taken = p.have[p.leader] - p.have[node]
        if node not in p.isr:
            taken = max(0, min(taken, int(_NETWORK * _LOOK_S), *(self._room[each] for each in limited)))
        for each in limited:
            self._room[each] -= taken
        p.have[node] += taken

    def is_throttled(self, p: Partition, key: str, node: int) -> bool:
        entries = f",{self.configs[p.topic].get(key, '')},"
        return entries == ",*," or f",{p.index}:{node}," in entries

    def _look(self, p: Replicated) -> None:
        """Let replicas that have all bytes be in sync, and others that have been behind for long not."""
        now = self.world.now
        complete = [node for node in p.replicas if p.have[node] >= p.have[p.leader]]
        p.caught_up.update(dict.fromkeys(complete, now))
        isr = [node for node in p.isr if now - p.caught_up.get(node, now) <= _LAG_S]
        isr += [n for n in complete if n not in isr and self._copies(n) and not self.brokers[n].fenced]
        if isr != p.isr:
            p.isr = isr
            self._complete(p)
            self.changed()
        if len(p.isr) >= int(self.configs[p.topic][MIN_ISR]):
            p.acked = max(p.acked, min(p.have[node] for node in p.isr))
        self.watcher.acknowledged(p)

    # Requests.

    def _on_AlterPartitionReassignments(self, link: Link, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        def act() -> Any:
            topics, error = [], self.errors.pop("AlterPartitionReassignments", 0)
            for topic in request.topics if not error else ():
                rows = []
                for each in topic.partitions:
                    p = self._partition(topic.name, each.partition_index)
                    self.watcher.altered(link.client, p, each.replicas)
                    code = self.alter(p, each.replicas)
                    rows.append(new.ReassignablePartitionResponse(each.partition_index, code, None))
                topics.append(new.ReassignableTopicResponse(topic.name, rows))
            return new(error_code=error, error_message=None, responses=topics)

        self._control(link, act, reply)

    def _on_ListPartitionReassignments(self, link: Link, _request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        def act() -> Any:
            found: dict[str, list[Any]] = {}
            for p in self.replicated():
                if p.target is not None:
                    row = new.OngoingPartitionReassignment(p.index, list(p.replicas), list(p.adding), list(p.removing))
                    found.setdefault(p.topic, []).append(row)
            topics = [new.OngoingTopicReassignment(*each) for each in found.items()]
            error = self.errors.pop("ListPartitionReassignments", 0)
            return new(error_code=error, error_message=None, topics=[] if error else topics)

        self._control(link, act, reply)

    def _on_ElectLeaders(self, link: Link, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        def elect(p: Any) -> int:
            if p is None or p.leader == p.replicas[0]:
                return UNKNOWN_TOPIC if p is None else ELECTION_NOT_NEEDED
            if p.replicas[0] not in p.isr or self.brokers[p.replicas[0]].fenced:
                return PREFERRED_LEADER_NOT_AVAILABLE
            self.lead(p, p.replicas[0])
            return 0

        def act() -> Any:
            results, error = [], self.errors.pop("ElectLeaders", 0)
            for topic in request.topic_partitions if not error else ():
                codes = [(i, elect(self._partition(topic.topic, i)), None) for i in topic.partitions]
                results.append(new.ReplicaElectionResult(topic.topic, [new.PartitionResult(*each) for each in codes]))
            self.changed()
            return new(error_code=error, replica_election_results=results)

        self._control(link, act, reply)

    def _on_IncrementalAlterConfigs(self, link: Link, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        def act() -> Any:
            error, results = self.errors.pop("IncrementalAlterConfigs", 0), []
            for each in request.resources:
                values = self.configs.get(each.resource_name, {})
                code = error or (0 if each.resource_name in self.configs else UNKNOWN_TOPIC)
                for config in each.configs if not code else ():
                    values.pop(config.name, None)
                    values.update({config.name: config.value} if config.config_operation == 0 else {})
                results.append(new.AlterConfigsResourceResponse(code, None, each.resource_type, each.resource_name))
            self.watcher.configured(link.client)
            self.changed()
            self.configured = self._version
            return new(responses=results)

        if any(len(config.value or "") > _LONGEST_VALUE for each in request.resources for config in each.configs):
            link.lose()
        else:
            self._control(link, act, reply)

    def _known_configs(self, link: Link) -> Mapping[str, Mapping[str, str]]:
        return self.images[link.broker.node].configs

    def _on_DescribeCluster(self, link: Link, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        _, fenced, controller = self._known(link)
        rows = [
            new.DescribeClusterBroker(node, *broker.address, broker.rack, node in fenced)
            for node, broker in self.brokers.items()
            if node not in fenced or request.include_fenced_brokers
        ]
        reply(new(error_code=0, error_message=None, cluster_id="simulation", controller_id=controller, brokers=rows))

    def _on_DescribeLogDirs(self, link: Link, request: Any, new: Any, reply: Reply) -> None:  # noqa: N802
        asked = {topic.topic: topic.partitions for topic in request.topics}
        found: dict[str, list[Any]] = {}
        for p in self.replicated():
            if link.broker.node in p.replicas and p.index in asked.get(p.topic, ()):
                row = new.DescribeLogDirsPartition(p.index, p.have[link.broker.node], 0, is_future_key=False)
                found.setdefault(p.topic, []).append(row)
        topics = [new.DescribeLogDirsTopic(*each) for each in found.items()]
        reply(new(error_code=0, results=[new.DescribeLogDirsResult(error_code=0, log_dir="/logs", topics=topics)]))
