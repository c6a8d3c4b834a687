"""Rates that are measured for weights: averages that are calm, and a thread that ends."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.errors import KafkaError

from rackassign import ByteRates
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.monitoring import byte_rates
from rackassign.monitoring.byte_rates import RateAverages, complete_rows
from rackassign.monitoring.throughput import Throughput
from rackassign.testing.harness import wait_until


def written(*rates: float, seconds: float = 60.0, topic: str = "t") -> Throughput:
    return Throughput({TopicPartition(topic, i): rate for i, rate in enumerate(rates)}, seconds=seconds)


def published(averages: RateAverages, topic: str = "t") -> list[float]:
    row = averages.weights()[topic]
    return [row[partition] for partition in sorted(row)]


def test_a_rate_is_an_average_of_the_half_life() -> None:
    averages = RateAverages(half_life_s=60.0, min_change=0.0)
    averages.add(written(100.0))
    assert published(averages) == [100.0]
    # The first minute counts half by now.
    averages.add(written(400.0))
    assert published(averages) == [pytest.approx(300.0)]
    for _ in range(20):
        averages.add(written(400.0))
    assert published(averages) == [pytest.approx(400.0, rel=1e-4)]


def test_noise_changes_nothing_and_a_change_that_lasts_does() -> None:
    averages = RateAverages(half_life_s=60.0, min_change=0.1)
    averages.add(written(100.0, 100.0, 1.0))
    before = published(averages)
    for noise in (1.09, 0.92, 1.08):
        # What is small may change many times over: it still does not matter beside the others.
        averages.add(written(100.0 * noise, 100.0 / noise, 1.0 + 4 * noise))
        assert published(averages) == before
    for _ in range(10):
        averages.add(written(200.0, 100.0, 1.0))
    assert published(averages)[0] == pytest.approx(200.0, rel=0.1)
    assert published(averages)[1:] == before[1:]


def test_idle_partitions_weigh_a_little_and_equally_if_all_are_idle() -> None:
    averages = RateAverages(60.0, 0.1)
    averages.add(written(0.0, 0.0))
    assert published(averages) == [1.0, 1.0]
    averages.add(written(0.0, 1000.0))
    idle, busy = published(averages)
    assert 0 < idle < busy / 50


def test_rates_of_other_topics_are_dropped() -> None:
    averages = RateAverages(60.0, 0.1)
    averages.add(written(5.0))
    averages.add(written(7.0, topic="u"))
    averages.keep(["u"])
    assert set(averages.weights()) == {"u"}


def test_unknown_partitions_get_the_average_of_their_topic_or_of_all() -> None:
    known = {"t": {0: 2.0, 2: 4.0, 9: 6.0}, "u": {0: 12.0}}
    rows = complete_rows(known, {"t": 4, "u": 1, "v": 2})
    assert rows == {"t": (2.0, 4.0, 4.0, 4.0), "u": (12.0,), "v": (6.0, 6.0)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "bootstrap_servers is missing"),
        ({"bootstrap_servers": "b:1", "interval_s": 0}, "interval_s must be more than 0 seconds, got 0"),
        ({"bootstrap_servers": "b:1", "half_life_s": float("nan")}, "half_life_s must be more than 0"),
        ({"bootstrap_servers": "b:1", "interval_s": "60"}, 'interval_s must be a number, got "60"'),
        ({"bootstrap_servers": "b:1", "interval_s": 10**400}, "interval_s must be more than 0 seconds, got 1000"),
        ({"bootstrap_servers": "b:1", "min_change": 10**400}, "min_change must be 0 or more, got 1000"),
        ({"bootstrap_servers": "b:1", "min_change": -0.1}, "min_change must be 0 or more"),
        ({"bootstrap_servers": "b:1", "client_rack": "a"}, "KafkaAdminClient has no argument client_rack"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ByteRates(**arguments)


class Samples:
    """What samples return, one after the other; the last one for ever."""

    def __init__(self, *results: Throughput | Exception) -> None:
        self.results = list(results)
        self.topics: list[frozenset[str]] = []
        self.closed = 0
        self.hold = threading.Event()
        self.hold.set()

    def sample(self, topics: frozenset[str]) -> Throughput:
        self.topics.append(topics)
        assert self.hold.wait(300)
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> Iterator[Samples]:
    made = Samples(Throughput(), written(1.0, 3.0))
    monkeypatch.setattr(byte_rates, "_Sampler", lambda _: made)
    monkeypatch.setattr(byte_rates, "_FIRST_PAUSE_S", 0.01)
    yield made
    made.hold.set()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rackassign-byte-rates"]


def test_nothing_is_measured_before_the_first_plan(samples: Samples) -> None:
    rates = ByteRates(bootstrap_servers="b:1")
    assert not threads()
    assert rates.weigh({"t": 2}) is None
    wait_until(lambda: rates.weigh({"t": 2}) == {"t": (1.0, 3.0)}, "rates are known")
    assert len(threads()) == 1
    assert set(samples.topics) == {frozenset({"t"})}
    rates.pause()
    # What is known stays known, but not for topics that are not measured.
    rates.close()
    assert not threads()
    assert samples.closed == 1
    assert rates.weigh({"u": 1}) is None
    rates.close()


def test_brokers_that_do_not_respond_cost_one_warning_and_are_asked_again(
    samples: Samples, caplog: pytest.LogCaptureFixture
) -> None:
    samples.results[:] = [KafkaError("no luck"), KafkaError("no luck"), ValueError("a bug"), written(2.0)]
    rates = ByteRates(bootstrap_servers="b:1")
    wait_until(lambda: rates.weigh({"t": 1}) == {"t": (2.0,)}, "rates are known")
    rates.close()
    messages = [record.getMessage() for record in caplog.records]
    assert len([each for each in messages if "no luck" in each]) == 1
    assert len([each for each in messages if "a bug" in each]) == 1


def test_a_sample_that_ends_after_a_pause_is_not_added_to_those_of_the_next_thread(samples: Samples) -> None:
    samples.hold.clear()
    samples.results[:] = [written(100.0)]
    rates = ByteRates(bootstrap_servers="b:1", interval_s=3600)
    rates.weigh({"t": 1})
    wait_until(lambda: len(samples.topics) == 1, "the first sample has begun")
    late = threads()
    rates.pause()
    samples.hold.set()
    late[0].join()
    assert rates.weigh({"t": 1}) is None
    rates.close()


def test_rates_of_an_earlier_time_as_leader_are_not_used(samples: Samples) -> None:
    rates = ByteRates(bootstrap_servers="b:1", interval_s=60, half_life_s=100)
    rates.weigh({"t": 2})
    wait_until(lambda: rates.weigh({"t": 2}) is not None, "rates are known")
    rates.close()
    rates._rates.measured_at = time.monotonic() - 170
    assert rates.weigh({"t": 2}) == {"t": (1.0, 3.0)}
    rates.close()
    # Three intervals, which is longer than the half-life.
    rates._rates.measured_at = time.monotonic() - 181
    samples.results[:] = [Throughput(), written(8.0, 8.0)]
    assert rates.weigh({"t": 2}) is None
    wait_until(lambda: rates.weigh({"t": 2}) is not None, "rates are measured again")
    # And the old ones are in no average.
    assert rates.weigh({"t": 2}) == {"t": (8.0, 8.0)}
    rates.close()


def test_samples_without_rates_do_not_keep_old_rates_in_use(samples: Samples) -> None:
    samples.results[:] = [written(1.0, 3.0), Throughput(problems=("broker 1 does not report the sizes of its logs",))]
    rates = ByteRates(bootstrap_servers="b:1", interval_s=0.01, half_life_s=600)
    wait_until(lambda: rates.weigh({"t": 2}) is not None, "rates are known")
    measured_at, taken = rates._rates.measured_at, len(samples.topics)
    # The last of them may not have ended.
    wait_until(lambda: len(samples.topics) > taken + 3, "samples without rates")
    assert rates._rates.measured_at == measured_at
    rates._rates.measured_at = time.monotonic() - 601
    assert rates.weigh({"t": 2}) is None
    rates.close()


def test_the_thread_ends_when_the_weigher_is_gone(samples: Samples) -> None:
    rates = ByteRates(bootstrap_servers="b:1", interval_s=0.01)
    rates.weigh({"t": 1})
    assert threads()
    del rates
    gc.collect()
    wait_until(lambda: not threads(), "the thread has ended")
    assert samples.closed == 1
