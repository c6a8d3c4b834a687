"""HTTP server of the exporter: metrics, health and readiness, and 404 for every other path."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from rackassign.errors import MissingExtraError

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

Application: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""An application of WSGI (PEP 3333)."""

METRICS, HEALTHY, READY = "/metrics", "/-/healthy", "/-/ready"

_SILENCE_S = 30.0
"""A client that sends nothing for so long is disconnected: each connection has a thread."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in `socketserver`
        """Ignore connections that end or stay silent, such as those of health checks; print any other error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_S

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape every few seconds is no event."""


@contextmanager
def serve_metrics(address: str, port: int, registry: CollectorRegistry, not_ready: Callable[[], str]) -> Iterator[int]:
    """Serve while the block lasts, in threads; yield the port.

    Args:
        address: Address to listen on, IPv4 or IPv6.
        port: Port to listen on; 0 takes a free one.
        registry: The metrics.
        not_ready: Returns why the metrics are not current; empty if they are.

    Raises:
        OSError: The address cannot be used.
    """
    family, *_, (host, *_) = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )[0]
    kind: type[_Server] = type("_FamilyServer", (_Server,), {"address_family": family})
    server: _Server = make_server(str(host), port, _app(registry, not_ready), kind, _Handler)
    thread = threading.Thread(target=server.serve_forever, name="rackassign-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _app(registry: CollectorRegistry, not_ready: Callable[[], str]) -> Application:
    metrics: Application = make_wsgi_app(registry)

    def app(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        if path == METRICS:
            return metrics(environment, start_response)
        status, text = "404 Not Found", f"not found: {METRICS}, {HEALTHY} and {READY} are"
        if path == HEALTHY:
            status, text = "200 OK", "healthy"
        elif path == READY:
            reason = not_ready()
            status, text = ("503 Service Unavailable", reason) if reason else ("200 OK", "ready")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return app
