"""The producer of confluent-kafka, and the thread that reads the leaders for it, without brokers."""

from __future__ import annotations

import gc
import logging
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection

from rackassign.clients.confluent import RackAwareProducer, _producer
from rackassign.clients.confluent._config import ProducerConfig
from rackassign.clients.confluent._producer import Broker, Leaders, LeaderWatch, WriteStatistics, read_leaders
from rackassign.clients.fetch_metrics import Traffic
from rackassign.clients.write_metrics import WriteMeter, meter_of
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.testing.harness import TIMEOUT_S, wait_until
from tests.helpers.librdkafka_statistics import partition, statistics_json

OFFLINE: dict[str, Any] = {"bootstrap.servers": "localhost:1", "log_level": 0}
needs_exit = pytest.mark.skipif(not hasattr(Producer, "__exit__"), reason="needs confluent-kafka 2.13")
NODES = {1: Broker("a"), 2: Broker("b")}
begin = LeaderWatch.begin
LEADERS = Leaders(NODES, {"t": {0: 1, 1: 2, 2: 2, 3: -1}})


class Sent:
    """A producer that knows the leaders, and the records that it gives to librdkafka."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], leaders: Leaders = LEADERS) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.refused: set[int] = set()
        monkeypatch.setattr(_producer, "_produce", self._take)
        # Leaders change only when a test says so.
        monkeypatch.setattr(LeaderWatch, "begin", lambda *_: None)
        self.producer = RackAwareProducer({**OFFLINE, "client.rack": "b", **given})
        self.watch: LeaderWatch = vars(self.producer)["_watch"]
        self.watch.leaders = leaders

    def _take(self, _: Producer, topic: str, value: Any, key: Any, partition: int, *more: Any) -> None:
        if partition in self.refused:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        self.records.append((topic, value, key, partition, more))

    def partitions(self, number: int, **given: Any) -> list[int]:
        """Produce so many records; return their partitions."""
        before = len(self.records)
        for _ in range(number):
            self.producer.produce("t", b"x", **given)
        return [record[3] for record in self.records[before:]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Return a producer that keeps a partition as long as a test lasts."""
    return Sent(monkeypatch, {"sticky.partitioning.linger.ms": 900_000})


def test_a_partition_in_the_rack_is_kept_until_librdkafka_would_leave_it(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (used,) = set(sent.partitions(1000))
    assert used in {1, 2}
    begun = monotonic()
    monkeypatch.setattr(_producer, "monotonic", lambda: begun + 899)
    assert set(sent.partitions(1000)) == {used}
    monkeypatch.setattr(_producer, "monotonic", monotonic)


def test_without_stickiness_each_record_gets_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch, {"sticky.partitioning.linger.ms": 0})
    assert Counter(sent.partitions(10)) == {1: 5, 2: 5}


def test_keys_partitions_and_all_other_arguments_are_passed_on(sent: Sent) -> None:
    report = print
    assert sent.partitions(50, key=b"k") == [-1] * 50
    assert sent.partitions(50, partition=0) == [0] * 50
    sent.producer.produce("t", None, None, -1, on_delivery=report, headers={"h": b""}, timestamp=7)
    topic, value, key, partition, more = sent.records[-1]
    assert (topic, value, key, more) == ("t", None, None, (report, None, 7, {"h": b""}))
    assert partition in {1, 2}


def test_the_first_record_of_a_topic_waits_for_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_producer, "_FIRST_RECORD_S", TIMEOUT_S)
    sent = Sent(monkeypatch, {}, Leaders())

    def slow(_: object, topics: Iterable[str], __: object) -> Leaders:
        sleep(0.05)
        return Leaders(NODES, dict.fromkeys(topics, LEADERS.topics["t"]))

    monkeypatch.setattr(_producer, "read_leaders", slow)
    begin(sent.watch, sent.producer)
    assert set(sent.partitions(100)) <= {1, 2}


def test_leaders_can_be_awaited_so_that_the_first_records_are_written_locally_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = Sent(monkeypatch, {}, Leaders())
    assert not sent.producer.await_leaders("t", 0.01)
    looked = threading.Event()

    def slow(_: object, topics: Iterable[str], __: object) -> Leaders:
        assert looked.wait(TIMEOUT_S)
        return Leaders(NODES, dict.fromkeys(topics, LEADERS.topics["t"]))

    monkeypatch.setattr(_producer, "read_leaders", slow)
    begin(sent.watch, sent.producer)
    threading.Timer(0.3, looked.set).start()
    assert sent.producer.await_leaders("t", TIMEOUT_S)
    assert set(sent.partitions(100)) <= {1, 2}


def test_if_no_broker_responds_one_record_waits_and_librdkafka_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch, {}, Leaders())
    waits: list[float] = []

    def look(_: object, topics: Iterable[str], __: object) -> Leaders:
        return Leaders(NODES, dict.fromkeys(topics, LEADERS.topics["t"]))

    def wait_for(_: object, timeout_s: float) -> bool:
        waits.append(timeout_s)
        return False

    monkeypatch.setattr(_producer, "read_leaders", look)
    monkeypatch.setattr(vars(sent.watch)["_read"], "wait_for", wait_for)
    assert set(sent.partitions(100)) == {-1}
    sent.producer.produce("u", b"x")
    assert waits == [0.1]
    begin(sent.watch, sent.producer)
    wait_until(lambda: set(sent.partitions(1)) <= {1, 2}, "leaders")
    # The brokers respond again.
    sent.producer.produce("v", b"x")
    assert waits == [0.1, 0.1]


class Taking:
    """Stands for a producer, with what librdkafka knows of a topic after each request."""

    def __init__(self, *taken: set[int]) -> None:
        self.taken = list(taken)

    def list_topics(self, topic: str, _: float) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=self.taken.pop(0))})


def test_the_producer_learns_of_new_partitions_before_they_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka itself would ask within 5 minutes, and until then refuse what the thread has seen."""
    more = Leaders(NODES, {"t": {0: 1, 1: 2, 2: 2, 3: -1, 4: 2}})
    looks = Looks(monkeypatch, LEADERS, more)
    watch, producer = LeaderWatch({}, 0.001), Taking({0, 1, 2, 3}, {0, 1, 2, 3, 4})
    watch.begin(cast("Producer", producer))
    watch.add("t")
    wait_until(lambda: watch.leaders == more, "all partitions")
    asked = len(looks.asked)
    wait_until(lambda: len(looks.asked) > asked + 3, "some looks")
    assert producer.taken == []
    watch.stop()


def test_what_the_producer_refuses_is_looked_at_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, LEADERS)
    watch, producer = LeaderWatch({}, 600), Taking({0, 1})
    watch.begin(cast("Producer", producer))
    watch.add("t")
    watch.refuse("t")
    wait_until(lambda: watch.leaders == Leaders(NODES, {"t": {0: 1, 1: 2}}), "only what is taken")
    watch.stop()


def test_a_partition_that_is_gone_is_not_insisted_on(sent: Sent) -> None:
    sent.refused = {1, 2}
    assert sent.partitions(5) == [-1] * 5
    sent.refused = {0}
    with pytest.raises(KafkaException):
        sent.producer.produce("t", b"", partition=0)


def test_a_batch_is_divided_by_partition(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, list[int]]] = []

    class Recorder:
        def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int, **more: Any) -> int:
            assert (topic, more) == ("t", {"on_delivery": print})
            calls.append((partition, [message["value"] for message in messages]))
            return len(messages)

    monkeypatch.setattr(_producer, "super", lambda *_: Recorder(), raising=False)
    messages: list[dict[str, Any]] = [{"value": b"%02d" % number + b"x" * 78} for number in range(15)]
    messages[3]["key"], messages[4]["partition"] = b"k", 7
    assert sent.producer.produce_batch("t", messages, on_delivery=print) == 15
    found = dict(calls)
    assert found[-1] == [messages[3]["value"], messages[4]["value"]]
    assert sorted(map(len, found.values())) == [2, 13]
    assert set(found) in ({-1, 1}, {-1, 2})
    assert sent.producer.produce_batch("t", messages, 0, on_delivery=print) == 15
    assert calls[-1][0] == 0
    assert all("partition" not in message for message in messages if message is not messages[4])


@pytest.mark.parametrize("message", [5, None, b"x"])
def test_a_batch_of_something_else_is_refused_as_by_the_stock_producer(message: Any) -> None:
    for kind in (Producer, RackAwareProducer):
        with pytest.raises(TypeError, match="Message at index 0 must be a dict"):
            kind({**OFFLINE, "client.rack": "b"}).produce_batch("t", [message])


def test_a_batch_for_a_partition_that_librdkafka_does_not_know_yet_goes_anywhere(
    sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    class Refusing:
        def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
            assert topic == "t"
            calls.append(partition)
            if partition == -1:
                return sum("_error" not in message for message in messages)
            for message in messages:
                message["_error"] = KafkaError(KafkaError._UNKNOWN_PARTITION)
            return 0

    monkeypatch.setattr(_producer, "super", lambda *_: Refusing(), raising=False)
    messages: list[dict[str, Any]] = [{"value": b"x"} for _ in range(3)]
    assert sent.producer.produce_batch("t", messages) == 3
    assert (len(calls), calls[-1], messages) == (2, -1, [{"value": b"x"}] * 3)


@pytest.mark.parametrize(
    ("given", "keep_s", "refresh_s"),
    [
        ({}, 0.01, 30),
        ({"linger.ms": "100.5"}, 0.201, 30),
        ({"linger.ms": 900_000}, 900, 30),
        ({"queue.buffering.max.ms": 20}, 0.04, 30),
        ({"linger.ms": 20, "sticky.partitioning.linger.ms": "5"}, 0.005, 30),
        ({"sticky.partitioning.linger.ms": 0}, 0, 30),
        ({"topic.metadata.refresh.interval.ms": 500}, 0.01, 0.5),
        ({"topic.metadata.refresh.interval.ms": -1}, 0.01, 30),
        ({"topic.metadata.refresh.interval.ms": 300_000}, 0.01, 30),
    ],
)
def test_a_choice_is_kept_as_long_as_librdkafka_would(given: dict[str, Any], keep_s: float, refresh_s: float) -> None:
    config = ProducerConfig.of(given)
    assert (config.keep_s, config.refresh_s) == (keep_s, refresh_s)


@pytest.mark.parametrize("config", [{"linger.ms": "soon"}, {"sticky.partitioning.linger.ms": None}, [], {1: 2}])
def test_a_property_that_is_no_number_is_refused(config: Any) -> None:
    with pytest.raises(ConfigError):
        RackAwareProducer(config)


def test_the_rack_is_that_of_the_consumers(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("RACKASSIGN_RACK", "a")
    assert set(Sent(monkeypatch, {"client.rack": None}).partitions(3)) == {0}
    monkeypatch.delenv("RACKASSIGN_RACK")
    assert set(Sent(monkeypatch, {"client.rack": None}).partitions(3)) == {-1}
    assert caplog.messages == ["the producer has no rack, so records go to leaders in all racks"]


def test_a_zone_hint_is_in_the_client_id(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def hinted(*given: object) -> str:
        seen.extend(given)
        return "app"

    monkeypatch.setattr(_producer, "client_id_with_zone", hinted)
    RackAwareProducer({**OFFLINE, "client.rack": "a"}, zone_hint="inkless")
    assert seen == ["inkless", "rdkafka", "a"]


class Looks:
    """Stands for the brokers: what each look finds, the last one again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: Leaders | Exception) -> None:
        self.found = list(found)
        self.asked: list[list[str]] = []
        monkeypatch.setattr(_producer, "read_leaders", self._read)
        self.clients = 0
        monkeypatch.setattr(_producer, "AdminClient", self._connect)
        monkeypatch.setattr(_producer, "_RETRY_S", 0.001)

    def _connect(self, _: object) -> object:
        self.clients += 1
        return SimpleNamespace(poll=lambda _: 0)

    def _read(self, _: object, topics: list[str], __: Leaders) -> Leaders:
        self.asked.append(list(topics))
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found


def test_a_look_that_fails_after_the_producer_was_closed_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def close_and_fail(*_: object) -> Leaders:
        watch.stop()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    Looks(monkeypatch, LEADERS)
    monkeypatch.setattr(_producer, "read_leaders", close_and_fail)
    watch, before = LeaderWatch({}, 600), threads()
    watch.begin(cast("Producer", Taking()))
    wait_until(lambda: threads() == before, "the end of the thread")
    assert not caplog.records


def test_a_look_that_fails_is_repeated_and_keeps_what_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failure = KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker"))
    looks = Looks(monkeypatch, failure, failure, LEADERS)
    watch = LeaderWatch({}, 600)
    watch.add("t")
    watch.begin(cast("Producer", Taking()))
    wait_until(lambda: watch.leaders == LEADERS, "leaders")
    assert looks.asked == [["t"]] * 3
    # A client that has failed may wait for a broker that is gone.
    assert looks.clients == 3
    (message,) = caplog.messages
    assert message.startswith("leaders of topics cannot be read, so records may go to leaders in all racks: ")
    # The next topic is looked for at once, and without those that are known.
    watch.add("u")
    watch.add("u")
    assert looks.asked[3] == ["u"]
    watch.stop()


@pytest.mark.parametrize("name", ["", "a topic", "x" * 250, "\ud800", b"t", None, 5])
def test_a_name_that_no_topic_can_have_does_not_hide_the_leaders_of_others(
    monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    looks = Looks(monkeypatch, LEADERS)
    with RackAwareProducer({**OFFLINE, "client.rack": "b"}) as producer:
        with suppress(TypeError, UnicodeError, KafkaException):
            producer.produce(name, b"x")
        assert producer.await_leaders("t", TIMEOUT_S)
        producer.purge()
    assert all(set(topics) <= {"t"} for topics in looks.asked)


def test_the_client_that_reads_leaders_asks_for_no_producer_id_and_logs_where_the_producer_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "librdkafka")
    monkeypatch.setattr(_producer, "_REQUEST_S", 0.1)
    idempotent = {"bootstrap.servers": "localhost:1", "enable.idempotence": True, "debug": "eos,broker"}
    producer = RackAwareProducer({**idempotent, "client.rack": "b"}, logger=logging.getLogger("librdkafka"))
    # Without a `poll()` of the producer, which its own messages wait for.
    wait_until(lambda: "connection refused" in caplog.text.lower(), "messages of the client that reads leaders")
    assert "producer id" not in caplog.text.lower()
    assert "idempotent" not in caplog.text.lower()
    producer.close()


class Described:
    """Stands for an admin client: what it describes, or an error, by topic."""

    def __init__(self, found: dict[str, dict[int, int | None] | int]) -> None:
        self.found = found
        self.requests: list[int] = []

    def describe_cluster(self, **_: object) -> Future[Any]:
        return done(SimpleNamespace(nodes=[SimpleNamespace(id=1, rack="a"), SimpleNamespace(id=2, rack="")]))

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Future[Any]]:
        self.requests.append(len(topics.topic_names))
        return {name: self._topic(self.found[name]) for name in topics.topic_names}

    def _topic(self, found: dict[int, int | None] | int) -> Future[Any]:
        if isinstance(found, int):
            return done(KafkaException(KafkaError(found)))
        rows = [
            SimpleNamespace(id=number, leader=None if leader is None else SimpleNamespace(id=leader))
            for number, leader in found.items()
        ]
        return done(SimpleNamespace(partitions=rows))


def done(result: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def test_leaders_that_have_not_changed_stay_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the partitions of a topic are not listed again."""
    equal = Leaders(dict(NODES), {"t": dict(LEADERS.topics["t"])})
    looks = Looks(monkeypatch, LEADERS, equal)
    watch = LeaderWatch({}, 0.001)
    watch.begin(cast("Producer", Taking()))
    watch.add("t")
    first = watch.leaders
    wait_until(lambda: len(looks.asked) > 3, "some looks")
    assert watch.leaders is first == LEADERS
    watch.stop()


def test_a_topic_that_cannot_be_described_now_keeps_its_leaders_and_one_that_is_gone_does_not() -> None:
    before = Leaders(NODES, {"late": {0: 1}, "gone": {0: 1}})
    admin: Any = Described(
        {
            "t": {0: 1, 1: None},
            "late": KafkaError.LEADER_NOT_AVAILABLE,
            "gone": KafkaError.UNKNOWN_TOPIC_OR_PART,
            "denied": KafkaError.TOPIC_AUTHORIZATION_FAILED,
        }
    )
    seen = read_leaders(admin, ["t", "late", "gone", "denied"], before)
    assert seen == Leaders({1: Broker("a"), 2: Broker(None)}, {"t": {0: 1, 1: -1}, "late": {0: 1}})


def test_a_request_without_a_response_is_an_error() -> None:
    admin: Any = Described({"t": KafkaError._TIMED_OUT})
    with pytest.raises(KafkaException):
        read_leaders(admin, ["t"], LEADERS)


def test_many_topics_are_described_in_several_requests() -> None:
    admin: Any = Described({f"t{number}": {0: 1} for number in range(450)})
    seen = read_leaders(admin, admin.found, Leaders())
    assert seen.topics == admin.found
    assert admin.requests == [200, 200, 50]


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "rackassign-leaders"}


@pytest.mark.parametrize("end", ["close", pytest.param("exit", marks=needs_exit), "release"])
def test_the_thread_ends_with_the_producer(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    Looks(monkeypatch, LEADERS)
    before = threads()
    producer: RackAwareProducer | None = RackAwareProducer({**OFFLINE, "client.rack": "b"})
    (thread,) = threads() - before
    assert producer is not None
    if end == "close":
        producer.close()
    elif end == "exit":
        with producer:
            pass
    else:
        producer = None
        gc.collect()
    wait_until(lambda: not thread.is_alive(), "the end of the thread")


def test_what_librdkafka_reports_is_counted_also_after_it_has_begun_again() -> None:
    meter, seen = WriteMeter("a", {1: "a", 2: "b"}.get), list[str]()
    statistics = WriteStatistics(meter, seen.append)
    reports = [
        [partition(0, broker=1, txbytes=100, txmsgs=10), partition(1, broker=2, txbytes=7, txmsgs=1)],
        [partition(0, broker=1, txbytes=150, txmsgs=15), partition(1, broker=2, txbytes=7, txmsgs=1)],
        [partition(0, broker=2, txbytes=160, txmsgs=16)],
        [partition(0, broker=2, txbytes=20, txmsgs=2)],
    ]
    for made, report in enumerate(reports):
        statistics(statistics_json(report, made_us=made))
    # Another thread had got these before, and was slower.
    statistics(statistics_json(reports[1], made_us=1))
    assert meter.locality().topics == {"t": {"a": Traffic(150, 15), "b": Traffic(37, 4)}}
    assert len(seen) == 5


def test_what_was_sent_to_a_leader_that_is_gone_since_is_still_counted_in_its_rack() -> None:
    meter = WriteMeter("a", {1: "a", 2: "b"}.get)
    statistics = WriteStatistics(meter, None)
    for made, (broker, records) in enumerate([(1, 4), (-1, 10), (2, 12), (-1, 13), (1, 13)]):
        statistics(statistics_json([partition(0, broker=broker, txbytes=10 * records, txmsgs=records)], made_us=made))
    assert meter.locality().topics == {"t": {"a": Traffic(100, 10), "b": Traffic(30, 3)}}


def test_statistics_that_cannot_be_read_are_reported_once_and_passed_on(warnings: pytest.LogCaptureFixture) -> None:
    seen = list[str]()
    statistics = WriteStatistics(WriteMeter(None, {1: "a"}.get), seen.append)
    for _ in range(2):
        statistics("no JSON")
    assert (len(warnings.records), seen) == (1, ["no JSON"] * 2)


def test_what_a_producer_in_a_rack_without_brokers_writes_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch, {"client.rack": "d", "statistics.interval.ms": 100})
    meter_of(sent.producer)(1, [(TopicPartition("t", 0), Traffic(10, 1))])
    assert (sent.producer.locality().unknown(), sent.producer.locality().cross()) == (Traffic(10, 1), Traffic())


def test_without_statistics_nothing_is_counted_and_that_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"statistics.interval.ms is not set"):
        RackAwareProducer({**OFFLINE, "client.rack": "b"}).locality()
    with pytest.raises(ConfigError, match="stats_cb"):
        RackAwareProducer({**OFFLINE, "stats_cb": 5})
