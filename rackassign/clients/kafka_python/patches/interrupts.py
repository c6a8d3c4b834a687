"""A patch for what an exception leaves behind that the handler of a signal raises in the middle of `poll()`."""

from __future__ import annotations

from typing import Any

from rackassign.clients.kafka_python.internals.attributes import Consumer
from rackassign.clients.kafka_python.patches.base import Patch
from rackassign.text import WarnOnce, with_version


class _TakenRecords:
    """The positions before records were taken from the buffer, until they are returned.

    kafka-python 3.0.12 advances the position of a partition as it takes its records, before it takes those of the next
    partition and sends the next fetches. All of that is in the thread of the caller.

    Args:
        consumer: A `KafkaConsumer`.
        once: Reports that the positions could not be restored.
    """

    def __init__(self, consumer: Consumer, once: WarnOnce) -> None:
        self._fetcher = consumer._fetcher
        self._assigned = self._fetcher._subscriptions.assignment
        self._poll_once = consumer._poll_once
        self._append = self._fetcher._append
        self._once = once
        # By partition: its state, which is another one after another assignment, and its position.
        self._before: dict[Any, tuple[Any, Any]] = {}

    def append(self, drained: Any, part: Any, max_records: int, update_offsets: bool) -> Any:  # noqa: FBT001 - as in kafka-python
        if part and update_offsets:
            state = self._assigned.get(part.topic_partition)
            if state is not None:
                self._before.setdefault(part.topic_partition, (state, state.position))
        return self._append(drained, part, max_records, update_offsets)

    def poll_once(self, timer: Any, max_records: int, update_offsets: bool = True) -> Any:  # noqa: FBT001, FBT002 - the same
        self._before.clear()
        try:
            return self._poll_once(timer, max_records, update_offsets=update_offsets)
        except BaseException as error:
            if self._before:
                self._restore(interrupted=not isinstance(error, Exception))
            raise

    def _restore(self, *, interrupted: bool) -> None:
        try:
            for tp, (state, position) in self._before.items():
                if self._assigned.get(tp) is state:
                    state.position = position
            part = self._fetcher._next_partition_records
            if interrupted and part:
                # Its iterator has ended, with the records it was about to return, and kafka-python would take none of
                # it in an endless loop. They are fetched again.
                part.drain()
        except Exception:  # noqa: BLE001 - the exception on its way is the one to report
            self._once.warn(
                "interrupt", "%s: patch keep_interrupted_records failed", with_version("kafka-python"), exc_info=True
            )


def _keep_interrupted_records(consumer: Consumer, once: WarnOnce) -> None:
    """Read records again that an exception has kept from being returned."""
    taken = _TakenRecords(consumer, once)
    consumer._fetcher._append = taken.append
    consumer._poll_once = taken.poll_once


KEEP_INTERRUPTED_RECORDS = Patch(
    name="keep_interrupted_records",
    defect=(
        "If the handler of a signal raises while poll() takes fetched records (KeyboardInterrupt, or SystemExit after"
        " SIGTERM), up to max_poll_records records are lost: their positions are advanced already, and close() commits"
        " them. If the consumer is polled again instead, poll() can stay in an endless loop."
    ),
    proof="integration/clients/test_interrupted_polls.py::test_what_an_interrupted_poll_has_taken_is_read_again",
    wraps={
        "_poll_once": ("timer", "max_records", "update_offsets"),
        "_fetcher._append": ("drained", "part", "max_records", "update_offsets"),
    },
    needs=("_fetcher._subscriptions.assignment", "_fetcher._next_partition_records"),
    install=_keep_interrupted_records,
)
