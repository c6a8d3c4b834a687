"""Brokers that are down and do not return."""

from __future__ import annotations

import socket
import struct

from rackassign.testing import Cluster


def unregister(cluster: Cluster, broker: int) -> None:
    """Have a broker that is down forgotten, as its operators do before they throw it away; no client here can."""
    request = struct.pack(">hhihbib", 64, 0, 1, -1, 0, broker, 0)
    with socket.create_connection((cluster.brokers[0].host, cluster.brokers[0].port), 300) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb").read(4 + 4 + 1 + 4 + 2)
    assert struct.unpack(">iibih", answer)[-1] == 0
