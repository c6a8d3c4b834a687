"""Versions of Kafka that local brokers can have: those whose jars are recorded in `kafka_jars/`."""

from __future__ import annotations

from collections.abc import Sequence

from rackassign.errors import ConfigError

KAFKA_VERSION = "4.4.0"
"""Version of brokers unless another one is asked for."""

VERSIONS = ("3.5.2", "3.7.2", "3.9.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.0", "4.3.1", "4.4.0")
"""All recorded versions, the oldest first; the last one of each minor version is its last patch release."""


def resolve_version(version: str | None) -> str:
    """Return the full version of a version: "3.9" is its last patch release, and None the default.

    Raises:
        ConfigError: There is no such version, and the message names those that exist; or it is no string. The number
            4.10 would be 4.1.
    """
    if version is None:
        return KAFKA_VERSION
    if not isinstance(version, str):
        raise ConfigError(f'kafka_version: expected a string, such as "3.9", got {version!r}')
    matching = [known for known in VERSIONS if version in {known, known.rpartition(".")[0]}]
    if not matching:
        names = ", ".join(VERSIONS)
        raise ConfigError(f'kafka_version: expected one of {names}, or a prefix such as "3.9", got {version!r}')
    return matching[-1]


def sort_key(version: str) -> tuple[int, ...]:
    """Return what full versions are sorted by."""
    return tuple(int(number) for number in version.split("."))


def broker_versions(versions: str | Sequence[str] | None, brokers: int) -> tuple[str, ...]:
    """Return the full version of each broker.

    Args:
        versions: One version for all brokers, None for the default, or a list with one for each broker.
        brokers: Number of brokers.

    Raises:
        ConfigError: There is no such version, or the list has another length.
    """
    if versions is None or isinstance(versions, str) or not isinstance(versions, Sequence):
        return (resolve_version(versions),) * brokers
    if len(versions) != brokers:
        raise ConfigError(f"kafka_version: expected a version or a list of {brokers}, one a broker, got {versions!r}")
    return tuple(resolve_version(version) for version in versions)
