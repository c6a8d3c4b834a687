"""What a worker has to do and what it spends; it imports no Kafka client, since each worker has its own."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker processes."""

    bootstrap: str
    group: str
    topic: str
    folder: Path
    records: int

    @classmethod
    def read(cls, words: Sequence[str]) -> Job:
        """Read it from a command line."""
        bootstrap, group, topic, folder, records = words
        return cls(bootstrap, group, topic, Path(folder), int(records))

    def words(self) -> list[str]:
        """Return it as words of a command line."""
        return [self.bootstrap, self.group, self.topic, str(self.folder), str(self.records)]


def _cpu_s() -> float:
    """Return the processor time of this process so far, of all its threads, in user and system mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Meter:
    """The time of a worker between its first record and the end of its work.

    What comes before (imports, the join of a group, the first fetch) and after (leaving the group) does not count.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._seen = 0
        self._begun = (0.0, 0.0)
        self._taken = (0.0, 0.0)

    @property
    def complete(self) -> bool:
        """Whether all records were processed."""
        return self._seen >= self._total

    def record(self) -> None:
        """Count a record that is about to be processed."""
        if not self._seen:
            self._begun = (_cpu_s(), time.perf_counter())
        self._seen += 1

    def batch(self, records: int) -> None:
        """Count records that are about to be processed together."""
        if records:
            self.record()
            self._seen += records - 1

    def end(self) -> None:
        """Stop: all that was processed is stored as safely as it is going to be."""
        cpu_s, begun = self._begun
        self._taken = (_cpu_s() - cpu_s, time.perf_counter() - begun)

    def report(self, counts: Mapping[str, int]) -> None:
        """Print a line of JSON with the times and with what was counted, for each key."""
        cpu_s, wall_s = self._taken
        print(json.dumps({"records": self._seen, "cpu_s": cpu_s, "wall_s": wall_s, "counts": dict(counts)}), flush=True)
