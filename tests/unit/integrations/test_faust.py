"""Faust's groups with racks, without brokers: rounds of joins as Faust and aiokafka make them.

The versions of a framework that are supported.

What is read of a Quix Streams application, and the consumer in place of its own; the framework is a fake here.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from faust.transport.drivers import aiokafka as driver
from hypothesis import given
from hypothesis import strategies as st

from rackassign import integrations
from rackassign.clients.aiokafka import internals as aiokafka_internals
from rackassign.errors import ConfigError, MissingExtraError
from rackassign.integrations import faust as assignor
from rackassign.integrations import faust as internals
from rackassign.integrations.faust import RackAwareApp, RackAwarePartitionAssignor
from rackassign.text import WarnOnce
from rackassign.wire import decode_subscription
from tests.helpers.fakes.aiokafka import cluster_of

RACKS = {1: "a", 2: "b", 3: "c"}
CHANGELOG = "app-totals-changelog"


class Worker:
    """A worker of an app with a table, as far as its group is concerned."""

    def __init__(
        self, name: str, rack: str | None, topics: Sequence[str], *, replicas: int = 0, **options: Any
    ) -> None:
        # `rack`: its rack; None for a plain Faust without racks.
        common = {"broker": "kafka://127.0.0.1:1", "table_standby_replicas": replicas, "web_host": name, **options}
        self.name, self.rack, self.topics = name, rack, {*topics}
        self.app: Any = faust.App("app", **common) if rack is None else RackAwareApp("app", client_rack=rack, **common)
        self.app.Table("totals", default=int, partitions=6)

    def joins(self) -> Any:
        sent = self.app.assignor.metadata(self.topics)
        return ConsumerProtocolMemberMetadata.decode(sent if isinstance(sent, bytes) else sent.encode())


def rebalance(workers: Sequence[Worker], cluster: Any, leader: int = 0) -> dict[str, ConsumerProtocolMemberAssignment]:
    """Make a round: all send, the leader assigns, and each checks what it gets as Faust does."""
    given = workers[leader].app.assignor.assign(cluster, {each.name: each.joins() for each in workers})
    for each in workers:
        each.app.assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(given[each.name].encode()))
    return dict(given)


def actives(workers: Sequence[Worker], topic: str) -> dict[str, set[int]]:
    return {w.name: {tp.partition for tp in w.app.assignor.assigned_actives() if tp.topic == topic} for w in workers}


def standbys(workers: Sequence[Worker], topic: str) -> dict[str, set[int]]:
    return {w.name: {tp.partition for tp in w.app.assignor.assigned_standbys() if tp.topic == topic} for w in workers}


def local(workers: Sequence[Worker], layout: Mapping[str, Sequence[Sequence[int]]], topic: str) -> int:
    rack_of = {w.name: w.rack for w in workers}
    given = actives(workers, topic)
    return sum(rack_of[name] in {RACKS[r] for r in layout[topic][p]} for name, ids in given.items() for p in ids)


def layout(
    *, partitions: int = 6, replicas: int = 1, topics: Sequence[str] = ("orders",)
) -> dict[str, list[list[int]]]:
    found = {topic: [[(p + r) % 3 + 1 for r in range(replicas)] for p in range(partitions)] for topic in topics}
    # Of the changelog other replicas are local, which must not count.
    return found | {CHANGELOG: [[(p + 1) % 3 + 1] for p in range(6)]}


def test_workers_read_in_their_racks_and_have_the_changelog_of_what_they_read() -> None:
    topics = layout()
    workers = [Worker(name, rack, [*topics]) for name, rack in zip("xyz", "cab", strict=True)]
    rebalance(workers, cluster_of(RACKS, topics))
    assert local(workers, topics, "orders") == 6
    assert actives(workers, "orders") == actives(workers, CHANGELOG) == {"x": {2, 5}, "y": {0, 3}, "z": {1, 4}}
    for worker in workers:
        # What requests for a key are routed by.
        tables = worker.app.assignor.tables_metadata()
        assert {p for of in tables.values() for p in of[CHANGELOG]} == set(range(6))
        sources = worker.app.assignor.external_topics_metadata()
        assert {p for of in sources.values() for p in of["orders"]} == set(range(6))
        assert all(CHANGELOG not in of for of in sources.values())


def test_the_rack_is_where_tools_look_for_it() -> None:
    worker = Worker("x", "a", ["orders"])
    sent = decode_subscription(worker.app.assignor.metadata({"orders"}))
    assert (sent.rack, sent.topics) == ("a", ("orders",))


def test_a_standby_takes_over_and_copies_are_in_other_racks() -> None:
    topics = layout(replicas=3)
    workers = [Worker(f"{rack}{i}", rack, [*topics], replicas=1) for rack in "abc" for i in (0, 1)]
    cluster = cluster_of(RACKS, topics)
    rebalance(workers, cluster)
    rack_of = {each.name: each.rack for each in workers}
    owner = {p: name for name, ids in actives(workers, CHANGELOG).items() for p in ids}
    copy = {p: name for name, ids in standbys(workers, CHANGELOG).items() for p in ids}
    assert owner.keys() == copy.keys() == set(range(6))
    assert all(rack_of[owner[p]] != rack_of[copy[p]] for p in owner)
    dead, rest = workers[0], workers[1:]
    rebalance(rest, cluster)
    now = {p: name for name, ids in actives(rest, CHANGELOG).items() for p in ids}
    assert now == {p: copy[p] if name == dead.name else name for p, name in owner.items()}


def test_a_worker_that_comes_gets_its_share_at_once() -> None:
    topics = layout(replicas=3)
    workers = [Worker("x", "a", [*topics], replicas=1), Worker("y", "b", [*topics], replicas=1)]
    cluster = cluster_of(RACKS, topics)
    rebalance(workers, cluster)
    workers.append(Worker("z", "c", [*topics], replicas=1))
    rebalance(workers, cluster)
    assert sorted(map(len, actives(workers, "orders").values())) == [2, 2, 2]


def test_a_global_table_is_read_by_all_as_a_whole() -> None:
    topics = layout() | {"app-rates-changelog": [[1]] * 6}
    workers = [Worker(name, rack, [*topics]) for name, rack in zip("xyz", "cab", strict=True)]
    for worker in workers:
        worker.app.GlobalTable("rates", partitions=6)
    rebalance(workers, cluster_of(RACKS, topics))
    assert all(ids == set(range(6)) for ids in actives(workers, "app-rates-changelog").values())
    assert local(workers, topics, "orders") == 6


def test_plain_workers_lead_and_follow() -> None:
    topics = layout()
    cluster = cluster_of(RACKS, topics)
    workers = [Worker("x", "c", [*topics]), Worker("y", None, [*topics]), Worker("z", "b", [*topics])]
    for leader in (0, 1, 2):
        rebalance(workers, cluster, leader)
        assert sorted(p for ids in actives(workers, "orders").values() for p in ids) == [*range(6)]
    assert local(workers, topics, "orders") >= 4


def test_without_racks_of_workers_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    topics = layout()
    workers = [Worker("x", "", [*topics]), Worker("y", "", [*topics])]
    for _ in range(2):
        rebalance(workers, cluster_of(RACKS, topics))
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "faust: no member of the group sends a rack"
    ]


def test_a_rack_that_no_broker_has_is_named_with_those_that_exist(caplog: pytest.LogCaptureFixture) -> None:
    topics = layout()
    rebalance([Worker("x", "use1-az9", [*topics])], cluster_of(RACKS, topics))
    assert "rack 'use1-az9' of member x matches no broker" in caplog.text
    assert "racks of brokers: a, b, c" in caplog.text


def test_if_planning_fails_the_group_gets_what_faust_assigns(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    topics = layout()
    monkeypatch.setattr(assignor, "plan_sticky", fails)
    workers = [Worker("x", "a", [*topics]), Worker("y", "b", [*topics])]
    for _ in range(2):
        rebalance(workers, cluster_of(RACKS, topics))
    assert sorted(p for ids in actives(workers, "orders").values() for p in ids) == [*range(6)]
    assert caplog.text.count("rack-aware assignment failed") == 1


def test_a_worker_with_an_odd_rack_costs_the_others_nothing() -> None:
    topics = layout()
    workers = [Worker(name, rack, [*topics]) for name, rack in zip("xyz", "cab", strict=True)]
    joined = {each.name: each.joins() for each in workers}
    odd = joined["x"].user_data.replace(b'"rackassign.rack": "c"', b'"rackassign.rack": [1]')
    joined["x"] = ConsumerProtocolMemberMetadata(0, [*topics], odd)
    given = workers[0].app.assignor.assign(cluster_of(RACKS, topics), joined)
    for each in workers:
        each.app.assignor.on_assignment(given[each.name])
    assert sorted(p for ids in actives(workers, "orders").values() for p in ids) == [*range(6)]
    assert local(workers[1:], topics, "orders") == 4


def test_an_app_with_the_setting_alone_counts_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = layout(replicas=3)
    workers = []
    for name, rack in zip("xyz", "cab", strict=True):
        monkeypatch.setenv("RACKASSIGN_RACK", rack)
        workers.append(Worker(name, None, [*topics], PartitionAssignor=RackAwarePartitionAssignor))
        assert workers[-1].app.assignor is not None
        workers[-1].rack = rack
    rebalance(workers, cluster_of(RACKS, topics))
    assert local(workers, {"orders": [each[:1] for each in topics["orders"]]}, "orders") == 6


def test_a_transport_of_another_kind_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    other = object()
    internals.prepare_consumers(other, lambda _: None, WarnOnce(logging.getLogger("test")))
    assert "the transport is not Faust's own for aiokafka" in caplog.text


def test_a_consumer_gets_the_rack_and_the_assignor_and_offers_roundrobin_still() -> None:
    async def prepared(**options: Any) -> tuple[Any, Any]:
        app = RackAwareApp("app", broker="kafka://127.0.0.1:1", client_rack="a", **options)
        consumer = AIOKafkaConsumer(partition_assignment_strategy=[RoundRobinPartitionAssignor])
        app.prepare_consumer(consumer)
        await consumer.stop()
        return app, consumer

    app, consumer = asyncio.run(prepared())
    assert aiokafka_internals.client_rack(consumer) == "a"
    assert aiokafka_internals.assignors(consumer) == (app.assignor, RoundRobinPartitionAssignor)
    assert app.locality().rack == "a"
    _, consumer = asyncio.run(prepared(locality="leader"))
    assert aiokafka_internals.client_rack(consumer) is None


def test_a_consumer_that_cannot_be_prepared_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    app: Any = RackAwareApp("app", broker="kafka://127.0.0.1:1", client_rack="a")
    for _ in range(2):
        app.prepare_consumer(object())
    assert caplog.text.count("a consumer could not be prepared: it may read across racks") == 1
    assert app.locality() is None


def test_faust_creates_its_consumers_by_the_transport_of_the_app() -> None:
    app: Any = RackAwareApp("app", broker="kafka://127.0.0.1:1", client_rack="a")
    assert app.transport.Consumer is not driver.Consumer
    assert issubclass(app.transport.Consumer, driver.Consumer)
    assert driver.Transport.Consumer is driver.Consumer


@pytest.mark.parametrize(("option", "value", "text"), [("locality", "near", "locality"), ("client_rack", 7, "rack")])
def test_an_option_that_is_not_valid_is_an_error_at_once(option: str, value: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        RackAwareApp("app", broker="kafka://127.0.0.1:1", **{option: value})


racks = st.sampled_from(["a", "b", "c", "elsewhere", None])


@given(
    crew=st.lists(st.tuples(racks, st.sampled_from([0, 0, 0, 1, 3])), min_size=1, max_size=6),
    leader=st.integers(0, 5),
    sizes=st.tuples(st.sampled_from([6, 6, 1, 4, 9]), st.integers(1, 9)),
    copies=st.integers(1, 3),
    replicas=st.integers(0, 2),
    leaves=st.lists(st.integers(0, 5), max_size=3),
)
def test_any_group_is_balanced_complete_and_as_local_as_faust_makes_it(
    crew: list[tuple[str | None, int]],
    leader: int,
    sizes: tuple[int, int],
    copies: int,
    replicas: int,
    leaves: list[int],
) -> None:
    topics = layout(partitions=sizes[0], replicas=copies)
    topics |= {f"t{i}": [[(p * 2 + i) % 3 + 1] for p in range(sizes[1])] for i in range(3)}
    cluster = cluster_of(RACKS, topics)
    workers = []
    for number, (rack, extra) in enumerate(crew):
        subscribed = ["orders", CHANGELOG, *(f"t{i}" for i in range(extra))]
        workers.append(Worker(f"w{number}", rack, subscribed, replicas=replicas))
    for gone in [None, *leaves]:
        if gone is not None and len(workers) > 1:
            del workers[gone % len(workers)]
        # As the leader's own Faust would assign the same join.
        first = workers[leader % len(workers)]
        plain: Any = faust.App("app", broker="kafka://127.0.0.1:1", table_standby_replicas=replicas)
        plain.Table("totals", default=int, partitions=6)
        joined = {each.name: each.joins() for each in workers}
        expected = plain.assignor.assign(cluster, joined)
        given = rebalance(workers, cluster, leader % len(workers))
        assert {name: each.encode() for name, each in given.items()} == {
            name: each.encode() for name, each in first.app.assignor.assign(cluster, joined).items()
        }
        check(workers, topics, expected, replicas, planned=first.rack is not None)


def check(
    workers: Sequence[Worker],
    topics: Mapping[str, Sequence[Sequence[int]]],
    expected: Mapping[str, Any],
    replicas: int,
    *,
    planned: bool,
) -> None:
    together: dict[tuple[int, frozenset[str]], list[str]] = defaultdict(list)
    rack_of = {each.name: each.rack for each in workers}
    for topic, partitions in topics.items():
        subscribers = frozenset(each.name for each in workers if topic in each.topics)
        if not subscribers:
            continue
        together[len(partitions), subscribers].append(topic)
        owned = actives(workers, topic)
        assert sorted(p for ids in owned.values() for p in ids) == [*range(len(partitions))]
        counts = [len(owned[name]) for name in subscribers]
        if planned:
            assert max(counts) - min(counts) <= 1
        copies = Counter(p for ids in standbys(workers, topic).values() for p in ids)
        wanted = min(replicas, len(subscribers) - 1)
        assert copies == Counter(dict.fromkeys(range(len(partitions)), wanted) if wanted else {})
        assert all(owned[name].isdisjoint(standbys(workers, topic)[name]) for name in owned)
    local_now = local_then = 0
    for same in together.values():
        assert all(actives(workers, topic) == actives(workers, same[0]) for topic in same)
        assert all(standbys(workers, topic) == standbys(workers, same[0]) for topic in same)
        for topic in set(same) - {CHANGELOG}:
            local_now += local(workers, topics, topic)
            for name, each in expected.items():
                given = internals.unpack(each.user_data)
                local_then += sum(
                    rack_of[name] in {RACKS[r] for r in topics[topic][p]}
                    for p in given.assignment.actives.get(topic, ())
                )
    # Sets of topics are balanced together here and each by itself in Faust, whose standbys also loosen the balance.
    if planned and not replicas and len(together) == 1:
        assert local_now >= local_then


@pytest.mark.parametrize(
    ("installed", "warnings"),
    [("0.11.3", 0), ("0.15.9", 0), ("0.10.24", 1), ("0.16.0", 1), ("1.11", 1), ("unknown", 1)],
)
def test_another_version_is_warned_about(
    installed: str, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(integrations, "version", lambda _: installed)
    monkeypatch.setattr(metadata, "version", lambda _: installed)
    once = WarnOnce(logging.getLogger("test"))
    for _ in range(2):
        integrations.warn_of_version("faust-streaming", (0, 11), (0, 15), once)
    expected = f"faust-streaming {installed} is not a version that rackassign supports: 0.11 to 0.15"
    assert [record.getMessage() for record in caplog.records] == [expected] * warnings


ONCE = WarnOnce(logging.getLogger("test"))


class FakeApplication:
    """As much of `quixstreams.Application` as is used."""

    def __init__(self, **options: Any) -> None:
        self.options = options


@pytest.fixture
def quix(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name in [name for name in sys.modules if name.startswith("rackassign.integrations.quix")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "quixstreams", SimpleNamespace(Application=FakeApplication))
    monkeypatch.setattr(metadata, "version", lambda _: "3.28.1")
    import rackassign.integrations.quix as module  # noqa: PLC0415 - with the fake

    yield module
    for name in [name for name in sys.modules if name.startswith("rackassign.integrations.quix")]:
        del sys.modules[name]


def topic(name: str, partitions: int = 3, *, changelog: bool = False) -> Any:
    return SimpleNamespace(name=name, is_changelog=changelog, broker_config=SimpleNamespace(num_partitions=partitions))


def application(streams: Mapping[str, Sequence[str]], changelogs: Mapping[str | None, Sequence[str]]) -> Any:
    topics = sorted({each for names in streams.values() for each in names})
    registry = SimpleNamespace(
        consumer_topics=[topic(name) for name in topics],
        get_stream_ids=lambda name: [stream for stream, names in streams.items() if name in names],
        get_topics_for_stream_id=lambda stream: list(streams[stream]),
    )
    stores = {
        stream: {f"store{i}": topic(name, changelog=True) for i, name in enumerate(names)}
        for stream, names in changelogs.items()
    }
    return SimpleNamespace(_dataframe_registry=registry, _topic_manager=SimpleNamespace(changelog_topics=stores))


def test_without_quix_streams_the_extra_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'rackassign\[quix\]'"):
        import rackassign.integrations.quix  # noqa: F401, PLC0415 - raises


@pytest.mark.parametrize(
    ("streams", "changelogs", "subscribed", "expected"),
    [
        ({"orders": ["orders"]}, {}, ["orders"], []),
        ({"orders": ["orders"]}, {"orders": ["c1", "c2"]}, ["orders", "c1", "c2"], [("c1", "c2", "orders")]),
        # Independent streams stay so, and merged ones take along what belongs to each.
        ({"a": ["a"], "b": ["b"]}, {"a": ["ca"]}, ["a", "b", "ca"], [("a", "ca")]),
        (
            {"a": ["a"], "b": ["b"], "ab": ["a", "b"]},
            {"a": ["ca"], "ab": ["cab"]},
            ["a", "b", "ca", "cab"],
            [("a", "b", "ca", "cab")],
        ),
        # What is not subscribed to is in no set.
        ({"a": ["a"]}, {"a": ["ca"], None: ["of a source"]}, ["a"], []),
    ],
)
def test_topics_of_connected_streams_and_their_changelogs_are_one_set(
    quix: Any,
    streams: Mapping[str, Sequence[str]],
    changelogs: Mapping[str | None, Sequence[str]],
    subscribed: Sequence[str],
    expected: Sequence[tuple[str, ...]],
) -> None:
    topics = [topic(name) for name in subscribed]
    assert quix.copartitioned(application(streams, changelogs), topics, ONCE) == expected


def test_if_the_registry_differs_topics_of_one_size_stay_together(quix: Any, caplog: pytest.LogCaptureFixture) -> None:
    topics = [topic("a"), topic("b", 4), topic("c")]
    assert quix.copartitioned(SimpleNamespace(), topics, ONCE) == [("a", "c")]
    assert "topics with equal numbers of partitions stay together" in caplog.text


class FakeInternalConsumer:
    """As much of `InternalConsumer` as is used."""

    def __init__(self) -> None:
        self._consumer_config = {"group.id": "g"}
        self._inner_consumer: Any = None
        self.subscribed: list[Any] = []

    def subscribe(self, topics: list[Any], on_assign: Any = None) -> None:
        self.subscribed.append((self._inner_consumer, topics, on_assign))


def test_the_consumer_is_created_with_the_first_subscription(quix: Any) -> None:
    consumer = FakeInternalConsumer()
    quix.create_when_subscribed(consumer, lambda config, topics: (config, len(topics)), ONCE)
    assert consumer._inner_consumer is None
    consumer.subscribe(["t"], on_assign="callback")
    assert consumer.subscribed == [(({"group.id": "g"}, 1), ["t"], "callback")]


def test_a_consumer_that_differs_keeps_its_own(quix: Any, caplog: pytest.LogCaptureFixture) -> None:
    consumer = FakeInternalConsumer()
    consumer._inner_consumer = "used already"
    quix.create_when_subscribed(consumer, lambda *_: pytest.fail("created"), WarnOnce(logging.getLogger("x")))
    consumer.subscribe(["t"])
    assert consumer.subscribed == [("used already", ["t"], None)]
    assert "the group uses range, without racks" in caplog.text
