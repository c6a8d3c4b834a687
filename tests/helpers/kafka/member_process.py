"""A member in a process of its own, with the bytes that the kernel counts of its connections.

The kernel counts what arrives on each TCP connection, whatever the client counts itself. A process of its own has no
other connections. Run as a module it is the member: it reads its settings from the arguments, and writes a line of JSON
for each line on stdin, until that ends. If the test fails, it prints where each of its threads is.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Literal

from tests.helpers.kernel_traffic import ConnectionBytes

if TYPE_CHECKING:
    from typing_extensions import Self

Client = Literal["kafka-python", "rackassign", "rackassign-range", "aiokafka", "librdkafka"]

_END_S = 600


class MemberProcess:
    """A member that runs while the `with` block lasts."""

    def __init__(
        self,
        client: Client,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        rack: str,
        *,
        client_id: str = "",
        slowly: bool = False,
    ) -> None:
        # `slowly`: whether it reads 5 records a second.
        self.rack = rack
        self._settings = [client, bootstrap, group, ",".join(topics), rack, client_id or f"{group}-{rack}"]
        self._settings.append("slowly" if slowly else "")

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *self._settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._process as process, suppress(BrokenPipeError):
            assert process.stdin is not None
            if kind is not None:
                process.send_signal(signal.SIGUSR1)
            process.stdin.close()
            process.wait(_END_S)

    def read(self) -> tuple[int, Mapping[int, int]]:
        """Return the number of records that it has read, and bytes that have arrived from each port."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"a member ended with {self._process.wait(_END_S)}: {self._settings}")
        found = json.loads(line)
        return found["records"], {int(port): size for port, size in found["received"].items()}


def _poll(client: Client, settings: Mapping[str, Any], stop: Event, read: Callable[[int], None]) -> None:
    """Read until `stop` is set."""
    python = {
        "bootstrap_servers": settings["bootstrap"],
        "group_id": settings["group"],
        "client_id": settings["client_id"],
        "auto_offset_reset": "earliest",
    }
    topics, rack = settings["topics"], settings["rack"]
    if client == "librdkafka":
        from confluent_kafka import Consumer  # noqa: PLC0415 - only what is measured is loaded

        consumer = Consumer(
            {
                "bootstrap.servers": settings["bootstrap"],
                "group.id": settings["group"],
                "client.id": settings["client_id"],
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
            }
        )
        consumer.subscribe(topics)
        while not stop.is_set():
            read(sum(message.error() is None for message in consumer.consume(500, 0.2)))
        consumer.close()
    elif client == "aiokafka":
        _poll_aiokafka(topics, rack, python, stop, read)
    else:
        _poll_kafka_python(client, settings, python, stop, read)


def _poll_kafka_python(
    client: Client, settings: Mapping[str, Any], python: Mapping[str, Any], stop: Event, read: Callable[[int], None]
) -> None:
    from rackassign import RackAwareConsumer, RackAwareRangeAssignor  # noqa: PLC0415 - only what is measured is loaded
    from tests.helpers.kafka.consumers import plain_consumer  # noqa: PLC0415 - the same

    topics, rack = settings["topics"], settings["rack"]
    if client == "kafka-python":
        slow: dict[str, Any] = {"max_poll_records": 5} if settings["slowly"] else {}
        consumer = plain_consumer(*topics, **python, **slow)
    else:
        ranges = [RackAwareRangeAssignor(rack=rack)] if client == "rackassign-range" else None
        strategy = {"partition_assignment_strategy": ranges} if ranges else {}
        consumer = RackAwareConsumer(*topics, **python, client_rack=rack, **strategy)
    while not stop.wait(1.0 if settings["slowly"] else 0.0):
        read(sum(map(len, consumer.poll(timeout_ms=200).values())))
    consumer.close()


def _poll_aiokafka(
    topics: Sequence[str], rack: str, python: Mapping[str, Any], stop: Event, read: Callable[[int], None]
) -> None:
    import asyncio  # noqa: PLC0415 - only what is measured is loaded

    from rackassign.clients.aiokafka import RackAwareConsumer  # noqa: PLC0415 - the same

    async def poll() -> None:
        consumer = RackAwareConsumer(*topics, **python, client_rack=rack)
        await consumer.start()
        while not stop.is_set():
            read(sum(map(len, (await consumer.getmany(timeout_ms=200)).values())))
        await consumer.stop()

    asyncio.run(poll())


def _main(client: Any, bootstrap: str, group: str, topics: str, rack: str, client_id: str, slowly: str) -> None:
    settings = {
        "bootstrap": bootstrap,
        "group": group,
        "topics": topics.split(","),
        "rack": rack,
        "client_id": client_id,
        "slowly": bool(slowly),
    }
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    stop, records, connections = Event(), 0, ConnectionBytes()

    def read(count: int) -> None:
        nonlocal records
        records += count
        if count:
            connections.look()

    thread = Thread(target=_poll, args=(client, settings, stop, read))
    thread.start()
    for _ in sys.stdin:
        if not thread.is_alive():
            sys.exit(1)
        sys.stdout.write(json.dumps({"records": records, "received": connections.look()}) + "\n")
        sys.stdout.flush()
    stop.set()
    thread.join()


if __name__ == "__main__":
    _main(*sys.argv[1:])
