"""What Spark 4.2 and later tell a stream: how much a batch may hold, and that it is to end where the log ends now.

A module of its own, since older Sparks do not have what it imports.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rackassign.spark.source.stream import StreamReader


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):
    """A stream reader that is told of limits and of `availableNow`."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - as Spark calls it
        """Return how much a batch may hold."""
        limit = self.limit()
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - the same
        """Return what there was when the last batch was planned; query progress then shows how far behind it is."""
        return self.newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - the same
        """Keep to what there is now."""
        self.capture()
