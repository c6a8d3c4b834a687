"""Resources that one cluster in containers holds on this machine and that are released together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from rackassign.testing.cluster import Broker
from rackassign.testing.docker.cleanup import ResourceOwner, remove
from rackassign.testing.docker.config import alias, published
from rackassign.testing.docker.engine import connect, engine_errors
from rackassign.testing.local.cluster_dir import ClusterDirectory, create_cluster_directory
from rackassign.testing.ports import reserve_ports


class DockerResources:
    """A lock that marks the cluster as running, its ports, its network, and its containers.

    Args:
        image: Image of the containers.
        ports: Number of ports to reserve.

    Raises:
        ClusterError: The engine does not respond or cannot create a network, or not enough ports are free.
    """

    def __init__(self, image: str, ports: int) -> None:
        self._image = image
        with ExitStack() as undo:
            cluster_dir = create_cluster_directory()
            undo.callback(_remove_directory, cluster_dir)
            self.directory = cluster_dir.directory
            reserved = reserve_ports(ports)
            undo.callback(reserved.close)
            self.ports = reserved.numbers
            self._client = connect()
            undo.callback(self._client.close)
            self._owner = ResourceOwner.for_this_process(cluster_dir.lock)
            undo.callback(self._remove_all)
            self._network = self._new_network()
            self._undo = undo.pop_all()

    def run(self, broker: Broker, environment: Mapping[str, str]) -> Any:  # noqa: ANN401 - docker-py is untyped
        """Start a new container for a broker and return it.

        Raises:
            DockerException: The engine refuses the request.
        """
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only for this provider

        container = (
            DockerContainer(self._image)
            .with_envs(**environment)
            # The other brokers address it by this name only, wherever the containers are started.
            .with_kwargs(labels=self._owner.labels, hostname=alias(broker.id))
            .with_network(self._network)
            .with_network_aliases(alias(broker.id))
        )
        # with_bind_ports cannot restrict a port to one interface.
        for inside, outside in published(broker).items():
            container.ports[f"{inside}/tcp"] = (broker.host, outside)  # type: ignore[assignment]
        try:
            with _without_reaper():
                container.start()
            return self._client.containers.get(container.get_wrapped_container().id)
        finally:
            container.get_docker_client().client.close()

    def disconnect(self, container: Any) -> None:  # noqa: ANN401
        """Disconnect a container from the network.

        Raises:
            DockerException: The engine refuses the request.
        """
        self._client.networks.get(self._network.id).disconnect(container, force=True)

    def reconnect(self, container: Any, broker: Broker) -> None:  # noqa: ANN401
        """Reconnect a broker's container to the network under its name.

        Raises:
            DockerException: The engine refuses the request.
        """
        self._client.networks.get(self._network.id).connect(container, aliases=[alias(broker.id)])

    def close(self) -> None:
        """Remove the containers and the network, then release the ports and the lock.

        Raises:
            ClusterError: The engine does not remove them; a later `sweep()` will.
        """
        self._undo.close()

    def _new_network(self) -> Any:  # noqa: ANN401
        from testcontainers.core.network import Network  # noqa: PLC0415 - only for this provider

        network = Network(docker_network_kw={"labels": self._owner.labels})
        try:
            with engine_errors("no network can be created"), _without_reaper():
                return network.create()
        finally:
            # Only its name is needed from here on, and the class has no method to close its client.
            network._docker.client.close()  # noqa: SLF001

    def _remove_all(self) -> None:
        remove(self._client, lambda owner: owner.run == self._owner.run)


@contextmanager
def _without_reaper() -> Iterator[None]:
    """Prevent testcontainers from starting its reaper, which needs one more image and duplicates `sweep()`.

    This applies only while rackassign starts something, so the user's other containers keep their reaper.
    """
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - only for this provider

    before = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = True
    try:
        yield
    finally:
        testcontainers_config.ryuk_disabled = before


def _remove_directory(cluster_dir: ClusterDirectory) -> None:
    shutil.rmtree(cluster_dir.directory)
    cluster_dir.lock.unlink(missing_ok=True)
    os.close(cluster_dir.descriptor)
