"""The stream reader for Spark 4.2 and later, which passes limits of batches and supports `availableNow`.

It is a module of its own because older versions of Spark do not have the names that it imports.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rackassign.spark.source.stream import StreamReader


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """A stream reader with limits for batches and support for `availableNow`."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - as Spark calls it
        """Return the limit of a batch."""
        limit = self.limit()
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - as Spark calls it
        """Return the latest offsets when the last batch was planned, from which query progress computes the lag."""
        return self.newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
        """Limit the stream to the current latest offsets."""
        self.capture()
