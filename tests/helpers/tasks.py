"""A task on a local file, without Kafka: a test gives it records, and commits what they have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackassign.stateful import Punctuate
from rackassign.stateful._local_state import StateFile
from rackassign.stateful._output import Output
from rackassign.stateful._processing import Processed, TaskRun, Work, check_punctuations
from rackassign.stateful._stores import AnyStore, stores_by_name
from rackassign.text import WarnOnce


@dataclass(frozen=True, slots=True)
class Record:
    """A record as kafka-python's."""

    offset: int
    key: bytes | None = None
    value: bytes | None = b"x"
    timestamp: int = -1
    topic: str = "t"
    partition: int = 0


class Task:
    """A task whose state is in a file."""

    def __init__(
        self,
        file: Path,
        process: Callable[..., object] = lambda *_: None,
        stores: Iterable[AnyStore] = (),
        punctuate: Sequence[Punctuate] = (),
        *,
        output: Output | None = None,
    ) -> None:
        self.file = StateFile(file)
        work = Work(process, stores_by_name(stores), check_punctuations(punctuate))  # type: ignore[arg-type]
        self.run = TaskRun(self.file, work, WarnOnce(logging.getLogger("rackassign")), output)
        self.state = self.run.state

    def play(self, records: Iterable[Any], *, commits: bool = True) -> None:
        """Process records that were not processed yet, and call what is due; raise what a function has raised."""
        fresh = [each for each in records if each.offset >= self.run.next_offset(each.topic)]
        for done in (self.run.process(fresh, lambda: True), self.run.call_due()):
            error = done.failure if isinstance(done, Processed) else done
            if error is not None:
                raise error
        if commits:
            self.commit()

    def commit(self) -> None:
        if self.run.changed:
            self.file.apply(self.run.take_commit(), self.file.position + 1)
            self.file.discard_uncommitted()

    def successor(self, file: Path, *arguments: Any) -> Task:
        """Close it, and return the task on another file with what its changelog has."""
        made = StateFile(file)
        made.apply(dict(self.file.between(b"", None)), self.file.position)
        made.close()
        self.file.close()
        return Task(file, *arguments)
