"""Filters of Spark as bounds of offsets, for `pushFilters` of Spark 4.1 and later.

Spark applies all filters to the rows again, so a filter that is not understood here costs time and changes no result.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from rackassign.errors import ConfigError
from rackassign.spark.row_bounds import RowBounds

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def check_pushdown() -> None:
    """Raise an error if this version of Spark passes no filters to Python sources.

    Raises:
        ConfigError: Spark is older than 4.1.
    """
    if not hasattr(datasource.DataSourceReader, "pushFilters"):
        raise ConfigError("pushFilters: Spark passes filters to Python data sources since version 4.1")


def bounds_of(filters: Iterable[Filter]) -> RowBounds:
    """Return bounds of the rows that satisfy all of these filters."""
    bounds = RowBounds()
    for each in filters:
        # Names of columns with more than one part are of structures.
        path: tuple[str, ...] = getattr(each, "attribute", ())
        if len(path) == 1 and hasattr(each, "value"):
            bounds = _bounded(bounds, type(each).__name__, path[0], each.value)
    return bounds


def _bounded(bounds: RowBounds, kind: str, column: str, value: Any) -> RowBounds:  # noqa: ANN401 - of the column's type
    """Return narrower bounds, or the same ones for a filter that does not limit offsets."""
    if kind in {"EqualTo", "EqualNullSafe"}:
        values: tuple[Any, ...] = (value,)
    elif kind == "In":
        values = tuple(value)
    else:
        return _compared(bounds, kind, column, value)
    values = tuple(each for each in values if each is not None)
    if not values:
        return bounds
    if column == "topic":
        return bounds.and_topics(frozenset(values))
    if column == "partition":
        return bounds.and_partitions(frozenset(values))
    if column == "offset":
        return bounds.and_from(min(values)).and_before(max(values) + 1)
    return bounds.and_since(_milliseconds(min(values))) if column == "timestamp" else bounds


def _compared(bounds: RowBounds, kind: str, column: str, value: Any) -> RowBounds:  # noqa: ANN401 - of the column's type
    if value is None or kind not in {"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"}:
        return bounds
    if column == "timestamp" and kind.startswith("Greater"):
        return bounds.and_since(_milliseconds(value))
    if column == "offset":
        if kind.startswith("Greater"):
            return bounds.and_from(value + (kind == "GreaterThan"))
        return bounds.and_before(value + (kind == "LessThanOrEqual"))
    return bounds


def _milliseconds(value: datetime) -> int:
    """Return a timestamp in whole milliseconds, rounded down; Spark's without a zone are in that of this process."""
    aware = value.astimezone(timezone.utc) if value.tzinfo is None else value
    return (aware - _EPOCH) // timedelta(milliseconds=1)
