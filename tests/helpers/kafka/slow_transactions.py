"""The examples that read and write exactly once, with transactions that stay open for a while, or without any.

Run as a module it is one of the examples, which faults find in the middle of a transaction nearly always:

    python -m tests.helpers.kafka.slow_transactions confluent on FOLDER ARGUMENTS

With `off` the example for confluent-kafka writes the same at the same pace, and commits offsets with the consumer.
While the folder has a file `hold`, the process keeps each transaction open for some seconds, and has a file of its
process number beside it as long: a test that kills it then is certain to leave an open transaction with results.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from rackassign.clients.confluent import RackAwareConsumer
from rackassign.stateful import _transactions as producer

_LONGEST_S = 0.6
_HELD_S = 5.0
"""Shorter than a transaction's timeout by far: who is not killed in this time goes on."""

_STEP_S = 0.02


def _pause_s() -> float:
    return _LONGEST_S * random.random()


def _pauses_s() -> Iterator[float]:
    """Yield times to wait between results and offsets, in seconds."""
    yield _pause_s()
    folder = Path(sys.argv[3])
    mark = folder / f"{os.getpid()}"
    until = time.monotonic() + _HELD_S
    try:
        while (folder / "hold").exists() and time.monotonic() < until:
            mark.touch()
            yield _STEP_S
    finally:
        mark.unlink(missing_ok=True)


def _pause() -> None:
    for time_s in _pauses_s():
        time.sleep(time_s)


class SlowProducer(confluent_kafka.Producer):
    """Waits between records, offsets and the commit."""

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.flush()
        _pause()
        super().send_offsets_to_transaction(*arguments)
        time.sleep(_pause_s())


class SlowKafkaPython(kafka.KafkaProducer):  # type: ignore[misc] # kafka-python is untyped
    """The same for kafka-python; its example awaits results before."""

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        _pause()
        super().send_offsets_to_transaction(*arguments)
        time.sleep(_pause_s())


class SlowAIOKafka(aiokafka.AIOKafkaProducer):  # type: ignore[misc] # aiokafka is untyped
    """The same for aiokafka."""

    async def send_offsets_to_transaction(self, *arguments: Any) -> None:
        for time_s in _pauses_s():
            await asyncio.sleep(time_s)
        await super().send_offsets_to_transaction(*arguments)
        await asyncio.sleep(_pause_s())


class Untransactional(confluent_kafka.Producer):
    """The interface of a transactional producer, without transactions."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__({name: value for name, value in config.items() if not name.startswith("transaction")})

    def init_transactions(self, *_: Any) -> None: ...

    def begin_transaction(self) -> None: ...

    def commit_transaction(self, *_: Any) -> None: ...

    def abort_transaction(self, *_: Any) -> None: ...

    def send_offsets_to_transaction(self, offsets: Any, *_: Any) -> None:
        self.flush()
        _pause()
        Noted.made[-1].commit(offsets=offsets, asynchronous=False)
        time.sleep(_pause_s())


class Noted(RackAwareConsumer):
    """A consumer that a producer without transactions finds, to commit with it."""

    made: list[RackAwareConsumer] = []  # noqa: RUF012 - the process has one

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.made.append(self)


_EXAMPLES = {
    "confluent": "confluent",
    "kafka-python": "kafka_python",
    "aiokafka": "aiokafka_program",
    "stateful": "stateful",
}
_REPLACED: Mapping[tuple[str, str], Mapping[str, type]] = {
    ("confluent", "on"): {"Producer": SlowProducer},
    ("confluent", "off"): {"Producer": Untransactional, "RackAwareConsumer": Noted},
    ("kafka-python", "on"): {"KafkaProducer": SlowKafkaPython},
    ("aiokafka", "on"): {"AIOKafkaProducer": SlowAIOKafka},
    ("stateful", "on"): {},
}

if __name__ == "__main__":
    # For `Members.stacks`.
    faulthandler.register(signal.SIGUSR1)
    client, transactions, folder = sys.argv[1:4]
    arguments = sys.argv[4:]
    example = import_module(f"examples.exactly_once.{_EXAMPLES[client]}")
    vars(example).update(_REPLACED[client, transactions])
    if client == "stateful":
        member = arguments[arguments.index("--member") + 1]
        arguments += ["--state-dir", f"{folder}/state-{member}"]
        # The producer is the library's.
        vars(producer)["KafkaProducer"] = SlowKafkaPython
    example.main(arguments)
