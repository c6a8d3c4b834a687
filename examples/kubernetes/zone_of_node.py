"""Write the zone of this pod's node into a file; for an init container.

A pod of Kubernetes before 1.35 does not have its zone as a label, so the node is read from the API server, which needs
permission to get nodes. Only the standard library is used.

    NODE_NAME=node-1 python -m examples.kubernetes.zone_of_node /zone/rack
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.parse
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts the token of a service account, and the certificate of its API server."""
LABEL = "topology.kubernetes.io/zone"
TIMEOUT_S = 10


def zone_of(node: str, label: str, server: str, account: Path) -> str:
    """Return a label of a node.

    Args:
        node: Name of the node.
        label: The label.
        server: Address of the API server.
        account: Directory with the files `token` and `ca.crt`.

    Raises:
        LookupError: The node does not have the label.
        OSError: The API server does not respond, or refuses; or there is no token.
    """
    request = urllib.request.Request(
        f"https://{server}/api/v1/nodes/{urllib.parse.quote(node)}",
        headers={"Authorization": f"Bearer {(account / 'token').read_text().strip()}"},
    )
    trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted) as response:  # noqa: S310 - the same
        labels = json.load(response)["metadata"].get("labels", {})
    if not labels.get(label):
        raise LookupError(f"node {node} has no label {label}; it has {', '.join(sorted(labels)) or 'none'}")
    return str(labels[label])


def main(arguments: list[str]) -> int:
    """Write the file; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m examples.kubernetes.zone_of_node FILE\n")
        return 2
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    # The service of the API server has an address, which may be one of IPv6.
    server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    account = Path(os.environ.get("SERVICE_ACCOUNT_DIR", ACCOUNT))
    try:
        zone = zone_of(os.environ["NODE_NAME"], os.environ.get("NODE_LABEL") or LABEL, server, account)
    except (KeyError, LookupError, OSError) as error:
        # Kubernetes starts a failed init container again, and shows this text in the pod's log.
        sys.stderr.write(f"no zone: {error}\n")
        return 1
    Path(arguments[0]).write_text(zone)
    print(f"zone {zone}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
