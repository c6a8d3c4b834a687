"""Invoices: rows between zones are found in each format, summed by direction and resource, and explained."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rackassign.bill.invoice import BilledTraffic, Invoice, explain, read_invoice
from rackassign.bill.report import describe_invoice
from rackassign.bill.usage import Span, total
from rackassign.errors import ConfigError

AWS_TEXT = "$0.010 per GB - regional data transfer - in/out/between EC2 AZs or using elastic IPs or ELB"
GOOGLE_TEXT = "Network Inter Zone Data Transfer Out"
START = datetime(2026, 11, 1, tzinfo=timezone.utc)

FOCUS: dict[str, object] = {
    "AvailabilityZone": None,
    "BilledCost": "0.5",
    "BillingCurrency": "USD",
    "ChargeCategory": "Usage",
    "ChargeDescription": AWS_TEXT,
    "ChargePeriodStart": "2026-11-01T00:00:00Z",
    "ChargePeriodEnd": "2026-11-01T01:00:00Z",
    "ConsumedQuantity": "50",
    "ConsumedUnit": "GB",
    "PricingQuantity": "50",
    "PricingUnit": "GB",
    "ProviderName": "AWS",
    "ResourceId": "arn:aws:ec2:us-east-1:123456789012:instance/i-1",
    "ServiceName": "Amazon Elastic Container Service",
    "SkuId": "7MAPUM",
    "Tags": '{"team": "a,\nb"}',
}
FOCUS_OF_AWS = {**FOCUS, "x_UsageType": "USE2-DataTransfer-Regional-Bytes", "x_Operation": "InterZone-Out"}
CUR: dict[str, object] = {
    "line_item_line_item_type": "Usage",
    "line_item_usage_type": "DataTransfer-Regional-Bytes",
    "line_item_operation": "InterZone-In",
    "line_item_usage_amount": "50",
    "line_item_unblended_cost": "0.5",
    "line_item_currency_code": "USD",
    "line_item_resource_id": "i-1",
    "line_item_usage_start_date": "2026-11-01T00:00:00.000Z",
    "line_item_usage_end_date": "2026-11-01T01:00:00.000Z",
    "line_item_line_item_description": AWS_TEXT,
    "pricing_unit": "GB",
}
_LEGACY = {
    "line_item_line_item_type": "lineItem/LineItemType",
    "line_item_usage_type": "lineItem/UsageType",
    "line_item_operation": "lineItem/Operation",
    "line_item_usage_amount": "lineItem/UsageAmount",
    "line_item_unblended_cost": "lineItem/UnblendedCost",
    "line_item_currency_code": "lineItem/CurrencyCode",
    "line_item_resource_id": "lineItem/ResourceId",
    "line_item_usage_start_date": "lineItem/UsageStartDate",
    "line_item_usage_end_date": "lineItem/UsageEndDate",
    "line_item_line_item_description": "lineItem/LineItemDescription",
    "pricing_unit": "pricing/unit",
}
LEGACY = {_LEGACY[name]: value for name, value in CUR.items()}
OTHER = {"ChargeDescription": "$0.09 per GB - data transfer out", "x_UsageType": "DataTransfer-Out-Bytes"}


def written(file: Path, *rows: Mapping[str, object]) -> Path:
    """Write rows as CSV, with gzip if the name ends so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [*rows[0]])
    writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue().encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def changed(row: Mapping[str, object], *changes: Mapping[str, object]) -> list[dict[str, object]]:
    return [{**row, **change} for change in changes]


def test_rows_of_aws_in_focus_are_found_by_usage_type_and_operation(tmp_path: Path) -> None:
    rows = changed(
        FOCUS_OF_AWS,
        {},
        {"x_Operation": "InterZone-In", "ResourceId": "i-2"},
        # The same text is that of others.
        {"x_Operation": "PublicIP-In"},
        {"x_Operation": "VPCPeering-Out"},
        {"x_UsageType": "DataTransfer-Out-Bytes"},
    )
    found = read_invoice(written(tmp_path / "focus.csv.gz", *rows))
    assert found == Invoice(
        2,
        BilledTraffic(bytes_in=50e9, bytes_out=50e9, cost_in=0.5, cost_out=0.5),
        {"i-1": BilledTraffic(bytes_out=50e9, cost_out=0.5), "i-2": BilledTraffic(bytes_in=50e9, cost_in=0.5)},
        START,
        START + timedelta(hours=1),
        "USD",
        (),
    )


@pytest.mark.parametrize("version", ["1.0", "1.2", "1.3", "1.4"])
def test_rows_without_columns_of_aws_are_found_by_their_description(tmp_path: Path, version: str) -> None:
    row = dict(FOCUS)
    if version >= "1.2":
        row |= {"InvoiceId": "7", "PricingCurrency": "USD"}
    if version >= "1.3":
        row |= {"ServiceProviderName": "AWS", "HostProviderName": "AWS"}
    if version >= "1.4":
        del row["ProviderName"]
    rows = changed(
        row, {}, {"ServiceName": "Elastic Load Balancing", "SkuId": "other"}, OTHER, {"ChargeDescription": ""}
    )
    found = read_invoice(written(tmp_path / "focus.csv", *({name: one[name] for name in row} for one in rows)))
    assert found.total == BilledTraffic(bytes_undirected=100e9, cost_undirected=1.0)
    assert [*found.resources] == ["i-1"]
    (sentence,) = found.sentences
    assert (
        "found by their description, which is also that of traffic through elastic IPs and load balancers" in sentence
    )


@pytest.mark.parametrize("row", [CUR, LEGACY, {name: value for name, value in CUR.items() if name != "pricing_unit"}])
def test_cost_and_usage_reports(tmp_path: Path, row: dict[str, object]) -> None:
    operation = next(name for name in row if name.lower().endswith("operation"))
    resource = next(name for name in row if "resource" in name.lower())
    rows = changed(row, {}, {operation: "InterZone-Out", resource: "i-2"}, {operation: "LoadBalancing-PublicIP-In"})
    found = read_invoice(written(tmp_path / "cur.csv", *rows))
    assert found.total == BilledTraffic(bytes_in=50e9, bytes_out=50e9, cost_in=0.5, cost_out=0.5)
    assert found.resources["i-2"] == BilledTraffic(bytes_out=50e9, cost_out=0.5)


def test_parquet_with_other_types_and_lower_case(tmp_path: Path) -> None:
    row = {
        **FOCUS_OF_AWS,
        "BilledCost": Decimal("0.5"),
        "ConsumedQuantity": 50.0,
        "ChargePeriodStart": START,
        "ChargePeriodEnd": datetime(2026, 11, 1, 1),  # noqa: DTZ001 - a column without a zone
    }
    rows = changed(
        {name.lower(): value for name, value in row.items()}, {}, {"x_operation": None}, {"x_operation": "Run"}
    )
    table = pa.Table.from_pylist(rows)
    column = table.column_names.index("chargedescription")
    pq.write_table(
        table.set_column(column, "chargedescription", table[column].dictionary_encode()), tmp_path / "a.parquet"
    )
    found = read_invoice(tmp_path / "a.parquet")
    assert found.total == BilledTraffic(bytes_out=50e9, bytes_undirected=50e9, cost_out=0.5, cost_undirected=0.5)
    assert (found.first, found.last) == (START, START + timedelta(hours=1))


@pytest.mark.parametrize(
    "text", [GOOGLE_TEXT, "Network Inter Zone Egress", "network inter-zone data transfer out to x"]
)
def test_google_bills_the_sender_by_the_gib(tmp_path: Path, text: str) -> None:
    google = {**FOCUS, "ChargeDescription": text, "ConsumedUnit": "gibibyte", "PricingUnit": "GiB", "ResourceId": ""}
    google |= {"ChargePeriodStart": "2026-11-01 00:00:00 UTC"}
    rows = changed(google, {}, {"ChargeDescription": "Network Inter Zone Ingress", "BilledCost": "0"})
    rows += changed(
        google, {"ChargeDescription": "Network Inter Region Egress"}, {"ConsumedQuantity": "", "ConsumedUnit": ""}
    )
    found = read_invoice(written(tmp_path / "google.csv", *rows))
    assert found.total == BilledTraffic(bytes_in=50 * 2.0**30, bytes_out=100 * 2.0**30, cost_out=1.0)
    assert (found.resources, found.sentences) == ({}, ())


def test_corrections_are_summed_and_other_categories_are_named(tmp_path: Path) -> None:
    rows = changed(
        FOCUS_OF_AWS,
        {},
        {"ConsumedQuantity": "-20", "BilledCost": "-0.2", "ChargePeriodStart": "2026-10-31T23:00:00Z"},
        {"x_Operation": "InterZone-In", "ConsumedQuantity": "30", "BilledCost": "0.3"},
        {"ChargeCategory": "Credit", "BilledCost": "-0.25"},
        {"ChargeCategory": "Tax", "BilledCost": "0.1", "ConsumedUnit": ""},
    )
    found = read_invoice(written(tmp_path / "a.csv", *rows))
    assert (found.rows, found.total.bytes_in, found.total.bytes_out) == (3, 30e9, 30e9)
    assert found.total.cost == pytest.approx(0.6)
    assert found.first == START - timedelta(hours=1)
    assert found.sentences == (
        "rows of the category Credit with a cost of -0.25 are not in the sums",
        "rows of the category Tax with a cost of 0.10 are not in the sums",
    )


def test_corrections_alone_are_no_traffic(tmp_path: Path) -> None:
    row = {**FOCUS_OF_AWS, "ConsumedQuantity": "-50", "BilledCost": "-0.5"}
    found = read_invoice(written(tmp_path / "a.csv", row))
    assert describe_invoice(explain(found, exactly(producing=5.0))) == [
        "The invoice has no bytes between zones, or corrections took them back."
    ]


def hours(day: str, number: int, amount: int = 50) -> list[dict[str, object]]:
    """Rows of some hours of a day, both directions."""
    return [
        {**FOCUS_OF_AWS, "x_Operation": operation, "ConsumedQuantity": str(amount + i)}
        | {"ChargePeriodStart": f"{day}T{i:02}:00:00Z", "ChargePeriodEnd": f"{day}T{i + 1:02}:00:00Z"}
        for i in range(number)
        for operation in ("InterZone-In", "InterZone-Out")
    ]


def test_rows_that_two_files_have_are_not_summed(tmp_path: Path) -> None:
    # A report of AWS that keeps its versions has a folder for each, and its manifests beside it.
    for version, number in (("1", 5), ("2", 8)):
        written(tmp_path / "all" / version / "focus.csv.gz", *hours("2026-11-01", number))
        (tmp_path / "all" / version / "focus-Manifest.json").write_text("{}", "utf-8")
    table = pa.Table.from_pylist(list(reversed(hours("2026-11-01", 8))))
    pq.write_table(table, tmp_path / "all" / "1" / "same.parquet")
    with pytest.raises(ConfigError, match=r"same.parquet: has the same rows as .*1/focus.csv.gz: give one version"):
        read_invoice(tmp_path / "all")
    (tmp_path / "all" / "1" / "same.parquet").unlink()
    with pytest.raises(ConfigError, match=r"2/focus.csv.gz: has the same rows as .*1/focus.csv.gz: give one version"):
        read_invoice(tmp_path / "all")
    assert read_invoice(tmp_path / "all" / "2").rows == 16
    # Other rows of the same hours, and other hours, are parts of one invoice.
    written(tmp_path / "all" / "2" / "part.csv", *hours("2026-11-01", 8, 70), *hours("2026-11-02", 8))
    assert read_invoice(tmp_path / "all" / "2").rows == 48
    with pytest.raises(ConfigError, match="neither FOCUS nor"):
        read_invoice(tmp_path / "all" / "2" / "focus-Manifest.json")


def test_months_that_are_no_neighbours_are_no_traffic_between(tmp_path: Path) -> None:
    rows = [*hours("2026-09-01", 10), *hours("2026-11-01", 10)]
    found = read_invoice(written(tmp_path / "a.csv", *rows))
    assert (found.first, found.last) == (datetime(2026, 9, 1, tzinfo=timezone.utc), START + timedelta(hours=10))
    assert explain(found, exactly(producing=5.0)).payload.least == 20 * 3600 * 5.0 * 2


@pytest.mark.parametrize(
    ("amount", "sentence"),
    [
        ("50.2", None),
        ("40", "20.0% of what is billed out is not billed in: the other end is in another account, or is a service"),
        ("60", "16.7% of what is billed in is not billed out: the other end is in another account, or is a service"),
        ("0", "100.0% of what is billed out is not billed in: the other end is in another account, or is a service"),
    ],
)
def test_both_directions_must_be_equal(tmp_path: Path, amount: str, sentence: str | None) -> None:
    rows = changed(FOCUS_OF_AWS, {}, {"x_Operation": "InterZone-In", "ConsumedQuantity": amount})
    assert read_invoice(written(tmp_path / "a.csv", *rows)).sentences == ((sentence,) if sentence else ())


def test_an_invoice_without_such_rows_states_what_was_looked_for(tmp_path: Path) -> None:
    found = read_invoice(written(tmp_path / "azure.csv", {**FOCUS, "ChargeDescription": "Bandwidth Inter-Region - 1"}))
    assert (found.rows, found.total, found.first, found.last) == (0, BilledTraffic(), None, None)
    (sentence,) = found.sentences
    for word in ("DataTransfer-Regional-Bytes", "InterZone", "between EC2 AZs", "egress"):
        assert word in sentence
    assert explain(found, exactly(producing=5.0)).sentences == (sentence,)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ([{}, {"ConsumedUnit": "Hours"}], 'row 2: unknown unit "Hours"'),
        ([{}, OTHER, {"ConsumedUnit": ""}], "row 3: unknown unit null"),
        ([{"ConsumedQuantity": "many"}], 'row 1: amount must be a number, got "many"'),
        ([{"BilledCost": "nan"}], "row 1: cost must be a number"),
        ([{"BilledCost": "inf"}], 'row 1: cost must be a number, got "inf"'),
        ([{}, {"BillingCurrency": "EUR"}], 'row 2: another currency, "EUR"'),
        ([{"ChargePeriodStart": "yesterday"}], "row 1: Invalid isoformat string"),
        ([{"ChargePeriodEnd": "2026-10-01T00:00:00Z"}], "row 1: ends at 2026-10-01T00:00:00Z, before it begins"),
    ],
)
def test_a_row_that_cannot_be_summed_is_an_error_with_its_number(
    tmp_path: Path, changes: Sequence[Mapping[str, object]], problem: str
) -> None:
    file = written(tmp_path / "a.csv", *changed(FOCUS_OF_AWS, *changes))
    with pytest.raises(ConfigError) as caught:
        read_invoice(file)
    assert str(caught.value).startswith(f"{file}, {problem}")


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", bytes(range(256)) * 3, b"PAR1", gzip.compress(b"a\n1", mtime=0)[:-9]]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=str(file)):
        read_invoice(file)


def test_a_folder_and_the_order_of_rows_play_no_part(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [
        {**FOCUS_OF_AWS, "ConsumedQuantity": str(rng.randrange(1000)), "BilledCost": str(rng.randrange(64) / 64)}
        | {"x_Operation": rng.choice(["InterZone-In", "InterZone-Out", "RunInstances"]), "ResourceId": f"i-{i % 7}"}
        for i in range(3000)
    ]
    one = read_invoice(written(tmp_path / "one.csv", *rows))
    rng.shuffle(rows)
    for part in range(3):
        written(tmp_path / "many" / f"{part}.csv.gz", *rows[part::3])
    many = read_invoice(tmp_path / "many")
    assert (many.rows, many.total, many.resources) == (one.rows, one.total, dict(one.resources))
    assert sum(traffic.bytes_ for traffic in many.resources.values()) == many.total.bytes_


def invoice(in_: float, out: float, undirected: float = 0.0, **resources: float) -> Invoice:
    by = {name.replace("_", "-"): BilledTraffic(bytes_in=bytes_) for name, bytes_ in resources.items()}
    return Invoice(
        9, BilledTraffic(in_, out, undirected, 0.5, 0.5), by, START, START + timedelta(seconds=100), "USD", ()
    )


def exactly(**rates: float) -> dict[str, Span]:
    return {line: Span(rate, rate) for line, rate in rates.items()}


def test_what_kafka_explains_of_an_invoice() -> None:
    rates = exactly(replicating=6.0, producing=2.0, consuming=2.0)
    # Both ends are billed, so 1,000 bytes are 2,000 of the invoice.
    found = explain(invoice(1500.0, 1500.0, i_1=300.0), rates, mtu=1500, instances={1: "i-1", 2: "i-2", 3: "i-3"})
    assert (found.billed, found.payload, found.cost, found.currency) == (3000.0, Span(2000.0, 2000.0), 1.0, "USD")
    assert found.headers == pytest.approx((2000 * 2 * 0.036,) * 2, rel=0.01)
    assert total([found.payload, found.headers, found.rest]) == pytest.approx((3000.0, 3000.0))
    assert found.brokers == {1: BilledTraffic(bytes_in=300.0), 2: BilledTraffic(), 3: BilledTraffic()}
    assert found.sentences == ("the invoice has no traffic between zones of the instances of brokers 2, 3",)
    large = explain(invoice(1500.0, 1500.0), rates)
    assert large.headers == pytest.approx((2000 * 2 * 0.0058,) * 2, rel=0.01)
    assert explain(invoice(0.0, 0.0, 3000.0), rates).payload == Span(2000.0, 2000.0)
    # Google bills the sender.
    assert explain(invoice(0.0, 1500.0), rates).payload == Span(1000.0, 1000.0)


def test_what_is_known_as_a_range_is_explained_as_one() -> None:
    found = explain(invoice(1500.0, 1500.0), {"consuming": Span(2.0, 10.0)}, mtu=9001)
    assert found.payload == Span(400.0, 2000.0)
    assert found.rest == pytest.approx((3000 - 2000 * 1.0116, 3000 - 400 * 1.0116), rel=0.001)
    (line,) = describe_invoice(found)
    assert line == (
        "The invoice has 3 kB between zones, both ends counted for 1.00 USD: Kafka's records 400 B to 2 kB (13% to 67%,"
        " 0.13 to 0.67 USD), headers 4.65 B to 23.2 B (0% to 1%, 0.00 to 0.01 USD), others 977 B to 2.6 kB (33% to 87%,"
        " 0.33 to 0.87 USD)."
    )


def test_more_than_the_invoice_is_reported() -> None:
    found = explain(invoice(500.0, 500.0), exactly(producing=10.0), mtu=1500)
    assert found.rest.most < -1000
    assert found.sentences[0].startswith("Kafka explains 114% more than the invoice has: rates of the interval")
    (none,) = explain(invoice(0.0, -5.0), exactly(producing=10.0)).sentences
    assert none == "the invoice has no bytes between zones, or corrections took them back"
    with pytest.raises(ConfigError, match="mtu must be larger than 52, got 52"):
        explain(invoice(1.0, 1.0), {}, mtu=52)


def test_shares_of_random_invoices_sum_up() -> None:
    rng = random.Random(1)
    for _ in range(200):
        of = invoice(rng.random() * 1e9, rng.random() * 1e9)
        spans = ((rng.random() * 1e7, rng.random() * 1e7) for _ in range(3))
        rates = {
            line: Span(*sorted(span))
            for line, span in zip(("replicating", "producing", "consuming"), spans, strict=True)
        }
        found = explain(of, rates, mtu=rng.randrange(100, 9001))
        assert found.payload.least + found.headers.least + found.rest.most == pytest.approx(found.billed)
        assert found.payload.most + found.headers.most + found.rest.least == pytest.approx(found.billed)
        assert bool(found.sentences) == (found.rest.most < 0)
