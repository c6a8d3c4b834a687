"""The columns of the source, and those that a query selects."""

from __future__ import annotations

from pyspark.sql.types import StructField, StructType

from rackassign.errors import ConfigError
from rackassign.spark.arrow import COLUMNS, HEADERS, check_columns
from rackassign.spark.options import Options


def schema_of(options: Options) -> StructType:
    """Return the columns of a query without a schema of the user.

    Raises:
        ConfigError: The option `columns` names a column that does not exist.
    """
    known = full_schema(headers=options.headers)
    check_columns(options.columns, headers=options.headers)
    return StructType([known[name] for name in options.columns or known.names])


def full_schema(*, headers: bool) -> StructType:
    """Return all columns of the source."""
    from pyspark.sql.types import (  # noqa: PLC0415 - only needed here
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = (
        *(BinaryType(), BinaryType(), StringType(), IntegerType(), LongType(), TimestampType(), IntegerType()),
        ArrayType(header),
    )
    names = (*COLUMNS, HEADERS) if headers else COLUMNS
    return StructType([StructField(name, kind) for name, kind in zip(names, types, strict=False)])


def columns(options: Options, schema: StructType) -> tuple[str, ...]:
    """Return the columns of a query: all, or those of the schema that the user has set.

    Raises:
        ConfigError: There is no column, or one does not exist, has another type or is not nullable, or `columns` names
            others.
    """
    if not schema.names:
        # Arrow has no rows without columns, so a count would be 0.
        raise ConfigError("schema: expected at least one column; for a count use columns=offset")
    if options.columns and options.columns != tuple(schema.names):
        raise ConfigError(
            f"columns: the schema of the query has other columns: {', '.join(schema.names)}; use one of both"
        )
    check_columns(schema.names, headers=options.headers)
    ours = {field.name: field.dataType for field in full_schema(headers=options.headers)}
    for field in schema:
        if field.dataType != ours[field.name]:
            kind = ours[field.name].simpleString()
            raise ConfigError(f"{field.name}: expected type {kind}, got {field.dataType.simpleString()}")
        if not field.nullable:
            raise ConfigError(f"{field.name}: a column of a Python source cannot be NOT NULL")
    return tuple(schema.names)
