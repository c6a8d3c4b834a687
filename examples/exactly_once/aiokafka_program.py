"""Read records and write results, each exactly once, with aiokafka.

aiokafka sends no generation with the offsets of a transaction, so the broker cannot tell those of a former owner by it.
Here each partition has a transactional ID of its own. The next owner of a partition takes the ID over, which aborts
what the former one has open and fences it, and reads the committed offset after that. Run it once for each zone, and
read the results with `isolation_level="read_committed"`:

    python -m examples.exactly_once.aiokafka_program 127.0.0.1:PORT orders results --member a-1 --zone a
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from rackassign.clients.aiokafka import RackAwareConsumer

BATCH = 500
TRANSACTION_MS = 15_000
WAIT_MS = 500
HANG_S = 60.0

log = logging.getLogger(__name__)


def transform(value: bytes) -> bytes:
    """Return the result for one record."""
    return value.upper()


class Owned(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka is untyped
    """The partitions of a member, each with a producer.

    Args:
        bootstrap: Addresses of brokers.
        target: The topic for the results.
        consumer: The member.
        group: Its group.
    """

    def __init__(self, bootstrap: str, target: str, consumer: RackAwareConsumer, group: str) -> None:
        self._bootstrap = bootstrap
        self._target = target
        self._consumer = consumer
        self._group = group
        self._producers: dict[TopicPartition, AIOKafkaProducer] = {}
        # A rebalance waits for the transactions that are open.
        self._lock = asyncio.Lock()
        self._rebalances = 0
        self._taken = False
        self.failed: BaseException | None = None

    async def on_partitions_revoked(self, _revoked: Iterable[TopicPartition]) -> None:
        """Wait until nothing of them is open."""
        self._taken = False
        self._rebalances += 1
        async with self._lock:
            pass

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Take partitions over, also those that this member had before: the rebalance has set their positions back."""
        async with self._lock:
            try:
                await self._stop()
                await asyncio.wait_for(asyncio.gather(*map(self._take, assigned)), HANG_S)
                self._taken = True
                self._rebalances += 1
            except (KafkaError, asyncio.TimeoutError) as error:
                # aiokafka would log it and continue, at positions read before the former owners were fenced.
                self.failed = error

    async def _take(self, tp: TopicPartition) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=f"{self._group}-{tp.topic}-{tp.partition}",
            transaction_timeout_ms=TRANSACTION_MS,
        )
        self._producers[tp] = producer
        # Aborts the open transaction of a former owner, or waits for its end, and fences the owner.
        await producer.start()
        await self._rewind(tp)

    async def _rewind(self, tp: TopicPartition) -> None:
        """Continue after the last committed record of a partition."""
        committed = await self._consumer.committed(tp)
        if committed is None:
            await self._consumer.seek_to_beginning(tp)
        else:
            self._consumer.seek(tp, committed)

    async def process(self) -> None:
        """Read some records and write their results.

        Raises:
            KafkaError: A transaction failed, or this member was fenced.
            asyncio.TimeoutError: A transaction hangs.
        """
        rebalances = self._rebalances
        # Without the lock: a rebalance takes it, and aiokafka waits here for the end of the rebalance.
        batches = await self._consumer.getmany(timeout_ms=WAIT_MS, max_records=BATCH)
        async with self._lock:
            if self.failed is not None:
                raise self.failed
            if rebalances != self._rebalances:
                # Read before the partitions were taken over, in part. A takeover that is yet to come sets positions.
                if self._taken:
                    await asyncio.wait_for(asyncio.gather(*map(self._rewind, self._producers)), HANG_S)
                return
            pending = [self._write(tp, batch) for tp, batch in batches.items() if batch]
            await asyncio.wait_for(asyncio.gather(*pending), HANG_S)

    async def _write(self, tp: TopicPartition, batch: Sequence[Any]) -> None:
        producer = self._producers[tp]
        await producer.begin_transaction()
        written = [await producer.send(self._target, transform(record.value or b""), record.key) for record in batch]
        await asyncio.gather(*written)
        await producer.send_offsets_to_transaction({tp: batch[-1].offset + 1}, self._group)
        await producer.commit_transaction()

    async def close(self) -> None:
        """Give all partitions up; what is open is aborted."""
        async with self._lock:
            await self._stop()

    async def _stop(self) -> None:
        stopped, self._producers = self._producers, {}
        stopping = asyncio.gather(*(producer.stop() for producer in stopped.values()), return_exceptions=True)
        # aiokafka waits for the brokers of what is under way. The successors of these producers abort it in any case.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stopping, HANG_S)


async def membership(given: argparse.Namespace, ended: asyncio.Event) -> None:
    """Be a member of the group until the program ends, or something fails."""
    consumer = RackAwareConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        client_rack=given.zone,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=given.session_timeout_ms,
        heartbeat_interval_ms=given.session_timeout_ms // 3,
    )
    owned = Owned(given.bootstrap, given.target, consumer, given.group)
    try:
        consumer.subscribe([given.source], listener=owned)
        await consumer.start()
        while not ended.is_set():
            await owned.process()
    finally:
        # Before others get the partitions, so that this fences none of them.
        await owned.close()
        await consumer.stop()


async def run(given: argparse.Namespace) -> None:
    """Process records; begin again as another member after anything that fails."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    while not ended.is_set():
        try:
            await membership(given, ended)
        except (KafkaError, asyncio.TimeoutError) as error:  # noqa: PERF203 - a failure is rare
            log.warning("member %s begins again: %r", given.member, error)
            await asyncio.sleep(1.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Process records until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="addresses of brokers")
    parser.add_argument("source", help="topic with the records")
    parser.add_argument("target", help="topic for the results")
    parser.add_argument("--group", default="exactly-once")
    parser.add_argument("--member", required=True, help="name of this member, for its log")
    parser.add_argument("--zone", help="where this member runs")
    parser.add_argument("--session-timeout-ms", type=int, default=10_000, help="time until others take over")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
