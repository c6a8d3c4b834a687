"""Brokers in containers (extra `docker`): one container and one rack for each broker, on a separate network."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackassign.testing.docker.cluster import DockerCluster

__all__ = ["DockerCluster"]


def __getattr__(name: str) -> object:
    # `cleanup` runs as a program, so no other module of this package may be imported before it.
    if name == "DockerCluster":
        return import_module("rackassign.testing.docker.cluster").DockerCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
