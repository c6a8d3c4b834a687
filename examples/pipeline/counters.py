"""What consumers publish of themselves: how much they have read since they last did, by topic and rack.

Neither Kafka nor Spark is known here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from rackassign.clients.fetch_metrics import RackTraffic, Traffic

SCHEMA = (
    "group STRING, run STRING, member STRING, sequence BIGINT, since BIGINT, taken BIGINT, rack STRING, "
    "reads ARRAY<STRUCT<topic: STRING, rack: STRING, bytes: BIGINT, records: BIGINT>>"
)
"""The message as Spark reads it; times in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Who:
    """The consumer that counts.

    Args:
        group: Of consumers.
        run: Which of its lives, as "before".
        member: Unlike all others, ever: with the sequence it says which messages are the same one twice.
        rack: Where it stands, also if it does not tell Kafka.
    """

    group: str
    run: str
    member: str
    rack: str


@dataclass(slots=True)
class Counter:
    """Makes messages of counters that only grow.

    Args:
        who: Whose they are.
        since: When counting began.
        before: What had been read by then.
    """

    who: Who
    since: int
    before: RackTraffic
    _sequence: int = field(default=0, init=False)

    def message(self, taken: int, now: RackTraffic) -> bytes:
        """Return what was read since the last message.

        Args:
            taken: The time.
            now: What has been read by now.
        """
        said = {
            **asdict(self.who),
            "sequence": self._sequence,
            "since": self.since,
            "taken": taken,
            "reads": list(increments(self.before, now)),
        }
        self._sequence, self.since, self.before = self._sequence + 1, taken, now
        return json.dumps(said).encode()


def increments(before: RackTraffic, now: RackTraffic) -> list[dict[str, str | int | None]]:
    """Return what was read between two looks at the same consumer, as the rows of a message."""
    rows: list[dict[str, str | int | None]] = []
    for topic, by_rack in now.topics.items():
        for rack, amount in by_rack.items():
            had = before.topics.get(topic, {}).get(rack, Traffic())
            if amount.bytes > had.bytes:
                more = {"bytes": amount.bytes - had.bytes, "records": amount.records - had.records}
                rows.append({"topic": topic, "rack": rack, **more})
    return rows
