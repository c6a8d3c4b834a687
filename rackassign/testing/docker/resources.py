"""All that one cluster in containers holds on this machine, to be given up together."""

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
    """A lock that says we live, ports, a network, and whatever containers are run.

    Args:
        image: What the containers run.
        ports: How many of them are wanted.

    Raises:
        ClusterError: The engine does not answer or makes no network, or there are no ports.
    """

    def __init__(self, image: str, ports: int) -> None:
        self._image = image
        with ExitStack() as undo:
            home = create_cluster_directory()
            undo.callback(_remove_home, home)
            self.directory = home.directory
            reserved = reserve_ports(ports)
            undo.callback(reserved.close)
            self.ports = reserved.numbers
            self._client = connect()
            undo.callback(self._client.close)
            self._owner = ResourceOwner.for_this_process(home.lock)
            undo.callback(self._remove_all)
            self._network = self._new_network()
            self._undo = undo.pop_all()

    def run(self, broker: Broker, environment: Mapping[str, str]) -> Any:  # noqa: ANN401 - docker-py is untyped
        """Start a new container for a broker and return it.

        Raises:
            DockerException: The engine refuses.
        """
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only for this provider

        container = (
            DockerContainer(self._image)
            .with_envs(**environment)
            # Known to the others by name only, wherever they are started.
            .with_kwargs(labels=self._owner.labels, hostname=alias(broker.id))
            .with_network(self._network)
            .with_network_aliases(alias(broker.id))
        )
        # with_bind_ports cannot keep a port from the other interfaces.
        for inside, outside in published(broker).items():
            container.ports[f"{inside}/tcp"] = (broker.host, outside)  # type: ignore[assignment]
        try:
            with _without_reaper():
                container.start()
            return self._client.containers.get(container.get_wrapped_container().id)
        finally:
            container.get_docker_client().client.close()

    def disconnect(self, container: Any) -> None:  # noqa: ANN401
        """Take a container off the network.

        Raises:
            DockerException: The engine refuses.
        """
        self._client.networks.get(self._network.id).disconnect(container, force=True)

    def reconnect(self, container: Any, broker: Broker) -> None:  # noqa: ANN401
        """Put a broker's container on the network again, under its name.

        Raises:
            DockerException: The engine refuses.
        """
        self._client.networks.get(self._network.id).connect(container, aliases=[alias(broker.id)])

    def give_up(self) -> None:
        """Remove containers and network, then let go of ports and lock.

        Raises:
            ClusterError: The engine does not remove them; a later sweep will.
        """
        self._undo.close()

    def _new_network(self) -> Any:  # noqa: ANN401
        from testcontainers.core.network import Network  # noqa: PLC0415 - only for this provider

        network = Network(docker_network_kw={"labels": self._owner.labels})
        try:
            with engine_errors("no network can be made"), _without_reaper():
                return network.create()
        finally:
            # Only its name is wanted from here on, and it has no close of its own.
            network._docker.client.close()  # noqa: SLF001

    def _remove_all(self) -> None:
        remove(self._client, lambda owner: owner.run == self._owner.run)


@contextmanager
def _without_reaper() -> Iterator[None]:
    """Keep testcontainers from starting its reaper: one more image to pull, for what our own sweep does.

    Only while we start something: the user's other containers keep theirs.
    """
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - only for this provider

    before = testcontainers_config.ryuk_disabled
    testcontainers_config.ryuk_disabled = True
    try:
        yield
    finally:
        testcontainers_config.ryuk_disabled = before


def _remove_home(home: ClusterDirectory) -> None:
    shutil.rmtree(home.directory)
    home.lock.unlink(missing_ok=True)
    os.close(home.descriptor)
