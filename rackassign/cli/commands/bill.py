"""`rackassign bill`: what Kafka costs between racks, who causes it, and what to set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rackassign.admin.raw_requests import broker_addresses
from rackassign.bill import LINES, Line
from rackassign.bill.broker_metrics import BrokerCounters, apply_broker_metrics, late_followers, read_broker_metrics
from rackassign.bill.levers import evaluate
from rackassign.bill.report import (
    SOURCES,
    Bill,
    Source,
    as_json,
    causes,
    commands,
    describe_invoice,
    further,
    headline,
    owners,
    summary,
    usd_range,
    what,
)
from rackassign.bill.usage import OVERCLAIMED, Items, Setting, Usage, total
from rackassign.cli import ExitCode
from rackassign.cli.connection import ClientConfig, admin_client
from rackassign.cli.shared_options import (
    INTERVAL_S,
    CloudOption,
    Interval,
    PriceOption,
    RackMapFile,
    check_interval,
    read_rack_map,
    warnings,
)
from rackassign.cli.terminal import (
    HtmlFile,
    Output,
    check_output,
    check_writable,
    examples,
    plain_line,
    progress_display,
    warn,
    write_text,
)
from rackassign.errors import ConfigError
from rackassign.monitoring import ClusterReport, GroupCollector, Price, RackMap
from rackassign.monitoring.report import format_usd
from rackassign.monitoring.traffic import TrafficMatrix
from rackassign.monitoring.written_bytes import (
    WrittenBytes,
    WrittenTraffic,
    read_written_bytes,
    written_traffic,
    written_warnings,
)
from rackassign.text import join_first, join_ids, strip_control_chars

if TYPE_CHECKING:
    from rackassign.bill.invoice import Invoice
    from rackassign.bill.page import HistoryPoint

app = typer.Typer(rich_markup_mode=None)

_NAMED = 3
_MOST_ITEMS = 10
"""Topics and groups that are shown; all are in the JSON output."""


@app.command(
    epilog=examples(
        "bill --bootstrap-server localhost:9092 --interval 60",
        "bill --bootstrap-server localhost:9092 --producers http://app-1:9100/metrics --cloud msk --html bill.html",
        "bill snapshots/ --html bill.html",
    )
)
def bill(
    snapshots: Annotated[
        str, typer.Argument(help="Folder that `snapshot --parquet` wrote, or one file of it, in place of a cluster.")
    ] = "",
    *,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap-server", help="Comma-separated HOST:PORT list of brokers.", show_default=False)
    ] = "",
    interval: Interval = INTERVAL_S,
    producers: Annotated[
        list[str] | None,
        typer.Option("--producers", help="File or URL with the metrics of producers (ProducerMetrics); repeatable."),
    ] = None,
    broker_metrics: Annotated[
        list[str] | None,
        typer.Option("--broker-metrics", help="File or URL with the metrics of a broker (jmx_exporter); repeatable."),
    ] = None,
    prometheus: Annotated[
        str, typer.Option(help="Address of a Prometheus with network metrics of OpenTelemetry's OBI.")
    ] = "",
    flow_logs: Annotated[
        str, typer.Option("--flow-logs", help="File or folder of AWS VPC flow logs; zones are those of --rack-map.")
    ] = "",
    invoice: Annotated[
        str, typer.Option(help="Invoice to explain: FOCUS, or a cost and usage report of AWS; CSV or Parquet.")
    ] = "",
    mtu: Annotated[int, typer.Option(min=68, help="Largest IP packet in bytes, for the headers in an invoice.")] = 9001,
    max_skew: Annotated[int, typer.Option(min=0, help="As that of balance-leaders, for the leaders of a lever.")] = 0,
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    cloud: CloudOption = None,
    html: HtmlFile = "",
    client_config: ClientConfig = "",
    output: Output = "table",
) -> int:
    """Show what Kafka's traffic between racks costs, who causes it, and what to set."""
    check_output(output, "table", "json")
    check_interval(interval)
    if not interval:
        raise ConfigError("a bill is of what is measured over an interval, so --interval cannot be 0")
    check_writable("html", html)
    if prometheus and flow_logs:
        raise ConfigError("give either --prometheus or --flow-logs")
    racks, cost = read_rack_map(rack_map), Price.from_options(price, cloud)
    billed = _invoice(invoice)
    if bool(snapshots) == bool(bootstrap):
        raise ConfigError("give either --bootstrap-server, or a folder of snapshots")
    history: list[HistoryPoint] = []
    if snapshots:
        if rack_map:
            raise ConfigError("--rack-map is for `snapshot`, which writes the racks that it has")
        if producers or broker_metrics or prometheus or flow_logs:
            raise ConfigError(
                "--producers, --broker-metrics, --prometheus and --flow-logs are measured beside a cluster: they need"
                " --bootstrap-server"
            )
        made, history = _of_snapshots(Path(snapshots), cost, max_skew)
    else:
        looks = _Looks(producers or (), broker_metrics or ())
        looks.check()
        if prometheus or flow_logs:
            from rackassign.bill.network import check_sources  # noqa: PLC0415 - imports pyarrow

            check_sources(prometheus, flow_logs)
        with admin_client(bootstrap, client_config) as admin, progress_display() as progress:
            report = GroupCollector(admin, racks).report(
                None,
                interval_s=interval,
                report_progress=progress.on_progress,
                topics=admin.list_topics(),
                on_sample=looks.take,
            )
            progress.show_step("Evaluating levers")
            made = looks.bill(report, cost, max_skew, tuple(warnings(report, racks)))
            config = f" --command-config {quote(client_config)}" if client_config else ""
            made = replace(made, connection=f"--bootstrap-server {quote(bootstrap)}{config}")
            if prometheus or flow_logs:
                progress.show_step("Reading what the network has counted")
                made = _with_network(made, broker_addresses(admin), racks, prometheus, flow_logs)
    if billed is not None:
        made = replace(made, invoice=made.explain(billed, mtu))
    for note in made.notes:
        warn(note)
    if html:
        from rackassign.bill.page import page  # noqa: PLC0415 - most bills are no page

        write_text("html", html, page(made, history))
    if output == "json":
        sys.stdout.write(json.dumps(as_json(made)) + "\n")
    else:
        show(made, Console(highlight=False))
    return ExitCode.DONE


def _unsure(report: ClusterReport, written: WrittenTraffic | None) -> Iterator[str]:
    """Yield what makes figures of the bill less than exact."""
    offline = [broker.id for broker in report.cluster.brokers if broker.fenced]
    if offline:
        yield f"brokers {join_ids(offline)} are offline: what is copied to them later counts as if it were copied now"
    if own := [strip_control_chars(g.snapshot.live.name) for g in report.inspections if g.rates.unowned_s]:
        yield (
            f"{join_first(own, _NAMED)}: offsets are committed of partitions that no member has; consumers that assign"
            " them to themselves read them, whose racks are not known"
        )
    if written is None:
        return
    for topic in written.topics:
        share = written.explained(topic)
        if share is not None and share > OVERCLAIMED:
            yield (
                f"producers have sent {share:.1f} times what the logs of topic {topic.topic} grew by, so only their"
                " shares count: are they of this cluster?"
            )


def _of_snapshots(path: Path, price: Price, max_skew: int) -> tuple[Bill, list[HistoryPoint]]:
    """Return the bill of the last snapshot, and what crossed racks in all of them."""
    from rackassign.bill.page import HistoryPoint  # noqa: PLC0415 - as the page
    from rackassign.bill.snapshots import read_snapshots  # noqa: PLC0415 - imports pyarrow

    found = read_snapshots(path)
    history = []
    for each in found:
        items = each.usage.items(Setting())
        across = {line: total(item.across for key, item in items.items() if key.line == line) for line in LINES}
        history.append(HistoryPoint(each.taken, across))
    report = found[-1].report()
    usage = Usage.of(report)
    notes = tuple(_unsure(report, None))
    return Bill(usage, report, evaluate(usage, report, price, max_skew), price, max_skew=max_skew, notes=notes), history


def _invoice(path: str) -> Invoice | None:
    if not path:
        return None
    from rackassign.bill.invoice import read_invoice  # noqa: PLC0415 - imports pyarrow

    return read_invoice(path)


def _with_network(
    made: Bill, addresses: Sequence[tuple[int, str, int]], racks: RackMap, prometheus: str, flow_logs: str
) -> Bill:
    """Return the bill with its lines as the network counts them."""
    from rackassign.bill import network  # noqa: PLC0415 - imports pyarrow

    known = network.flow_network(made.report, addresses, racks)
    if prometheus:
        found = network.read_obi_traffic(prometheus, made.report.measured.seconds, known)
    else:
        found = network.read_flow_traffic(flow_logs, known)
    lines: dict[Line, tuple[Source, TrafficMatrix]] = {line: ("network", of) for line, of in found.lines.items()}
    return replace(made, measured=lines, notes=(*made.notes, *found.notes))


class _Looks:
    """What producers and brokers have counted at the begin and at the end of the measurement."""

    def __init__(self, producers: Sequence[str], brokers: Sequence[str]) -> None:
        self._producers, self._brokers = producers, brokers
        self._written: list[WrittenBytes] = []
        self._counted: list[BrokerCounters] = []

    def check(self) -> None:
        """Raise for sources that cannot be read, before anything is measured."""
        read_written_bytes(self._producers)
        read_broker_metrics(self._brokers)

    def take(self) -> None:
        """Read all of them."""
        if self._producers:
            self._written.append(read_written_bytes(self._producers))
        if self._brokers:
            self._counted.append(read_broker_metrics(self._brokers))

    def bill(self, report: ClusterReport, price: Price, max_skew: int, notes: tuple[str, ...]) -> Bill:
        """Return the bill."""
        written = written_traffic(report, *self._written) if self._written else None
        usage = Usage.of(report, written)
        measured: dict[Line, tuple[Source, TrafficMatrix]] = {}
        if self._counted:
            before, after = self._counted
            usage, copied = apply_broker_metrics(usage, after.since(before))
            measured["replicating"] = "brokers", copied
            notes = (*notes, *late_followers(usage, copied))
        return Bill(
            usage,
            report,
            evaluate(usage, report, price, max_skew),
            price,
            measured,
            self._producers,
            max_skew=max_skew,
            notes=(*notes, *written_warnings(written, report), *_unsure(report, written)),
        )


def show(made: Bill, console: Console) -> None:
    """Print the bill: its first line, its lines, its levers, and who causes most."""
    console.print(plain_line(headline(made)), soft_wrap=True)
    if not made.report.measured.seconds:
        return
    if not made.price.usd_per_gb:
        _show_invoice(made, console)
        return
    levers = made.evaluation.gaining
    numbers = [str(number) for number in range(1, len(levers) + 1)]
    table = _table("USD a month between racks, now, after each lever, and at the least")
    for column in ("", "now", *numbers, "least"):
        table.add_column(column, justify="right" if column else "left", no_wrap=not column)
    for line in LINES:
        if made.across(line).most:
            table.add_row(*_line(made, line, [lever.items for lever in levers]))
    stages: list[Items | None] = [None, *(lever.items for lever in levers)]
    table.add_section()
    table.add_row("all", *(usd_range(*made.money(stage)) for stage in stages), format_usd(made.floor))
    console.print(table)
    for number, lever in zip(numbers, levers, strict=True):
        console.print(plain_line(f"{number}. {summary(lever, made)}"), soft_wrap=True)
        for text in (what(lever, made), *(f"$ {line}" for line in commands(lever, made)), owners(lever)):
            console.print(plain_line(f"   {text}"), soft_wrap=True)
    for text in further(made):
        console.print(plain_line(text), soft_wrap=True)
    console.print(_items(made))
    _show_invoice(made, console)
    for source in dict.fromkeys(made.source(line) for line in LINES if made.across(line).most):
        of = ", ".join(line for line in LINES if made.across(line).most and made.source(line) == source)
        console.print(plain_line(f"{of}: from {SOURCES[source]}."), soft_wrap=True)


def _show_invoice(made: Bill, console: Console) -> None:
    for text in describe_invoice(made.invoice) if made.invoice is not None else ():
        console.print(plain_line(text), soft_wrap=True)


def _table(title: str) -> Table:
    return Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left")


def _line(made: Bill, line: Line, stages: Sequence[Items]) -> list[str]:
    def usd(items: Items | None) -> str:
        span = made.across(line, items)
        return usd_range(made.usd(line, span.least), made.usd(line, span.most))

    return [line, usd(None), *map(usd, stages), format_usd(made.usd(line, made.least(line)))]


def _items(made: Bill) -> Table:
    table = _table("Who causes most")
    for column in ("", "topic", "group", "now", "after all", "least"):
        table.add_column(column, justify="left" if column in {"", "topic", "group"} else "right", overflow="fold")
    rows = causes(made.evaluation)
    for row in rows[:_MOST_ITEMS]:
        spans = (usd_range(made.usd(row.line, s.least), made.usd(row.line, s.most)) for s in (row.now, row.after))
        least = format_usd(made.usd(row.line, row.least))
        names = map(strip_control_chars, (join_first(row.topics, 1), row.group or _unnamed(row.line)))
        table.add_row(*map(plain_line, (row.line, *names, *spans, least)))
    if len(rows) > _MOST_ITEMS:
        table.caption = f"{len(rows) - _MOST_ITEMS} more are in --output json"
    return table


def _unnamed(line: Line) -> str:
    return "(in no group seen)" if line == "consuming" else ""
