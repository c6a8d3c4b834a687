"""The examples with state on a Kafka in memory, and the checker that compares them with independent results."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaError, MessageSizeTooLargeError, UnknownError

from examples import deduplicate, join_orders, windowed_count, word_count
from examples.exactly_once import stateful
from rackassign.stateful import Output, Punctuate
from rackassign.stateful._stores import AnyStore
from tests.helpers.documents import blocks
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.stateful_consumers import FIRST, drain, give, member
from tests.helpers.stateful_results import (
    HOUR_MS,
    MINUTE_MS,
    Result,
    differences,
    expected_deduplication,
    expected_join,
    expected_windows,
    read,
)

JOIN = join_orders.Join("t")
JOINED: Sequence[AnyStore] = [join_orders.joined, join_orders.unpaid, join_orders.totals]
JOINS: Sequence[AnyStore] = [join_orders.orders, join_orders.payments, join_orders.due, *JOINED]


def play(folder: Path, *topics: str, last: Callable[[], None] = lambda: None, **options: Any) -> dict[bytes, bytes]:
    """Process everything with one member after the other, each without files; return the state of the task."""
    # `last`: writes what comes after everything else was processed.
    for number in range(3):
        with member(folder / f"{number}", *topics, max_poll_records=7, **options) as one:
            give(one, 0)
            for _ in range(5):
                one.poll(0)
    with member(folder / "last", *topics, max_poll_records=7, **options) as one:
        give(one, 0)
        drain(one)
        last()
        drain(one)
        return dict(one._shelf.open(FIRST).between(b"\1", b"\4"))


def feed(kafka: Kafka, key: str | bytes | None, at_ms: int, value: bytes | None = b"", topic: str = "t") -> None:
    kafka.append(topic, 0, key.encode() if isinstance(key, str) else key, value, timestamp=at_ms)


ODD: Sequence[tuple[bytes | None, bytes | None]] = [
    (None, b'{"amount": 1}'),
    (None, None),
    (b"", None),
    (b"", b""),
    (b"", b"{}"),
    (b"order-7", None),
    (b"order-8", b""),
    (b"\xff\0", b"{}"),
    *((b"order-9", value) for value in (b"5", b"[]", b"null", b"text", b"\xff", b'{"a": NaN}', b"[" * 9999)),
]
"""Keys and values that others have not: null, empty, tombstones, no text, no JSON, and no objects."""


def feed_odd(kafka: Kafka, *topics: str) -> None:
    for topic in topics:
        for key, value in (*ODD, *ODD):
            feed(kafka, key, 7 * HOUR_MS, value, topic)


def records(kafka: Kafka, topic: str = "t") -> list[Record]:
    return kafka.topics[topic].logs[0]


def windows(kafka: Kafka, folder: Path) -> tuple[Result, list[Any]]:
    dice = random.Random(5)
    feed_odd(kafka, "t")
    for number in range(400):
        feed(kafka, dice.choice("abc"), 7 * HOUR_MS + number * 9000 - dice.choice([0, 0, 0, 30_000, 20 * MINUTE_MS]))
    used: list[AnyStore] = [windowed_count.counts, windowed_count.closed, windowed_count.late]
    state = play(
        folder,
        process=windowed_count.process,
        stores=[*used, windowed_count.times],
        punctuate=[Punctuate(windowed_count.close_windows, 60)],
    )
    return read(state, *used), [records(kafka)]


def deduplication(kafka: Kafka, folder: Path) -> tuple[Result, list[Any]]:
    dice = random.Random(6)
    feed_odd(kafka, "t")
    for number in range(400):
        feed(kafka, f"id-{dice.randrange(90)}", 7 * HOUR_MS + number * MINUTE_MS - dice.choice([0, 10 * MINUTE_MS]))
    used: list[AnyStore] = [deduplicate.passed, deduplicate.totals]
    state = play(folder, process=deduplicate.process, stores=[deduplicate.seen, *used])
    return read(state, *used), [records(kafka)]


def join(kafka: Kafka, folder: Path) -> tuple[Result, list[Any]]:
    dice = random.Random(7)
    kafka.make("u")
    feed_odd(kafka, "t", "u")
    for number in range(300):
        at_ms, value = 7 * HOUR_MS + number * 20_000, json.dumps({"amount": dice.randrange(99)}).encode()
        for _ in range(dice.choice([1, 1, 1, 2])):
            feed(kafka, f"order-{number}", at_ms, value)
        for _ in range(dice.choice([0, 1, 1, 2])):
            feed(kafka, f"order-{number}", at_ms + dice.randrange(-5, 25) * MINUTE_MS, value, "u")

    def last() -> None:
        # Before that, orders may be read after payments of a later time, and are reported when that has passed too.
        feed(kafka, "last", 16 * HOUR_MS, b"{}", "u")

    state = play(
        folder,
        *("t", "u"),
        last=last,
        copartitioned=True,
        process=JOIN.process,
        stores=JOINS,
        punctuate=[Punctuate(JOIN.report_unpaid, 60)],
    )
    return read(state, *JOINED), [records(kafka), records(kafka, "u")]


Example = Callable[[Kafka, Path], tuple[Result, list[Any]]]

EXAMPLES: Mapping[Example, Callable[..., Result]] = {
    windows: expected_windows,
    deduplication: expected_deduplication,
    join: expected_join,
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_result_is_that_of_an_independent_computation(kafka: Kafka, tmp_path: Path, example: Example) -> None:
    found, given = example(kafka, tmp_path)
    assert all(len(content) > 1 for content in found.values())
    assert differences({0: found}, {0: EXAMPLES[example](*given)}) == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_checker_reports_a_record_that_counted_twice_or_not_at_all(
    kafka: Kafka, tmp_path: Path, example: Example
) -> None:
    found, given = example(kafka, tmp_path)
    for topic, log in enumerate(given):
        for number in (0, len(log) // 2, len(log) - 1):
            for wrong in (without(log, number), twice(log, number)):
                other = EXAMPLES[example](*given[:topic], wrong, *given[topic + 1 :])
                assert differences({0: found}, {0: other}), (topic, number)


def without(log: Sequence[Any], number: int) -> list[Any]:
    return [*log[:number], *log[number + 1 :]]


def twice(log: Sequence[Any], number: int) -> list[Any]:
    return [*log[: number + 1], *log[number:]]


def test_the_code_in_the_documentation_is_that_of_the_examples() -> None:
    page = blocks("docs/how-to/joins-and-windows.md")
    programs = [block.text for block in page if block.language == "python"]
    sources = [Path(str(module.__file__)).read_text("utf-8") for module in (join_orders, deduplicate, windowed_count)]
    own = [block for block in programs if not any(block in source for source in sources)]
    assert len(programs) > len(own)
    # How results are written to a topic is not part of an example.
    assert ["producer.send" in block for block in own] == [True]


class Producer:
    """One as kafka-python's: futures have the errors, and `flush` raises others for a batch that is split."""

    def __init__(self, **_: object) -> None:
        self.refuses = b""
        self.values: list[bytes] = []

    def send(self, _: str, key: bytes, value: bytes) -> Producer.Sent:
        error = MessageSizeTooLargeError() if self.refuses and key.startswith(self.refuses) else None
        self.values += [] if error else [value]
        return Producer.Sent(error)

    def flush(self) -> None:
        raise UnknownError("Future not done")

    @dataclass
    class Sent:
        error: KafkaError | None

        def get(self) -> None:
            if self.error is not None:
                raise self.error


def test_a_result_stays_in_the_state_until_its_record_is_written(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka.KafkaProducer", Producer)
    page = blocks("docs/how-to/joins-and-windows.md")
    (recipe,) = [block for block in page if "producer.send" in block.text]
    code = recipe.text.replace("interval_s=10", "interval_s=0.05")
    names: dict[str, Any] = {"closed": windowed_count.closed, "close_windows": windowed_count.close_windows}
    exec(compile(code, recipe.place, "exec"), names)  # noqa: S102 - our own documentation
    producer = names["producer"]
    producer.refuses = b"b@"
    for key in "abc":
        feed(kafka, key, 0)
    feed(kafka, "later", HOUR_MS)
    used: list[AnyStore] = [windowed_count.counts, windowed_count.closed, windowed_count.late, windowed_count.times]
    with member(tmp_path, process=windowed_count.process, stores=used, punctuate=names["punctuate"]) as one:
        give(one, 0)

        def rows() -> list[bytes]:
            return [key for (key, _), _ in one.store(FIRST)[windowed_count.closed].items()]

        drain(one)
        raised = 0
        while raised < 3 and rows():
            try:
                one.poll(0)
            except MessageSizeTooLargeError:
                raised += 1
        assert (raised, rows()) == (3, [b"a", b"b", b"c"])
        producer.refuses = b""
        producer.values.clear()
        while rows():
            one.poll(0)
        assert producer.values == [b"1"] * 3


def test_differences_are_named() -> None:
    found = {0: {"totals": {"a": 1, "b": 2}}, 1: {"totals": {"a": 1}}}
    assert differences(found, found) == []
    assert differences(found, {0: {"totals": {"a": 1, "b": 3, "c": 4}}}) == [
        "0 totals 'b': found 2, expected 3",
        "0 totals 'c': found None, expected 4",
        "1 totals 'a': found 1, expected None",
    ]


def test_an_order_whose_payment_is_read_late_is_joined_and_no_longer_reported(kafka: Kafka, tmp_path: Path) -> None:
    kafka.make("u")
    feed(kafka, "o", 0, b"{}")
    feed(kafka, "p", HOUR_MS, b"{}")
    options: dict[str, Any] = {
        "copartitioned": True,
        "process": JOIN.process,
        "stores": JOINS,
        "punctuate": [Punctuate(JOIN.report_unpaid, 60)],
    }
    with member(tmp_path, "t", "u", **options) as one:
        give(one, 0)
        drain(one)
        state = one.store(FIRST)
        assert dict(state[join_orders.unpaid].items()) == {b"o": {"at": 0}}
        feed(kafka, "o", 15 * MINUTE_MS, b"{}", "u")
        drain(one)
        assert dict(one.store(FIRST)[join_orders.unpaid].items()) == {}
        assert dict(one.store(FIRST)[join_orders.joined].items()) == {
            b"o": {"order": {"at": 0}, "payment": {"at": 15 * MINUTE_MS}}
        }


class Bytes(dict[bytes, bytes]):
    """A store of bytes."""

    def put(self, key: bytes, value: bytes) -> None:
        assert isinstance(key, bytes)
        self[key] = value


def test_programs_that_count_take_null_and_empty_keys_and_values(kafka: Kafka) -> None:
    feed_odd(kafka, "t")
    (page,) = [each for each in blocks("docs/how-to/exactly-once.md") if "StatefulConsumer" in each.text]
    names: dict[str, Any] = {}
    exec(page.text[: page.text.index("with StatefulConsumer(")], names)  # noqa: S102 - our own documentation
    for number in (stateful.number, names["number"]):
        store: Any = Bytes()
        output = Output(["out"], lambda _: 1)
        output.begin()
        for record in records(kafka):
            number(record, store, output)
        output.keep()
        assert len(output.take()) == len(ODD) * 2
        assert sum(map(int, store.values())) == len(ODD) * 2
    words: Any = Bytes()
    for record in records(kafka):
        word_count.count(record, words)
    expected = Counter(word for _, value in (*ODD, *ODD) for word in (value or b"").split())
    assert words == {word: b"%d" % count for word, count in expected.items()}
