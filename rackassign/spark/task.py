"""The code of a task, which binds the rack of its executor and reads its splits."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from rackassign.errors import ConfigError
from rackassign.spark.kafka_clients import consumers_of_this_process
from rackassign.spark.options import Options
from rackassign.spark.range_reader import ReadOptions, consumer_properties, end_offset, read, request_leaders
from rackassign.spark.splits import Split, read_together
from rackassign.spark.task_metrics import metered_properties, process_meter, write_report
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from pyarrow import RecordBatch

log = logging.getLogger(__name__)


def executor_rack(options: Options, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the rack to which reads from this executor are bound; None to read from leaders.

    Raises:
        ConfigError: The executor has no rack although one is required, or its rack is not UTF-8.
    """
    if options.rack_binding == "none":
        return None
    rack = _rack_of_environment(options, environment)
    if rack is None:
        problem = f"{options.rack_variable} is not set on this executor"
        if options.rack_required:
            raise ConfigError(f"onMissingRack: fail: {problem}")
        log.warning("%s: reading from leaders in any rack", problem)
    elif not _is_unicode(rack):
        # Python reads such text from variables whose bytes are not UTF-8. The client raises a SystemError for it.
        raise ConfigError(f"{options.rack_variable} on this executor is not UTF-8: {short_repr(rack)}")
    return rack


def _is_unicode(text: str) -> bool:
    """Return whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rack_of_environment(options: Options, environment: Mapping[str, str]) -> str | None:
    return environment.get(options.rack_variable, "").strip() or None


def batches(options: Options, splits: Sequence[Split], names: Sequence[str], rack: str | None) -> Iterator[RecordBatch]:
    """Yield the records of splits as Arrow batches with these columns.

    Splits are read together, except for measurements: the received bytes of a split are known if it is read alone.

    Args:
        options: The options of the query.
        splits: The splits.
        names: The columns, in order.
        rack: The rack to read from, as `executor_rack` returns it; a task requests it once.

    Raises:
        RackassignError: The records cannot be read.
    """
    from rackassign.spark.arrow import HEADERS, to_batches  # noqa: PLC0415 - loaded on first use

    read_options = ReadOptions(
        options.poll_timeout_s,
        options.fail_on_loss,
        options.batch_rows,
        options.batch_bytes,
        HEADERS in names,
        partial(end_offset, options.client) if options.client.get("isolation.level") == "read_committed" else None,
    )
    groups = [(split,) for split in splits] if options.metrics_path else read_together(splits, options.max_fetch_bytes)
    for group in groups:
        with _consumer(options, rack, group[0].fetch_bytes) as consumer:
            # Before the received bytes are counted: any broker responds.
            request_leaders(consumer, {split.range.tp.topic for split in group}, options.poll_timeout_s)
            record_bytes = sum(split.size for split in group) // max(1, sum(len(split.range) for split in group))
            records = read(consumer, [split.range for split in group], read_options, record_bytes)
            if options.metrics_path:
                records = _metered(options, group[0], consumer, records)
            yield from to_batches(records, names, max_rows=options.batch_rows, max_bytes=options.batch_bytes)


def _consumer(options: Options, rack: str | None, fetch_bytes: int) -> AbstractContextManager[Consumer]:
    metered = metered_properties() if options.metrics_path else {}
    return consumers_of_this_process().borrow(consumer_properties(options.client, rack, fetch_bytes) | metered)


def _metered(
    options: Options, split: Split, consumer: Consumer, records: Iterator[list[Message]]
) -> Iterator[list[Message]]:
    """Yield the records of a split, and write a report of the bytes that were received meanwhile."""
    before = process_meter().start(consumer, split.range.tp.topic)
    useful = 0
    for chunk in records:
        useful += sum(map(len, chunk))
        yield chunk
    process_meter().settle(consumer)
    # The rack of the executor, even if `rackBinding` is none.
    here = _rack_of_environment(options, os.environ)
    write_report(options.metrics_path, split, here, useful, process_meter().received() - before)
