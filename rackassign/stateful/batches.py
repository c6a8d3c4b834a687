"""Processing of the records of one partition, up to the first that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rackassign.model import TopicPartition
from rackassign.stateful.process_call import Process, call_process
from rackassign.stateful.sqlite_file import StoreError
from rackassign.stateful.state_file import StateFile
from rackassign.stateful.state_store import StateStore
from rackassign.util.log_once import WarnOnce


class ProcessedRecords(NamedTuple):
    """Records that were processed.

    Args:
        changed: The offset of each record, with the changes that it made.
        failure: The error of `process` at the record behind them; None if there is none.
    """

    changed: list[tuple[int, dict[bytes, bytes | None]]]
    failure: Exception | None


def process_batch(
    tp: TopicPartition,
    store: StateFile,
    batch: Sequence[Any],
    process: Process,
    *,
    present: Callable[[], bool],
    once: WarnOnce,
) -> ProcessedRecords | StoreError:
    """Process records of a partition, and keep their changes in memory.

    Args:
        tp: The partition.
        store: Its local file.
        batch: Records of kafka-python, in order.
        process: The user's function.
        present: Returns whether this member may process a record now.
        once: Logs a warning once.

    Returns:
        The failure of the local file, if it has failed: whatever `process` has read may be wrong, also if it has
        caught the error.
    """
    changed: list[tuple[int, dict[bytes, bytes | None]]] = []
    for record in batch:
        if not present():
            break
        if record.offset <= store.replay.source:
            # The state already has the effects of this record, wherever it comes from.
            once.warn(
                "restarted",
                "%s-%d: its input restarts at %d, but its state has records up to %d: skipping records up to there;"
                " if the topic was recreated, delete its changelog as well",
                *(*tp, record.offset, store.replay.source),
                about=tp,
            )
            continue
        store.begin()
        failure: Exception | None = None
        try:
            call_process(process, record, StateStore(store))
        except Exception as error:  # noqa: BLE001 - the user's error; earlier records are kept
            store.rollback_record()
            failure = error
        if store.failure is not None:
            return store.failure
        if failure is not None:
            return ProcessedRecords(changed, failure)
        changed.append((record.offset, store.commit_record()))
    return ProcessedRecords(changed, None)
