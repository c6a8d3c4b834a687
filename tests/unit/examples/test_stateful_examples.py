"""The examples with state on a Kafka in memory, and the checker that compares them with independent results."""

from __future__ import annotations

import json
import random
import time
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
from rackassign.stateful._inputs import in_order
from rackassign.stateful._stores import AnyStore
from tests.helpers.documents import blocks
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
from tests.helpers.tasks import Record, Task

JOIN = join_orders.Join("t")
JOINED: Sequence[AnyStore] = [join_orders.joined, join_orders.unpaid, join_orders.totals]
JOINS: Sequence[AnyStore] = [join_orders.orders, join_orders.payments, join_orders.due, *JOINED]


Topic = list[Record]


def play(folder: Path, *topics: Topic, last: Topic | None = None, **options: Any) -> dict[bytes, bytes]:
    """Process everything with one owner after the other, each with a new file; return the state of the task."""
    # `last`: what comes after everything else was processed.
    task = Task(folder / "0", *options.values())
    for number in range(1, max(map(len, topics)) // 7 + 2):
        task.play(in_order([topic[(number - 1) * 7 : number * 7] for topic in topics]))
        if number % 20 == 0:
            task = task.successor(folder / f"{number}", *options.values())
    task.play(last or ())
    task.play(())
    return dict(task.file.between(b"\1", b"\4"))


def feed(log: Topic, key: str | bytes | None, at_ms: int, value: bytes | None = b"", topic: str = "t") -> None:
    log.append(Record(len(log), key.encode() if isinstance(key, str) else key, value, at_ms, topic))


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


def odd(topic: str = "t") -> Topic:
    log: Topic = []
    for key, value in (*ODD, *ODD):
        feed(log, key, 7 * HOUR_MS, value, topic)
    return log


def windows(folder: Path) -> tuple[Result, list[Topic]]:
    dice, log = random.Random(5), odd()
    for number in range(400):
        feed(log, dice.choice("abc"), 7 * HOUR_MS + number * 9000 - dice.choice([0, 0, 0, 30_000, 20 * MINUTE_MS]))
    used: list[AnyStore] = [windowed_count.counts, windowed_count.closed, windowed_count.late]
    state = play(
        folder,
        log,
        process=windowed_count.process,
        stores=[*used, windowed_count.times],
        punctuate=[Punctuate(windowed_count.close_windows, 60)],
    )
    return read(state, *used), [log]


def deduplication(folder: Path) -> tuple[Result, list[Topic]]:
    dice, log = random.Random(6), odd()
    for number in range(400):
        feed(log, f"id-{dice.randrange(90)}", 7 * HOUR_MS + number * MINUTE_MS - dice.choice([0, 10 * MINUTE_MS]))
    used: list[AnyStore] = [deduplicate.passed, deduplicate.totals]
    state = play(folder, log, process=deduplicate.process, stores=[deduplicate.seen, *used])
    return read(state, *used), [log]


def join(folder: Path) -> tuple[Result, list[Topic]]:
    dice, logs = random.Random(7), [odd(), odd("u")]
    for number in range(300):
        at_ms, value = 7 * HOUR_MS + number * 20_000, json.dumps({"amount": dice.randrange(99)}).encode()
        for _ in range(dice.choice([1, 1, 1, 2])):
            feed(logs[0], f"order-{number}", at_ms, value)
        for _ in range(dice.choice([0, 1, 1, 2])):
            feed(logs[1], f"order-{number}", at_ms + dice.randrange(-5, 25) * MINUTE_MS, value, "u")
    whole = [list(log) for log in logs]
    # Before that, orders may be read after payments of a later time, and are reported when that has passed too.
    feed(logs[1], "last", 16 * HOUR_MS, b"{}", "u")
    state = play(
        folder,
        *whole,
        last=logs[1][-1:],
        process=JOIN.process,
        stores=JOINS,
        punctuate=[Punctuate(JOIN.report_unpaid, 60)],
    )
    return read(state, *JOINED), logs


Example = Callable[[Path], tuple[Result, list[Topic]]]

EXAMPLES: Mapping[Example, Callable[..., Result]] = {
    windows: expected_windows,
    deduplication: expected_deduplication,
    join: expected_join,
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_result_is_that_of_an_independent_computation(tmp_path: Path, example: Example) -> None:
    found, given = example(tmp_path)
    assert all(len(content) > 1 for content in found.values())
    assert differences({0: found}, {0: EXAMPLES[example](*given)}) == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_checker_reports_a_record_that_counted_twice_or_not_at_all(tmp_path: Path, example: Example) -> None:
    found, given = example(tmp_path)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka.KafkaProducer", Producer)
    now_s = 1e9
    monkeypatch.setattr(time, "time", lambda: now_s)
    page = blocks("docs/how-to/joins-and-windows.md")
    (recipe,) = [block for block in page if "producer.send" in block.text]
    names: dict[str, Any] = {"closed": windowed_count.closed, "close_windows": windowed_count.close_windows}
    exec(compile(recipe.text, recipe.place, "exec"), names)  # noqa: S102 - our own documentation
    producer = names["producer"]
    producer.refuses = b"b@"
    log: Topic = []
    for key in "abc":
        feed(log, key, 0)
    feed(log, "later", HOUR_MS)
    used: list[AnyStore] = [windowed_count.counts, windowed_count.closed, windowed_count.late, windowed_count.times]
    task = Task(tmp_path / "1", windowed_count.process, used, names["punctuate"])
    task.play(log)

    def rows() -> list[bytes]:
        return [key for (key, _), _ in task.state[windowed_count.closed].items()]

    for _ in range(3):
        now_s += 20
        with pytest.raises(MessageSizeTooLargeError):
            task.play(())
    assert rows() == [b"a", b"b", b"c"]
    producer.refuses = b""
    producer.values.clear()
    task.play(())
    assert (producer.values, rows()) == ([b"1"] * 3, [])


def test_differences_are_named() -> None:
    found = {0: {"totals": {"a": 1, "b": 2}}, 1: {"totals": {"a": 1}}}
    assert differences(found, found) == []
    assert differences(found, {0: {"totals": {"a": 1, "b": 3, "c": 4}}}) == [
        "0 totals 'b': found 2, expected 3",
        "0 totals 'c': found None, expected 4",
        "1 totals 'a': found 1, expected None",
    ]


def test_an_order_whose_payment_is_read_late_is_joined_and_no_longer_reported(tmp_path: Path) -> None:
    logs: list[Topic] = [[], []]
    feed(logs[0], "o", 0, b"{}")
    feed(logs[0], "p", HOUR_MS, b"{}")
    feed(logs[1], "o", 15 * MINUTE_MS, b"{}", "u")
    task = Task(tmp_path / "1", JOIN.process, JOINS, [Punctuate(JOIN.report_unpaid, 60)])
    task.play(logs[0])
    assert dict(task.state[join_orders.unpaid].items()) == {b"o": {"at": 0}}
    task.play(logs[1])
    assert dict(task.state[join_orders.unpaid].items()) == {}
    assert dict(task.state[join_orders.joined].items()) == {
        b"o": {"order": {"at": 0}, "payment": {"at": 15 * MINUTE_MS}}
    }


class Bytes(dict[bytes, bytes]):
    """A store of bytes."""

    def put(self, key: bytes, value: bytes) -> None:
        assert isinstance(key, bytes)
        self[key] = value


def test_programs_that_count_take_null_and_empty_keys_and_values() -> None:
    (page,) = [each for each in blocks("docs/how-to/exactly-once.md") if "StatefulConsumer" in each.text]
    names: dict[str, Any] = {}
    exec(page.text[: page.text.index("with StatefulConsumer(")], names)  # noqa: S102 - our own documentation
    for number in (stateful.number, names["number"]):
        store: Any = Bytes()
        output = Output(["out"], lambda _: 1)
        output.begin()
        for record in odd():
            number(record, store, output)
        output.keep()
        assert len(output.take()) == len(ODD) * 2
        assert sum(map(int, store.values())) == len(ODD) * 2
    words: Any = Bytes()
    for record in odd():
        word_count.count(record, words)
    expected = Counter(word for _, value in (*ODD, *ODD) for word in (value or b"").split())
    assert words == {word: b"%d" % count for word, count in expected.items()}
