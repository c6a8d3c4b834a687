"""Faust (faust-streaming): an application whose workers read locally, with standbys of its tables in other racks.

* `RackAwareApp` is a `faust.App` whose consumers fetch from their own rack.
* `RackAwarePartitionAssignor` is the class for Faust's setting `PartitionAssignor`. An app that has it and is no
  `RackAwareApp` reads from leaders, and its partitions are assigned by the racks of those.

Faust's own assignment is computed first. It is what a group gets if anything fails here, and it defines what belongs
together: partitions of one number of all topics that have the same subscribers and the same number of partitions go to
one worker, changelogs included. This module decides only which worker that is, and who has standbys of the tables.

* Each topic is balanced, as Faust balances it.
* Topics that are processed count for locality. Changelogs do not: a worker reads them only when a table moves to it.
* A worker with a standby counts as the owner if the owner is gone. Locality comes before keeping partitions, so another
  worker may get the partition, and then reads the changelog first.
* Standbys are spread over racks, away from that of the owner.

The rack of a worker is in the JSON of Faust's client metadata, under a key that other Faust members ignore.

`pack`, `unpack`, `PreparingApp` and `prepare_consumers` have all uses of private names of Faust; each docstring names
them. All were seen in faust-streaming 0.11.3 and 0.15.3.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple, cast

from rackassign.errors import MissingExtraError

try:
    # First, since its extra has all that is needed: the extra of aiokafka would not be enough.
    import faust
    from faust.assignor import PartitionAssignor
    from faust.assignor.client_assignment import ClientAssignment, ClientMetadata
    from faust.transport.drivers import aiokafka as driver
except ModuleNotFoundError as error:
    if error.name != "faust":
        raise
    raise MissingExtraError("faust-streaming", "faust") from None

from rackassign.assignor.assignment_log import format_group
from rackassign.assignor.base import warn_of_ineffective_racks
from rackassign.assignor.history import LeaderAssignment
from rackassign.assignor.member import FROM_ENVIRONMENT, MemberContext, resolve_rack
from rackassign.clients.aiokafka import attach
from rackassign.clients.aiokafka import internals as aiokafka_internals
from rackassign.clients.fetch_metrics import RackTraffic
from rackassign.integrations import warn_of_version
from rackassign.locality import validate_locality_mode
from rackassign.model import Group, LocalityMode, Member, TopicPartition
from rackassign.strategies import Options, assign_standbys, load, plan_sticky
from rackassign.strategies.standby import StandbyOptions
from rackassign.text import WarnOnce, with_version
from rackassign.wire import Subscription, encode_subscription

log = logging.getLogger(__name__)

__all__ = ["RackAwareApp", "RackAwarePartitionAssignor"]


_RACK = "rackassign.rack"
"""Key of the rack in the client metadata; Faust keeps keys that it does not know, and does not use them."""
_TAG = "rack"
"""Tag of workers over whose values standbys are spread."""
_SESSION_TO_LIMIT = 3
"""A plan takes at most a third of the session timeout, as with other clients: meanwhile no heartbeats are sent."""


class RackAwarePartitionAssignor(PartitionAssignor):
    """The class for Faust's setting `PartitionAssignor`.

    The rack is that of the app if it is a `RackAwareApp`, otherwise that of `RACKASSIGN_RACK`, and then partitions are
    assigned by the racks of their leaders, since Faust's consumers read from those.

    Args:
        app: The application; Faust passes it.
        replicas: Number of standbys of each partition; Faust passes its setting `table_standby_replicas`.

    Raises:
        ConfigError: If `RACKASSIGN_RACK` cannot be sent.
    """

    def __init__(self, app: Any, replicas: int = 0) -> None:
        super().__init__(app, replicas=replicas)
        rack = getattr(app, "client_rack", FROM_ENVIRONMENT)
        locality = getattr(app, "locality_mode", "leader")
        self._member = MemberContext(aiokafka_internals, __name__, rack=rack, locality=locality, name=self.name)

    def metadata(self, topics: set[str]) -> Any:
        """Return the subscription of this worker: Faust's, with its rack (KIP-881, version 3, for tools too)."""
        sent = super().metadata(topics)
        if self._member.rack is None:
            return sent
        try:
            user_data = json.dumps({**json.loads(sent.user_data), _RACK: self._member.rack}).encode()
            return encode_subscription(Subscription(tuple(sorted(topics)), user_data, rack=self._member.rack))
        except Exception:  # noqa: BLE001 - raised from here, the worker would never join
            self._member.once.warn("metadata", "%s: no rack is sent", self.name, exc_info=True)
            return sent

    def assign(
        self,
        cluster: Any,
        member_metadata: MutableMapping[str, Any],
    ) -> MutableMapping[str, Any]:
        """Compute the assignment of the whole group; called on its leader.

        Args:
            cluster: aiokafka's live `ClusterMetadata`.
            member_metadata: Metadata of each member.

        Returns:
            An assignment for every member, in Faust's format.
        """
        plain = super().assign(cluster, member_metadata)
        try:
            joined = {member: _Joined.of(metadata) for member, metadata in member_metadata.items()}
            return self._encoded(plain, self._planned(cluster, joined, plain))
        except Exception:  # noqa: BLE001 - the group must get an assignment, and Faust's is valid
            self._member.once.warn(
                "failed", "%s: rack-aware assignment failed; the group gets Faust's own", self.name, exc_info=True
            )
            return plain

    def _planned(
        self,
        cluster: Any,
        joined: Mapping[str, _Joined],
        plain: Mapping[str, Any],
    ) -> Mapping[str, _Part]:
        """Return the partitions of each worker, for the topics that are assigned by number."""
        limit_s = self.app.conf.broker_session_timeout / _SESSION_TO_LIMIT
        until = time.monotonic() + limit_s
        tables = self.app.tables
        everywhere = {table.changelog_topic.get_topic_name() for table in tables.data.values() if table.is_global}
        sets = _topic_sets(cluster, joined, tables.changelog_topics, everywhere)
        topology = aiokafka_internals.topology(cluster, [topic for each in sets for topic in each.counted])
        self._member.racks.update(topology.brokers)
        topology = self._member.racks.fill_missing(topology)
        for each in sets:
            if any(len(topology.topics.get(topic, ())) != each.partitions for topic in each.counted):
                raise ValueError(f"the metadata of {each.name} have changed")
        group = Group(
            topology,
            tuple(theirs.member(member, sets) for member, theirs in joined.items()),
            copartition=tuple(each.counted for each in sets if len(each.counted) > 1),
        )
        load("standbys" if self.replicas else "sticky")
        options = Options(self._member.locality, balance="topic", time_limit_s=max(0.0, until - time.monotonic()))
        if self.replicas:
            copies = {member: theirs.copies(sets) for member, theirs in joined.items()}
            wanted = min(self.replicas, max(0, len(joined) - 1))
            of_standbys = StandbyOptions(num_standby_replicas=wanted, rack_aware_assignment_tags=[_TAG])
            found = assign_standbys(group, copies, of_standbys, options, eager=True)
            plan, standbys = found.plan, found.standbys
        else:
            plan, standbys = plan_sticky(group, options), {}
        warn_of_ineffective_racks(LeaderAssignment(plan.assignment, group=group, plan=plan), self._member, limit_s)
        self._member.log.info("%s: %s", self.name, format_group(group, plan))
        return {
            member: _Part(
                {topic: plan.assignment[member].get(each.name, ()) for each in sets for topic in each.topics},
                {topic: standbys.get(member, {}).get(each.name, ()) for each in sets for topic in each.topics},
            )
            for member in plain
        }

    def _encoded(self, plain: Mapping[str, Any], planned: Mapping[str, _Part]) -> dict[str, Any]:
        """Return Faust's assignment with the planned partitions in place of its own."""
        user_data = {member: unpack(each.user_data) for member, each in plain.items()}
        made: dict[str, Any] = {}
        for member, metadata in user_data.items():
            before, part = metadata.assignment, planned[member]
            made[member] = ClientAssignment(
                actives={topic: [*part.active.get(topic, ids)] for topic, ids in before.actives.items()},
                standbys={topic: [*part.standby.get(topic, ids)] for topic, ids in before.standbys.items()},
            )
        changelogs: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for member, metadata in user_data.items():
            actives = made[member].actives
            tables = self.app.tables.changelog_topics
            changelogs[metadata.url] = {topic: ids for topic, ids in actives.items() if topic in tables}
            rest[metadata.url] = {topic: ids for topic, ids in actives.items() if topic not in tables}
        for member, metadata in user_data.items():
            metadata.assignment = made[member]
            metadata.changelog_distribution, metadata.external_topic_distribution = changelogs, rest
        return {
            member: type(each)(
                each.version,
                sorted(made[member].kafka_protocol_assignment(self.app.tables)),
                pack(user_data[member]),
            )
            for member, each in plain.items()
        }


class _Part(NamedTuple):
    """What a worker gets of the topics that are assigned by number: partitions by topic."""

    active: Mapping[str, Iterable[int]]
    standby: Mapping[str, Iterable[int]]


class _TopicSet(NamedTuple):
    """Topics whose partitions of one number go to one worker."""

    topics: tuple[str, ...]
    # Those of them that count for locality, sorted.
    counted: tuple[str, ...]
    partitions: int
    subscribers: frozenset[str]

    @property
    def name(self) -> str:
        """The topic whose partitions stand for those of all: the strategies use the first one too."""
        return self.counted[0]

    def owned(self, assigned: Mapping[str, Iterable[int]]) -> tuple[int, ...]:
        """Return the numbers that an assignment has of these topics; topics that are new have none yet."""
        for topic in self.topics:
            ids = {each for each in assigned.get(topic, ()) if type(each) is int and 0 <= each < self.partitions}
            if ids:
                return tuple(sorted(ids))
        return ()


def _topic_sets(
    cluster: Any,
    joined: Mapping[str, _Joined],
    changelogs: Iterable[str],
    everywhere: Iterable[str],
) -> list[_TopicSet]:
    """Return what Faust assigns together: topics with equal subscribers and equal numbers of partitions."""
    # `changelogs` count for locality only where no other topic does; all workers read those of `everywhere` as a whole.
    subscribers: dict[str, set[str]] = defaultdict(set)
    for member, theirs in joined.items():
        for topic in theirs.topics:
            subscribers[topic].add(member)
    sets: dict[tuple[int, tuple[str, ...]], list[str]] = defaultdict(list)
    for topic in sorted(subscribers.keys() - set(everywhere)):
        number = len(cluster.partitions_for_topic(topic) or ())
        if number:
            sets[number, tuple(sorted(subscribers[topic]))].append(topic)
    state = frozenset(changelogs)
    return [
        _TopicSet(tuple(topics), tuple(t for t in topics if t not in state) or (topics[0],), number, frozenset(members))
        for (number, members), topics in sorted(sets.items())
    ]


class _Joined(NamedTuple):
    """What a worker sends: its subscription, its rack if it has one, and its last assignment by topic."""

    topics: frozenset[str]
    rack: str | None
    actives: Mapping[str, Iterable[int]]
    standbys: Mapping[str, Iterable[int]]

    @classmethod
    def of(cls, metadata: Any) -> _Joined:
        """Decode it; the caller handles all exceptions."""
        sent = json.loads(metadata.user_data)
        rack = sent.get(_RACK)
        assignment = sent["assignment"]
        return cls(
            frozenset(metadata.subscription),
            rack if isinstance(rack, str) else None,
            assignment["actives"],
            assignment["standbys"],
        )

    def member(self, id_: str, sets: Iterable[_TopicSet]) -> Member:
        """Return the member of the group, with the topics that count."""
        own = [each for each in sets if id_ in each.subscribers]
        owned: dict[str, tuple[int, ...]] = {}
        for each in own:
            ids = each.owned(self.actives)
            if ids:
                owned.update(dict.fromkeys(each.counted, ids))
        tags = {} if self.rack is None else {_TAG: self.rack}
        return Member(id_, frozenset(t for each in own for t in each.counted), rack=self.rack, owned=owned, tags=tags)

    def copies(self, sets: Iterable[_TopicSet]) -> dict[TopicPartition, int]:
        """Return its standbys with their lag, which Faust does not know: all are used as they are."""
        return {TopicPartition(each.name, number): 0 for each in sets for number in each.owned(self.standbys)}


DISTRIBUTION = "faust-streaming"
FIRST, LAST = (0, 11), (0, 15)
"""Supported versions."""


def pack(metadata: ClientMetadata) -> bytes:
    """Return the user data of an assignment; calls `PartitionAssignor._compress`."""
    return PartitionAssignor._compress(metadata.dumps())


def unpack(user_data: bytes) -> ClientMetadata:
    """Return the metadata in the user data of an assignment; calls `PartitionAssignor._decompress`."""
    return cast("ClientMetadata", ClientMetadata.loads(PartitionAssignor._decompress(user_data)))


class PreparingApp(faust.App):
    """An app that prepares the consumers of its workers before they start; overrides `_new_transport`."""

    def __init__(self, id: str, once: WarnOnce, **options: Any) -> None:  # noqa: A002 - Faust's own name
        self._once = once
        super().__init__(id, **options)

    def prepare_consumer(self, consumer: Any) -> None:
        """Prepare an `AIOKafkaConsumer`; Faust's thread of the consumer calls this."""

    def _new_transport(self) -> Any:
        transport = super()._new_transport()
        prepare_consumers(transport, self.prepare_consumer, self._once)
        return transport


def prepare_consumers(transport: Any, prepare: Callable[[Any], None], once: WarnOnce) -> None:
    """Call a function with each `AIOKafkaConsumer` that a transport creates for workers, before the consumer starts.

    Sets the public attribute `Consumer` of the transport. The classes override `_new_consumer_thread` of the driver's
    `Consumer` and `_create_worker_consumer` of its `AIOKafkaConsumerThread`.
    """
    create = getattr(driver.AIOKafkaConsumerThread, "_create_worker_consumer", None)
    if create is None or not hasattr(driver.Consumer, "_new_consumer_thread"):
        once.warn("differs", "%s differs: its workers read from leaders", with_version(DISTRIBUTION))
        return
    if not isinstance(transport, driver.Transport) or transport.Consumer is not driver.Consumer:
        once.warn("driver", "the workers read from leaders: the transport is not Faust's own for aiokafka")
        return

    class RackAwareThread(driver.AIOKafkaConsumerThread):
        def _create_worker_consumer(self, transport: Any) -> Any:
            consumer = super()._create_worker_consumer(transport)
            prepare(consumer)
            return consumer

    class RackAwareConsumer(driver.Consumer):
        def _new_consumer_thread(self) -> Any:
            return RackAwareThread(self, loop=self.loop, beacon=self.beacon)

    vars(transport)["Consumer"] = RackAwareConsumer


class RackAwareApp(PreparingApp):
    """A `faust.App` whose workers read locally, and whose tables have their standbys in other racks.

    Takes all arguments of `faust.App`. Differences: the default of the setting `PartitionAssignor` is
    `RackAwarePartitionAssignor`, the consumers of workers get a `client_rack`, and apps without tables have that
    assignor too; Faust's own use `roundrobin` then. Such a worker also joins by `roundrobin`, while others of the group
    know nothing else.

    Args:
        id: As for `faust.App`.
        client_rack: The rack of this worker, as the brokers write theirs in `broker.rack`. If omitted,
            `RACKASSIGN_RACK` is read, and without it there is no rack. With "auto" further sources are tried.
        locality: `any-replica` if workers read from followers in their rack, `leader` if all read from leaders.
        **options: As for `faust.App`.

    Raises:
        ConfigError: If "auto" finds no rack, or an option is not valid.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - Faust's own name
        *,
        client_rack: str | None = None,
        locality: str = "any-replica",
        **options: Any,
    ) -> None:
        self.client_rack = resolve_rack(client_rack)
        self.locality_mode: LocalityMode = validate_locality_mode(locality)
        self._reader: Any = None
        once = WarnOnce(log)
        warn_of_version(DISTRIBUTION, FIRST, LAST, once)
        options.setdefault("PartitionAssignor", RackAwarePartitionAssignor)
        super().__init__(id, once, **options)

    def locality(self) -> RackTraffic | None:
        """Return the traffic fetched so far by the worker's consumer; None if it has none yet."""
        found: RackTraffic | None = None if self._reader is None else self._reader.locality()
        return found

    def prepare_consumer(self, consumer: Any) -> None:
        """Let a consumer that is not started fetch from its rack."""
        try:
            if self.locality_mode == "any-replica":
                aiokafka_internals.set_client_rack(consumer, self.client_rack)
            chosen = aiokafka_internals.assignors(consumer)
            if self.assignor not in chosen:
                aiokafka_internals.set_assignors(consumer, (self.assignor, *chosen))
            self._reader = attach(consumer)
        except Exception:  # noqa: BLE001 - the worker reads as it would without
            self._once.warn("prepare", "a consumer could not be prepared: it may read across racks", exc_info=True)
