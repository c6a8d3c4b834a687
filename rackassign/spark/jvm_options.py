"""Options for Spark's built-in JVM source that bind the rack on each executor."""

from __future__ import annotations

import re

from rackassign.errors import ConfigError
from rackassign.racks import RACK_VARIABLE
from rackassign.util.text import short_repr

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


def kafka_options(rack_env: str = RACK_VARIABLE, *, provider: str = "env") -> dict[str, str]:
    """Return options for `format("kafka")` with which every executor reads from its own rack.

    Use them as `spark.readStream.format("kafka").options(**kafka_options())`. The client of each executor reads the
    rack from its own environment (Kafka's EnvVarConfigProvider, KIP-887), so set the variable where executors start,
    with the rack of each. If it is not set, the client takes the text of the reference as the name of the rack. No
    broker has that rack, so the executor reads from leaders.

    The class of the provider is that of Kafka's own client. Where a platform has moved the packages of its client, as
    Databricks has to `kafkashaded.org.apache.kafka`, replace the option `kafka.config.providers.<provider>.class`.

    Args:
        rack_env: The environment variable that contains the rack.
        provider: The name of the config provider; another one if `env` is in use.

    Raises:
        ConfigError: The name of the variable or of the provider is invalid.
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
