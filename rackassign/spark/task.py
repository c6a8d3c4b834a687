"""The code of a task, which binds the rack of its executor and reads its split."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rackassign.errors import ConfigError
from rackassign.spark.consumer_pool import consumers_of_this_process
from rackassign.spark.options import Options
from rackassign.spark.range_reader import ReadOptions, consumer_properties, end_offset, read
from rackassign.spark.splits import Split
from rackassign.spark.task_metrics import metered_properties, process_meter, write_report
from rackassign.util.text import short_repr

if TYPE_CHECKING:
    from confluent_kafka import Message
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


def batches(options: Options, split: Split, names: Sequence[str], rack: str | None) -> Iterator[RecordBatch]:
    """Yield the records of a split as Arrow batches with these columns.

    Args:
        options: The options of the query.
        split: The split.
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
    properties = consumer_properties(options.client, rack, split.fetch_bytes) | (
        metered_properties() if options.metrics_path else {}
    )
    with consumers_of_this_process().borrow(properties) as consumer:
        before = process_meter().start(consumer, split.range.tp.topic) if options.metrics_path else None
        useful = 0

        def records() -> Iterator[list[Message]]:
            nonlocal useful
            for chunk in read(consumer, split.range, read_options, split.size // max(1, len(split.range))):
                if before is not None:
                    useful += sum(map(len, chunk))
                yield chunk

        yield from to_batches(
            records(), split.range.tp, names, max_rows=options.batch_rows, max_bytes=options.batch_bytes
        )
        if before is not None:
            consumer.unassign()
            process_meter().settle(consumer)
            # The rack of the executor, even if `rackBinding` is none.
            here = _rack_of_environment(options, os.environ)
            write_report(options.metrics_path, split, here, useful, process_meter().received() - before)
