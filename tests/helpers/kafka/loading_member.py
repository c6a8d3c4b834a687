"""A member in a process of its own, which reports what it has loaded: `python -m tests.helpers.kafka.loading_member`.

Its arguments are the client, a broker, a topic and a group. Whenever one of them changes it prints, as JSON: how many
partitions it has, and which thread has imported numpy, null if none has. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_POLL_MS = 100


class Watch(MetaPathFinder):
    """Sees which thread imports numpy first."""

    def __init__(self) -> None:
        self.thread: str | None = None
        self.over = threading.Event()
        self._reported = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing, and remember the thread."""
        del path, target
        if fullname == "numpy" and self.thread is None:
            self.thread = threading.current_thread().name
        return None

    def report(self, partitions: int) -> None:
        """Print what has changed."""
        loaded = self.thread if "numpy" in sys.modules else None
        line = json.dumps({"partitions": partitions, "loaded_by": loaded})
        if line != self._reported:
            print(line, flush=True)
            self._reported = line


def kafka_python(watch: Watch, bootstrap: str, topic: str, group: str) -> None:
    from rackassign import RackAwareConsumer  # noqa: PLC0415 - each process has one client library

    consumer = RackAwareConsumer(topic, bootstrap_servers=bootstrap, group_id=group, client_rack="a")
    while not watch.over.is_set():
        consumer.poll(timeout_ms=_POLL_MS)
        watch.report(len(consumer.assignment()))
    consumer.close()


def aiokafka(watch: Watch, bootstrap: str, topic: str, group: str) -> None:
    from rackassign.clients.aiokafka import RackAwareConsumer  # noqa: PLC0415 - as above

    async def run() -> None:
        consumer = RackAwareConsumer(topic, bootstrap_servers=bootstrap, group_id=group, client_rack="a")
        await consumer.start()
        while not watch.over.is_set():
            await consumer.getmany(timeout_ms=_POLL_MS)
            watch.report(len(consumer.assignment()))
        await consumer.stop()

    asyncio.run(run())


def confluent(watch: Watch, bootstrap: str, topic: str, group: str) -> None:
    from rackassign.clients.confluent import RackAwareConsumer  # noqa: PLC0415 - as above

    consumer = RackAwareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "client.rack": "a"})
    consumer.subscribe([topic])
    while not watch.over.is_set():
        consumer.poll(_POLL_MS / 1000)
        watch.report(len(consumer.assignment()))
    consumer.close()


def main(client: str, bootstrap: str, topic: str, group: str) -> None:
    watch = Watch()
    sys.meta_path.insert(0, watch)

    def read() -> None:
        sys.stdin.read()
        watch.over.set()

    threading.Thread(target=read, daemon=True).start()
    {"kafka-python": kafka_python, "aiokafka": aiokafka, "confluent": confluent}[client](watch, bootstrap, topic, group)


if __name__ == "__main__":
    main(*sys.argv[1:])
