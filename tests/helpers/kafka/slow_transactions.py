"""The example that reads and writes exactly once, with transactions that stay open for a while, or without any.

Run as a module it is the example, which faults find in the middle of a transaction nearly always:

    python -m tests.helpers.kafka.slow_transactions on ARGUMENTS

With `off` it writes the same at the same pace, and commits offsets with the consumer.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import confluent_kafka

from rackassign.clients.confluent import RackAwareConsumer

_LONGEST_S = 0.6


def _wait() -> None:
    time.sleep(_LONGEST_S * random.random())


class SlowProducer(confluent_kafka.Producer):
    """Waits between records, offsets and the commit."""

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self.flush()
        _wait()
        super().send_offsets_to_transaction(*arguments)
        _wait()


class Untransactional(confluent_kafka.Producer):
    """The interface of a transactional producer, without transactions.

    Args:
        config: Properties; those of transactions are left out.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__({name: value for name, value in config.items() if not name.startswith("transaction")})

    def init_transactions(self, *_: Any) -> None: ...

    def begin_transaction(self) -> None: ...

    def commit_transaction(self, *_: Any) -> None: ...

    def abort_transaction(self, *_: Any) -> None: ...

    def send_offsets_to_transaction(self, offsets: Any, *_: Any) -> None:
        self.flush()
        _wait()
        Noted.made[-1].commit(offsets=offsets, asynchronous=False)
        _wait()


class Noted(RackAwareConsumer):
    """A consumer that a producer without transactions finds, to commit with it."""

    made: list[RackAwareConsumer] = []  # noqa: RUF012 - the process has one

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.made.append(self)


if __name__ == "__main__":
    example = import_module("examples.exactly_once.confluent")
    vars(example).update(Producer=SlowProducer if sys.argv[1] == "on" else Untransactional, RackAwareConsumer=Noted)
    example.main(sys.argv[2:])
