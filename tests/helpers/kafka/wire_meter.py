"""Bytes on the wire: what each broker's own network namespace sends, by the listener it leaves through."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from rackassign.testing._cluster import Broker
from rackassign.testing._docker_cluster import DockerCluster
from rackassign.testing.docker_resources import published

_COUNT = re.compile(r"^\s*\d+\s+(\d+)\s.*\bspt:(\d+)", re.MULTILINE)


class WireMeter:
    """Counts the bytes brokers in containers send, headers and all, with one counting rule for each listener.

    Nothing is installed in the containers: the rules are put into their network namespaces from outside, and go with
    them. Needs root and iptables on this machine.
    """

    def __init__(self, cluster: DockerCluster) -> None:
        # `cluster`: running, with a listener for each kind of client that is to be told apart.
        self._cluster = cluster
        for broker in cluster.brokers:
            for port in self._ports(broker):
                self._iptables(broker, "-A", "OUTPUT", "-p", "tcp", "--sport", str(port))

    def sent(self) -> dict[tuple[int, str], int]:
        """Return the bytes sent since the meter was made, by broker and name of the listener."""
        counts: dict[tuple[int, str], int] = {}
        for broker in self._cluster.brokers:
            ports = self._ports(broker)
            listing = self._iptables(broker, "-L", "OUTPUT", "-v", "-n", "-x")
            for size, port in _COUNT.findall(listing):
                counts[broker.id, ports[int(port)]] = int(size)
        return counts

    def _ports(self, broker: Broker) -> Mapping[int, str]:
        """Return the names of the further listeners by their ports inside the container."""
        outside = {port: name for name, port in broker.listeners.items()}
        return {inside: outside[port] for inside, port in published(broker).items() if port in outside}

    def _iptables(self, broker: Broker, *words: str) -> str:
        pid = self._cluster.pids[broker.id]
        command = ["nsenter", "-t", str(pid), "-n", "iptables", "-w", *words]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout
