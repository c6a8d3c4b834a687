"""Count words for ever: state that survives whoever holds it, with warm copies in other zones.

Try it on a cluster of your own making, in another terminal `rackassign cluster up`, with a topic of a few partitions.
Then, once for each zone and each with a folder of its own,

    python examples/word_count.py 127.0.0.1:PORT TOPIC GROUP a /tmp/words-a

write lines into the topic, and kill any of them: the others go on counting where it was.
"""

from __future__ import annotations

import heapq
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from rackassign.stateful import State, StatefulConsumer
from rackassign.strategies.standby import StandbyOptions

if TYPE_CHECKING:
    from rackassign.model import TopicPartition

REPORT_EVERY_S = 5
MOST = 5


def count(record: Any, store: State) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Count the words of a record. All it changes is kept together, once, with the record's offset."""
    for word in (record.value or b"").split():
        store.put(word, b"%d" % (int(store.get(word) or 0) + 1))


def main(bootstrap: str, topic: str, group: str, zone: str, folder: str) -> None:
    """Count until Ctrl-C or SIGTERM."""
    # An exception of a signal would interrupt a poll, and the records since the last commit would be processed again.
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with StatefulConsumer(
        topic,
        process=count,
        state_dir=folder,
        client_tags={"zone": zone},
        standbys=StandbyOptions(num_standby_replicas=1, rack_aware_assignment_tags=["zone"]),
        on_restore=restoring,
        client_rack=zone,
        bootstrap_servers=bootstrap,
        group_id=group,
    ) as counter:
        due = time.monotonic() + REPORT_EVERY_S
        while not ended.is_set():
            counter.poll()
            if time.monotonic() >= due:
                report(counter)
                due += REPORT_EVERY_S
        report(counter)


def restoring(place: TopicPartition, done: int, total: int) -> None:
    """Say how far a restore is, where there is something to restore."""
    if total:
        print(f"restoring {place.topic}-{place.partition}: {done} of {total}")


def report(counter: StatefulConsumer) -> None:
    """Print what is counted here most often."""
    for place in sorted(counter.active_partitions()):
        words = heapq.nlargest(MOST, counter.store(place).items(), key=lambda item: int(item[1]))
        said = ", ".join(f"{word.decode(errors='replace')} {int(number)}" for word, number in words)
        print(f"{place.topic}-{place.partition}: {said or 'nothing yet'}")
    print(
        f"copies kept for others:"
        f" {', '.join(f'{p.topic}-{p.partition}' for p in sorted(counter.standby_partitions())) or 'none'}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
