"""`rackassign exporter`: what crosses racks, for Prometheus."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from rackassign.admin.admin_client import AuthorizationError
from rackassign.bill.gauges import BillMetrics
from rackassign.cli import ExitCode
from rackassign.cli.connection import Bootstrap, ClientConfig, Reconnection, admin_client, parse_address
from rackassign.cli.shared_options import (
    All,
    CloudOption,
    Groups,
    Interval,
    PriceOption,
    RackMapFile,
    check_interval,
    read_rack_map,
    wanted_groups,
)
from rackassign.cli.terminal import examples, terminate_as_interrupt, warn, write_note
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.monitoring import GroupCollector, Price, collect_repeatedly
from rackassign.monitoring.collector import period_s
from rackassign.monitoring.report_metrics import METRICS, ReportMetrics, metrics_registry, serve_metrics
from rackassign.text import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rackassign.monitoring import ClusterReport

app = typer.Typer(rich_markup_mode=None)

INTERVAL_S = 30.0
LISTEN = "127.0.0.1:9108"


@app.command(
    epilog=examples(
        "exporter --bootstrap-server localhost:9092",
        "exporter --bootstrap-server localhost:9092 --listen 0.0.0.0:9108 --interval 60",
    )
)
def exporter(
    *,
    bootstrap: Bootstrap,
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT to listen on; port 0 takes a free one.")] = LISTEN,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    cloud: CloudOption = None,
    interval: Interval = INTERVAL_S,
    client_config: ClientConfig = "",
) -> int:
    """Serve cross-rack reads as Prometheus metrics until stopped; all groups unless some are named."""
    address, port = _address(listen)
    check_interval(interval)
    names = None if not group else wanted_groups(group, all_=all_)
    racks = read_rack_map(rack_map)

    cost = Price.from_options(price, cloud)
    metrics, bill = ReportMetrics(cost, period_s(interval)), BillMetrics(cost)

    def watch() -> None:
        with admin_client(bootstrap, client_config) as admin:
            collector = GroupCollector(admin, racks)
            with Reconnection(bootstrap, client_config, collector.use) as reconnect:
                # The bill is one of a whole cluster.
                found = collect_repeatedly(
                    collector, names, interval_s=interval, reconnect=reconnect, all_topics=names is None
                )
                _publish(found, metrics, bill if names is None else None)

    try:
        with terminate_as_interrupt(), ExitStack() as serving:
            try:
                at = serving.enter_context(
                    serve_metrics(address, port, metrics_registry(metrics, bill), metrics.not_ready)
                )
            except UnicodeError:
                raise ConfigError(f"listen: cannot serve on {listen}: {short_repr(address)} is no host name") from None
            except OSError as error:
                raise ConfigError(f"listen: cannot serve on {listen}: {error.strerror}") from None
            host = f"[{address}]" if ":" in address else address
            write_note(f"Serving http://{host}:{at}{METRICS}")
            _keep_watching(watch, metrics, interval)
    except KeyboardInterrupt:
        # That is how it is meant to end.
        pass
    return ExitCode.DONE


def _keep_watching(watch: Callable[[], None], metrics: ReportMetrics, interval_s: float) -> None:
    """Connect and watch; if Kafka is not available, also at the start, warn once and try again."""
    warned = ""
    while True:
        try:
            watch()
        except AuthorizationError:
            raise
        except (KafkaUnavailableError, ConfigError) as error:
            if isinstance(error, ConfigError) and not metrics.succeeded:
                raise
            metrics.fail(str(error))
            if str(error) != warned:
                warn(f"{error}; trying again")
            warned = str(error)
        time.sleep(period_s(interval_s))


def _publish(surveys: Iterable[ClusterReport | str], metrics: ReportMetrics, bill: BillMetrics | None = None) -> None:
    """Publish reports; if one fails, warn, and not again while the reason stays the same."""
    for survey in surveys:
        if bill is not None:
            bill.take(None if isinstance(survey, str) else survey)
        if isinstance(survey, str):
            if survey != metrics.not_ready():
                warn(survey)
            metrics.fail(survey)
        else:
            metrics.take(survey)


def _address(listen: str) -> tuple[str, int]:
    address, port = parse_address("listen", listen, "ADDRESS:PORT", lowest_port=0)
    return address.removeprefix("[").removesuffix("]"), port
