"""A member with state as a process of its own, which can be stopped and killed: counts words, and says what it does.

python -m tests.helpers.kafka.stateful_member NAME BOOTSTRAP GROUP TOPIC FOLDER STANDBYS VALUE_BYTES

Several topics, with commas between them, are co-partitioned. The first letters of its name are its zone and its
cluster. A line of JSON for each poll that processed something (`of` which partitions) and for each change of what it
runs; SIGUSR1 has it write the whole state of what it runs and of what it keeps, and SIGTERM ends it. The numbers of its
state are padded to so many bytes.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from rackassign.errors import KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.stateful import StatefulConsumer, StateStore, StoreError
from rackassign.strategies.standby import StandbyOptions
from tests.helpers.kafka.consumers import CONSUMER

TAGS = ("zone", "cluster")
COUNTED = b"#records"


def count(record: Any, store: StateStore, value_bytes: int) -> None:
    """Count the words of a record, and records: done twice, both would be wrong."""
    for word in (*record.value.split(), COUNTED):
        store.put(word, (b"%d" % (int(store.get(word) or 0) + 1)).ljust(value_bytes))


def write_line(**told: Any) -> None:
    """Write a line."""
    print(json.dumps({"at": time.time(), **told}), flush=True)


def rest(member: StatefulConsumer) -> list[int]:
    """Return the generation it rests in, and nothing if it means to join again, or waits for copies to be warm."""
    coordinator = member.consumer._coordinator
    rests = coordinator.stable() and not coordinator.need_rejoin() and not member._assignor._copies._awaited
    return [coordinator._generation.generation_id] if rests else []


def readable(member: StatefulConsumer, places: Iterable[TopicPartition]) -> dict[int, dict[str, int]]:
    """Return the state of each of these partitions, without those whose file cannot be read now."""
    found = {}
    for place in places:
        with suppress(StoreError):
            found[place.partition] = {key.decode(): int(value) for key, value in member.store(place).items()}
    return found


def again_while_brokers_are_away(start: Callable[[], StatefulConsumer], asked: Sequence[int]) -> StatefulConsumer:
    """Start a member, again and again while no broker responds: what supervises services does so."""
    while True:
        try:
            return start()
        except KafkaUnavailableError as error:
            if signal.SIGTERM in asked:
                raise
            print(f"started again: {error}", file=sys.stderr)


def main() -> None:
    """Run until told to end."""
    name, bootstrap, group, topic, folder, standbys, value_bytes, session_timeout_ms = sys.argv[1:]
    topics = topic.split(",")
    asked: list[int] = []
    of: set[int] = set()

    def process(record: Any, store: StateStore) -> None:
        count(record, store, int(value_bytes))
        of.add(record.partition)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: asked.append(number))
    # Files left from before are never as warm as a copy that is kept: so it can be told who should take over.
    options = StandbyOptions(int(standbys), TAGS, acceptable_recovery_lag=0, max_warmup_replicas=12)

    def started() -> StatefulConsumer:
        return StatefulConsumer(
            *topics,
            copartitioned=len(topics) > 1,
            process=process,
            state_dir=folder,
            client_tags=dict(zip(TAGS, name, strict=False)),
            standbys=options,
            on_restore=lambda place, done, total: write_line(restored=[place.partition, done, total]),
            client_rack=name[0],
            bootstrap_servers=bootstrap,
            group_id=group,
            session_timeout_ms=int(session_timeout_ms),
            heartbeat_interval_ms=CONSUMER["heartbeat_interval_ms"],
            metadata_max_age_ms=5000,
        )

    with again_while_brokers_are_away(started, asked) as member:
        seen: Any = None
        while signal.SIGTERM not in asked:
            done = member.poll(100)
            now: list[list[Any]] = [
                sorted({place.partition for place in places})
                for places in (member.active_partitions(), member.standby_partitions())
            ]
            now += [rest(member), sorted(map(list, member.consumer.assignment()))]
            if done or now != seen:
                write_line(done=done, of=sorted(of), runs=now[0], keeps=now[1], rests=now[2], has=now[3])
                seen = now
                of.clear()
            if signal.SIGUSR1 in asked:
                asked.remove(signal.SIGUSR1)
                state = readable(member, member.active_partitions())
                write_line(state=state, copies=readable(member, member.standby_partitions()))


if __name__ == "__main__":
    main()
