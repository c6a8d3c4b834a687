"""Stream time, which a timestamp in a wrong unit does not move."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackassign.stateful import INT, STR, Punctuate, State, Store
from rackassign.stateful.tasks.run import LATEST_MS
from tests.helpers.fakes.kafka import Kafka, Record
from tests.helpers.stateful_consumers import FIRST, drain, give, member

HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000 - 1_700_000_000_000 % HOUR_MS

seen = Store("seen", STR, INT, ttl_s=3600)


def see(record: Record, state: State) -> None:
    state[seen].put((record.key or b"").decode(), record.offset)


@pytest.mark.parametrize("wrong_ms", [BEGIN_MS * 1000, BEGIN_MS * 10**6, (1 << 63) - 1, LATEST_MS + 1])
def test_a_timestamp_in_another_unit_does_not_end_expiry_and_functions(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong_ms: int
) -> None:
    called: list[int] = []
    hourly = Punctuate(lambda time_ms, _: called.append(time_ms), 3600, name="hourly")
    with member(tmp_path / "1", process=see, stores=[seen], punctuate=[hourly]) as one:
        give(one, 0)
        kafka.append("t", 0, b"first", b"", timestamp=BEGIN_MS)
        kafka.append("t", 0, b"wrong", b"", timestamp=wrong_ms)
        kafka.append("t", 0, b"wrong", b"", timestamp=wrong_ms)
        drain(one)
        # They are processed at the time of the records before them.
        assert dict(one.store(FIRST)[seen].items()) == {"first": 0, "wrong": 2}
        for hour in (1, 2):
            kafka.append("t", 0, b"%d" % hour, b"", timestamp=BEGIN_MS + hour * HOUR_MS)
        drain(one)
        assert dict(one.store(FIRST)[seen].items()) == {"2": 4}
        assert called == [BEGIN_MS + HOUR_MS, BEGIN_MS + 2 * HOUR_MS]
        with one.state(FIRST) as state:
            assert state.time_ms == BEGIN_MS + 2 * HOUR_MS
    assert caplog.text.count(f"t-0: record 1 has the timestamp {wrong_ms}, which is after the year 2200") == 1
    assert "record 2 has" not in caplog.text
    with member(tmp_path / "2", process=see, stores=[seen]) as other:
        give(other, 0)
        drain(other)
        assert dict(other.store(FIRST)[seen].items()) == {"2": 4}


def test_the_latest_time_can_be_stored_with_the_longest_time_to_live(kafka: Kafka, tmp_path: Path) -> None:
    longest = Store("longest", STR, INT, ttl_s=100 * 366 * 86_400)
    with member(tmp_path, process=lambda _, state: state[longest].put("k", 1), stores=[longest]) as one:
        give(one, 0)
        kafka.append("t", 0, b"", b"", timestamp=LATEST_MS)
        drain(one)
        with one.state(FIRST) as state:
            assert (state.time_ms, state[longest].get("k")) == (LATEST_MS, 1)


def test_values_that_were_not_in_the_file_when_later_ones_expired_are_deleted(kafka: Kafka, tmp_path: Path) -> None:
    short, long = Store("short", STR, INT, ttl_s=10), Store("long", STR, INT, ttl_s=3600)

    def process(record: Record, state: State) -> None:
        if record.value:
            state[short if record.value == b"short" else long].put(record.value.decode(), 1)

    with member(tmp_path, process=process, stores=[short, long], commit_interval_ms=60_000) as one:
        give(one, 0)
        kafka.append("t", 0, b"", b"long", timestamp=BEGIN_MS)
        drain(one)
        one.commit()
        # The short one is set just before the long one expires, and is not in the file when that is deleted.
        kafka.append("t", 0, b"", b"short", timestamp=BEGIN_MS + HOUR_MS - 60_000)
        kafka.append("t", 0, b"", b"", timestamp=BEGIN_MS + HOUR_MS + 60_000)
        drain(one)
        kafka.append("t", 0, b"", b"", timestamp=BEGIN_MS + HOUR_MS + 60_000)
        drain(one)
        one.commit()
        for _ in range(3):
            kafka.append("t", 0, b"", b"", timestamp=BEGIN_MS + 2 * HOUR_MS)
            drain(one)
            one.commit()
        assert one._shelf.open(FIRST).expired_keys(1 << 62, 9) == []
