"""Traffic between zones in an invoice of FOCUS 1.0 to 1.4 or in AWS's cost and usage reports, and what it consists of.

Such rows are found by usage type and operation, or else by their description. Other columns find others, or not all:
in FOCUS the zone of such a row is null, and the service is EC2, ECS or ELB.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rackassign.bill.flow_logs import list_files, open_file
from rackassign.bill.usage import Span
from rackassign.bill.usage import total as total_span
from rackassign.errors import ConfigError
from rackassign.text import join_ids, short_repr

# After `flow_logs`, whose error names the extra with pyarrow.
import pyarrow as pa  # isort: skip
import pyarrow.compute as pc  # isort: skip
import pyarrow.csv as pa_csv  # isort: skip
import pyarrow.parquet as pq  # isort: skip

# FOCUS, CUR 2.0 and the older CUR. Those of FOCUS that begin with x_ are AWS's own.
_COLUMNS = {
    "usage_type": ("x_UsageType", "line_item_usage_type", "lineItem/UsageType"),
    "operation": ("x_Operation", "line_item_operation", "lineItem/Operation"),
    "description": ("ChargeDescription", "line_item_line_item_description", "lineItem/LineItemDescription"),
    "category": ("ChargeCategory", "line_item_line_item_type", "lineItem/LineItemType"),
    "amount": ("ConsumedQuantity", "line_item_usage_amount", "lineItem/UsageAmount"),
    "unit": ("ConsumedUnit", "pricing_unit", "pricing/unit"),
    "priced_amount": ("PricingQuantity",),
    "priced_unit": ("PricingUnit",),
    "cost": ("BilledCost", "line_item_unblended_cost", "lineItem/UnblendedCost"),
    "currency": ("BillingCurrency", "line_item_currency_code", "lineItem/CurrencyCode"),
    "resource": ("ResourceId", "line_item_resource_id", "lineItem/ResourceId"),
    "first": ("ChargePeriodStart", "line_item_usage_start_date", "lineItem/UsageStartDate"),
    "last": ("ChargePeriodEnd", "line_item_usage_end_date", "lineItem/UsageEndDate"),
}
_NEEDED = ("cost", "currency", "first", "last")

_USAGE_TYPE, _OPERATION = "DataTransfer-Regional-Bytes", "InterZone"
# AWS's text is the same for In and Out. Google's was Egress before it was Data Transfer Out.
_DIRECTIONS = {
    "undirected": "regional data transfer - in/out/between EC2 AZs",
    "out": r"inter[ -]zone (data transfer out|egress)",
    "in": r"inter[ -]zone (data transfer in|ingress)\b",
}
_UNITS = {
    "byte": 1,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_UNITS |= {"bytes": 1, "gigabyte": 1e9, "gigabytes": 1e9, "gibibyte": 2**30, "gibibytes": 2**30}

HEADER_BYTES = 52
"""Headers of IP and TCP in a segment, with timestamps. A provider bills IP packets."""


class BilledTraffic(NamedTuple):
    """Billed bytes by direction, and their cost in the currency of the invoice."""

    bytes_in: float = 0.0
    bytes_out: float = 0.0
    bytes_undirected: float = 0.0
    cost_in: float = 0.0
    cost_out: float = 0.0
    cost_undirected: float = 0.0

    @property
    def bytes_(self) -> float:
        """All bytes: those that two ends are billed for count twice."""
        return self.bytes_in + self.bytes_out + self.bytes_undirected

    @property
    def cost(self) -> float:
        """The cost of all bytes."""
        return self.cost_in + self.cost_out + self.cost_undirected


def _sum(traffic: Iterable[BilledTraffic]) -> BilledTraffic:
    return BilledTraffic(*(math.fsum(parts) for parts in zip(BilledTraffic(), *traffic, strict=True)))


@dataclass(frozen=True, slots=True)
class Invoice:
    """The traffic between zones in an invoice.

    Args:
        rows: Number of its rows in the invoice.
        total: Their sum.
        resources: The sum by resource, as in `i-0a1b2c3d`; without those that name none.
        first: When the first row begins; None without rows.
        last: When the last row ends.
        currency: Currency of all costs.
        sentences: What is remarkable about these rows.
        gap_s: Seconds between the first and the last row that are in no row, as between two months that are not
            neighbours.
    """

    rows: int
    total: BilledTraffic
    resources: Mapping[str, BilledTraffic]
    first: datetime | None
    last: datetime | None
    currency: str
    sentences: tuple[str, ...]
    gap_s: float = 0.0


@dataclass(slots=True)
class _Sums:
    rows: int = 0
    # Whether there are rows of AWS with a direction. Google bills the sender only.
    is_typed: bool = False
    resources: dict[str, BilledTraffic] = field(default_factory=dict)
    periods: set[tuple[datetime, datetime]] = field(default_factory=set)
    currencies: set[str] = field(default_factory=set)
    other_categories: dict[str, float] = field(default_factory=dict)


def read_invoice(path: str | Path) -> Invoice:
    """Return the traffic between zones in a file, or in all files below a folder: CSV, with gzip or not, or Parquet.

    Rows are read in batches, and only the columns that are needed. Corrections are summed, whatever their sign. AWS's
    manifests in a folder are left out.

    Raises:
        ConfigError: A file is not an invoice, or has the rows of another one; or a row has an unknown unit, no number,
            or another currency. The message has the file and the number of the row, from 1.
    """
    sums = _Sums()
    files = list_files(path)
    seen: dict[tuple[datetime, int], str] = {}
    for file in [file for file in files if not file.endswith("-Manifest.json")] or files:
        number = 1
        # By begin: rows in any order. A later version of a report has the hours of an earlier one.
        hashes: Counter[datetime] = Counter()
        for batch in _batches(file):
            found = _find(batch)
            rows = batch.take(pa.array(found, pa.int64())).to_pylist()
            try:
                for index, row in zip(found, rows, strict=True):  # noqa: B007 - used by the message
                    if (added := _add(sums, row)) is not None:
                        hashes[added[0]] += hash(added)
            except ValueError as error:
                raise ConfigError(f"{file}, row {number + index}: {error}") from None
            number += batch.num_rows
        again = [seen[each] for each in hashes.items() if each in seen]
        if 2 * len(again) > len(hashes):
            raise ConfigError(f"{file}: has the same rows as {again[0]}: give one version of an invoice")
        seen |= dict.fromkeys(hashes.items(), file)
    total = _sum(sums.resources.values())
    sums.resources.pop("", None)
    first = last = None
    gap_s = 0.0
    for begin, end in sorted(sums.periods):
        first, gap_s = first or begin, gap_s + max(0.0, (begin - (last or begin)).total_seconds())
        last = max(last or end, end)
    currency = next(iter(sums.currencies), "USD")
    return Invoice(sums.rows, total, sums.resources, first, last, currency, (*_remarks(sums, total),), gap_s)


def _remarks(sums: _Sums, total: BilledTraffic) -> Iterator[str]:
    if not sums.rows:
        texts = ", ".join(repr(text) for text in _DIRECTIONS.values())
        yield (
            f"no traffic between zones: no usage type ends with {_USAGE_TYPE} with an operation that begins with "
            f"{_OPERATION}, and no description matches {texts}"
        )
    if total.bytes_undirected:
        yield (
            "rows without usage type and operation are found by their description, which is also that of traffic "
            "through elastic IPs and load balancers in the region"
        )
    most = max(total.bytes_in, total.bytes_out)
    if sums.is_typed and most > 0 and abs(total.bytes_in - total.bytes_out) > 0.005 * most:
        more, less = ("in", "out") if total.bytes_in == most else ("out", "in")
        yield (
            f"{abs(total.bytes_in - total.bytes_out) / most:.1%} of what is billed {more} is not billed {less}: "
            "the other end is in another account, or is a service"
        )
    for category, cost in sorted(sums.other_categories.items()):
        yield f"rows of the category {category} with a cost of {cost:,.2f} are not in the sums"


def _batches(file: str) -> Iterator[pa.RecordBatch]:
    """Yield the needed columns of a file by our names."""
    with open_file(file) as (source, is_parquet):
        if is_parquet:
            columns = _columns(file, pq.read_schema(source).names)
            with pq.ParquetFile(source) as parquet:
                for batch in parquet.iter_batches(columns=[*columns.values()]):
                    # Dictionaries, and columns without any value, have other types.
                    texts = {columns.get(name) for name in ("usage_type", "operation", "description")}
                    arrays = [batch[n].cast(pa.string()) if n in texts else batch[n] for n in columns.values()]
                    yield pa.RecordBatch.from_arrays(arrays, [*columns])
            return
        first = io.TextIOWrapper(source, "utf-8-sig", "replace").readline(1 << 16)
    names = next(csv.reader([first.replace("\0", "")]), [])
    columns = _columns(file, names)
    options = pa_csv.ConvertOptions(
        include_columns=[*columns.values()],
        column_types=dict.fromkeys(columns.values(), pa.string()),
        strings_can_be_null=True,
    )
    with open_file(file) as (source, _):
        # Tags may be JSON of several lines.
        for batch in pa_csv.open_csv(source, None, pa_csv.ParseOptions(newlines_in_values=True), options):
            yield pa.RecordBatch.from_arrays(batch.columns, [*columns])


def _columns(file: str, names: list[str]) -> dict[str, str]:
    """Return the name of each of our columns in a file."""
    # Tables made of exports often have lower case.
    there = {name.lower(): name for name in names}
    columns = {
        ours: there[name.lower()] for ours, some in _COLUMNS.items() for name in reversed(some) if name.lower() in there
    }
    if {*_NEEDED} - {*columns} or not {"description", "usage_type"} & {*columns}:
        raise ConfigError(f"{file}: neither FOCUS nor a cost and usage report of AWS")
    return columns


def _find(batch: pa.RecordBatch) -> list[int]:
    """Return the indexes of rows about traffic between zones."""

    def matches(name: str, test: Callable[..., Any], *args: Any, **options: Any) -> NDArray[np.bool_]:  # noqa: ANN401
        if name not in batch.schema.names:
            return np.zeros(batch.num_rows, np.bool_)
        found: NDArray[np.bool_] = pc.fill_null(test(batch[name], *args, **options), False).to_numpy(False)  # noqa: FBT003
        return found

    typed = matches("usage_type", pc.is_valid) & matches("operation", pc.is_valid)
    by_type = matches("usage_type", pc.ends_with, _USAGE_TYPE) & matches("operation", pc.starts_with, _OPERATION)
    text = "|".join(_DIRECTIONS.values())
    by_text = matches("description", pc.match_substring_regex, text, ignore_case=True) if not typed.all() else typed
    return [int(index) for index in np.flatnonzero(np.where(typed, by_type, by_text))]


def _add(sums: _Sums, row: Mapping[str, Any]) -> tuple[datetime, Any] | None:
    """Add a row; return its begin and the rest of it, None if it does not count. What is wrong is a ValueError."""
    cost = _number(row, "cost")
    # Discounts and taxes repeat the amount of what they are for.
    if (category := row.get("category") or "Usage") != "Usage":
        sums.other_categories[category] = sums.other_categories.get(category, 0.0) + cost
        return None
    amount, unit = ("amount", "unit") if row.get("amount") is not None else ("priced_amount", "priced_unit")
    # A report without the column of units has GB; FOCUS always has prices' amounts.
    text = row.get(unit) if unit in row or "priced_amount" in row else "GB"
    size = _UNITS.get((text or "").lower())
    if size is None:
        raise ValueError(f"unknown unit {short_repr(text)}")
    operation = row.get("operation") if row.get("usage_type") else None
    if operation:
        sums.is_typed = True
        direction = {"InterZone-In": "in", "InterZone-Out": "out"}.get(operation, "undirected")
    else:
        direction = next(
            key for key, regex in _DIRECTIONS.items() if re.search(regex, row["description"], re.IGNORECASE)
        )
    sums.rows += 1
    sums.currencies.add(row["currency"] or "")
    if len(sums.currencies) > 1:
        raise ValueError(f"another currency, {short_repr(row['currency'])}")
    period = _time(row["first"]), _time(row["last"])
    if period[1] < period[0]:
        raise ValueError(f"ends at {row['last']}, before it begins")
    sums.periods.add(period)
    # In FOCUS an ARN, which ends with the ID.
    resource = (row.get("resource") or "").rpartition("/")[2]
    traffic = BilledTraffic(**{f"bytes_{direction}": _number(row, amount) * size, f"cost_{direction}": cost})
    sums.resources[resource] = _sum([sums.resources.get(resource, BilledTraffic()), traffic])
    return period[0], (period[1], resource, traffic)


def _number(row: Mapping[str, Any], name: str) -> float:
    try:
        number = float(row[name])
    except (KeyError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number, got {short_repr(row.get(name))}")
    return number


@lru_cache(maxsize=4096)
def _time(value: datetime | str | None) -> datetime:
    if not isinstance(value, datetime):
        # BigQuery writes UTC.
        value = datetime.fromisoformat((value or "").removesuffix("UTC").strip().replace("Z", "+00:00"))
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What an invoice's bytes between zones are.

    Args:
        billed: Bytes in the invoice.
        payload: Bytes of Kafka, as often as they are billed: at least, and at most.
        headers: Bytes of headers of these segments, and of their acknowledgements.
        rest: What is left: traffic of others. Negative if Kafka explains more than the invoice has.
        cost: Of all bytes in the invoice.
        currency: Of the cost.
        brokers: What is billed for each broker.
        sentences: What is remarkable.
    """

    billed: float
    payload: Span
    headers: Span
    rest: Span
    cost: float
    currency: str
    brokers: Mapping[int, BilledTraffic]
    sentences: tuple[str, ...]


def explain(
    invoice: Invoice, bytes_s: Mapping[str, Span], *, mtu: int | None = 9001, instances: Mapping[int, str] | None = None
) -> Explanation:
    """Return what Kafka explains of an invoice, if the rates of an interval were those of the invoice's whole period.

    Args:
        invoice: Result of `read_invoice`.
        bytes_s: Bytes per second between zones by line of the bill, without lines that the provider does not bill.
        mtu: Bytes of the largest IP packet between brokers and clients; None if bytes are those of packets.
        instances: Resource ID of each broker, as in `i-0a1b2c3d`.

    Raises:
        ConfigError: The MTU is not larger than the headers.
    """
    if mtu is not None and mtu <= HEADER_BYTES:
        raise ConfigError(f"mtu must be larger than {HEADER_BYTES}, got {mtu}")
    total = invoice.total
    seconds = (invoice.last - invoice.first).total_seconds() if invoice.first and invoice.last else 0.0
    seconds -= invoice.gap_s
    # AWS bills a byte at both ends, in rows without a direction too; Google bills the sender.
    ends = 2 if total.bytes_undirected or (total.bytes_in and total.bytes_out) else 1
    payload = total_span(bytes_s.values()).times(seconds * ends)
    # A segment is acknowledged by one without payload, which is billed alike. Fewer if acknowledgements are delayed.
    headers = payload.times(0.0 if mtu is None else 2 * HEADER_BYTES / (mtu - HEADER_BYTES))
    known = payload.plus(headers)
    rest = Span(total.bytes_ - known.most, total.bytes_ - known.least)
    sentences = [*invoice.sentences]
    if rest.most < 0 and invoice.rows:
        sentences.append(
            f"Kafka explains {known.least / total.bytes_ - 1:.0%} more than the invoice has: rates of the "
            "interval are above those of the invoice's period, or the invoice lacks an account"
            if total.bytes_ > 0
            else "the invoice has no bytes between zones, or corrections took them back"
        )
    brokers = {broker: invoice.resources.get(id_, BilledTraffic()) for broker, id_ in (instances or {}).items()}
    if missing := [broker for broker, traffic in brokers.items() if not traffic.bytes_]:
        sentences.append(f"the invoice has no traffic between zones of the instances of brokers {join_ids(missing)}")
    return Explanation(total.bytes_, payload, headers, rest, total.cost, invoice.currency, brokers, tuple(sentences))
