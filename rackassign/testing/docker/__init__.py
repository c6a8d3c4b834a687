"""Brokers in containers (extra `docker`): one container and one rack for each broker, in a network of their own."""

from rackassign.testing.docker.cluster import DockerCluster

__all__ = ["DockerCluster"]
