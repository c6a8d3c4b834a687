"""`rackassign exporter`: what crosses racks, for Prometheus."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rackassign.cli.connection import Bootstrap, ClientConfig, admin_client
from rackassign.cli.group_options import (
    All,
    Groups,
    Interval,
    PriceOption,
    RackMapFile,
    check_interval,
    read_rack_map,
    wanted_groups,
)
from rackassign.cli.output import warn
from rackassign.cli.signals import terminate_as_interrupt
from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

STOPPED = 0
INTERVAL_S = 30.0
LISTEN = "127.0.0.1:9108"
_LARGEST_PORT = 65535


def exporter(
    *,
    bootstrap: Bootstrap,
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT to listen on; port 0 takes a free one.")] = LISTEN,
    group: Groups = None,
    all_: All = False,
    rack_map: RackMapFile = "",
    price: PriceOption = None,
    interval: Interval = INTERVAL_S,
    client_config: ClientConfig = "",
) -> int:
    """Serve cross-rack reads as Prometheus metrics until stopped; all groups unless some are named."""
    address, port = _address(listen)
    check_interval(interval)
    names = None if not group else wanted_groups(group, all_=all_)
    racks = read_rack_map(rack_map)
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - comes with an extra

    from rackassign.monitoring import GroupCollector, Price, collect_repeatedly  # noqa: PLC0415 - imports a client
    from rackassign.monitoring.prometheus import ReportMetrics  # noqa: PLC0415 - the same

    metrics = ReportMetrics(Price.from_option(price))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        raise ConfigError(f"listen: cannot serve on {listen}: {error.strerror}") from None
    try:
        with terminate_as_interrupt(), admin_client(bootstrap, client_config) as admin:
            sys.stderr.write(f"Serving http://{address}:{server.server_port}/metrics\n")
            for survey in collect_repeatedly(GroupCollector(admin, racks), names, interval_s=interval):
                if isinstance(survey, str):
                    metrics.fail()
                    warn(survey)
                else:
                    metrics.take(survey)
    except KeyboardInterrupt:
        # That is how it is meant to end.
        pass
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return STOPPED


def _address(listen: str) -> tuple[str, int]:
    address, _, port = listen.rpartition(":")
    if not address or not port.isascii() or not port.isdigit() or int(port) > _LARGEST_PORT:
        raise ConfigError(f"listen: expected ADDRESS:PORT, got {short_repr(listen)}")
    return address.removeprefix("[").removesuffix("]"), int(port)
