"""The built-in JVM source, with the rack bound on each executor."""

from __future__ import annotations

import re

from rackassign.errors import ConfigError
from rackassign.racks import RACK_VARIABLE
from rackassign.util.text import short_repr

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


def kafka_options(rack_env: str = RACK_VARIABLE, *, provider: str = "env") -> dict[str, str]:
    """Return options for `format("kafka")` that let every executor read from the rack it stands in.

    `spark.readStream.format("kafka").options(**kafka_options())`. The client of each executor asks its own environment
    for the rack (Kafka's EnvVarConfigProvider, KIP-887), so the variable is set where executors start and is not the
    same for all. Where it is not set, the text of the reference is taken for the rack's name, which no broker has:
    the executor then reads from leaders.

    Args:
        rack_env: Environment variable that holds the rack.
        provider: What the provider is called; another one if `env` is taken.

    Raises:
        ConfigError: One of them cannot be such a name.
    """
    if not _VARIABLE.fullmatch(rack_env):
        raise ConfigError(f"rack_env: expected the name of an environment variable, got {short_repr(rack_env)}")
    if not _PROVIDER_NAME.fullmatch(provider):
        raise ConfigError(f"provider: expected letters, digits, - and _, got {short_repr(provider)}")
    return {
        "kafka.config.providers": provider,
        f"kafka.config.providers.{provider}.class": _PROVIDER,
        "kafka.client.rack": f"${{{provider}:{rack_env}}}",
    }
