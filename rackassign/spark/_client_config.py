"""Translates properties of the Java client to those of librdkafka.

The options of the JVM source have Java names after the prefix `kafka.`. The names of librdkafka are accepted as well,
and librdkafka itself rejects unknown ones. A property without a counterpart, or one that would break the source, is
rejected here by name. Errors never contain a value that may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from rackassign.errors import ConfigError
from rackassign.text import short_repr, shown_setting
from rackassign.util.client_properties import PROPERTIES, jaas_login, one_of, switch

MAX_INT = 2**31 - 1

_MAX_DIGITS = 19
"""A number with more digits exceeds every limit, and `int` only accepts a limited number of digits."""


def parse_int(name: str, value: object, minimum: int = 1, maximum: int = MAX_INT) -> int:
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and minimum <= int(text) <= maximum):
        raise ConfigError(
            f"{name}: expected a whole number from {minimum} to {maximum}, got {shown_setting(name, value)}"
        )
    return int(text)


def parse_bool(name: str, value: str) -> bool:
    return one_of("true", "false")(name, value) == "true"


def parse_text(name: str, value: str) -> str:
    if not value:
        raise ConfigError(f"{name}: expected a value, got an empty string")
    return value


TOKEN_CALLBACK = "oauth_cb"  # noqa: S105 - the name of confluent-kafka's property
"""The property with the name of the function, in the place where confluent-kafka expects the function itself."""

_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[:.][A-Za-z_]\w*", re.ASCII)

_NAMES = {each.other: each.librdkafka for each in PROPERTIES if each.other}
"""The names of Java that differ from those of librdkafka, and `sasl.mechanisms`, of which librdkafka has both names."""

_UNSUPPORTED: Mapping[str, str] = {
    # Not properties of librdkafka but of confluent-kafka, which raises a TypeError without the name, or fails later.
    **dict.fromkeys(
        ("error_cb", "logger", "on_commit", "on_delivery", "stats_cb", "throttle_cb"),
        "it is a function, and an option is text",
    ),
    "client.rack": "all executors would have the same rack; set RACKASSIGN_RACK in the environment of each executor",
    "default.topic.config": "set its properties directly",
    "interceptor.classes": "librdkafka has no interceptors",
    "metadata.broker.list": "use kafka.bootstrap.servers",
    "metric.reporters": "librdkafka has no metric reporters",
    "oauth_cb": "use tokenProvider",
    "sasl.login.callback.handler.class": "librdkafka cannot run Java classes; for OAUTHBEARER use tokenProvider",
    "sasl.client.callback.handler.class": "librdkafka cannot run Java classes; for OAUTHBEARER use tokenProvider",
    "ssl.engine.factory.class": "librdkafka cannot run Java classes",
}

_UNSUPPORTED_IN_SOURCE: Mapping[str, str] = {
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "enable.auto.commit": "offsets are stored in the checkpoint",
    "enable.auto.offset.store": "offsets are stored in the checkpoint",
    "enable.partition.eof": "the source sets it",
    "fetch.message.max.bytes": "use kafka.max.partition.fetch.bytes",
    "fetch.queue.backoff.ms": "the source sets it for each range",
    "key.deserializer": "keys are bytes; cast them in the query",
    "queued.max.messages.kbytes": "the source sets it for each range",
    "queued.min.messages": "the source sets it for each range",
    "value.deserializer": "values are bytes; cast them in the query",
}

_UNSUPPORTED_IN_SINK: Mapping[str, str] = {
    "delivery.report.only.error": "the sink sets it",
    "key.serializer": "keys are bytes or text",
    "partitioner": "keys are hashed as Java's producer does it; for another choice use the column partition",
    "partitioner.class": "keys are hashed as Java's producer does it; for another choice use the column partition",
    "statistics.interval.ms": "use metricsPath",
    "transactional.id": "the sink writes without transactions, as the JVM sink does",
    "value.serializer": "values are bytes or text",
}

_SINK_DEFAULTS: Mapping[str, str] = {
    "acks": "all",
    # Those of Java's producer; librdkafka's are random (CRC32), 1,000,000, 300,000, a gigabyte and a minute.
    "partitioner": "murmur2_random",
    "message.max.bytes": str(2**20),
    "message.timeout.ms": "120000",
    "queue.buffering.max.kbytes": str(32 * 2**10),
    "socket.timeout.ms": "30000",
    # A task flushes at its end, which waits for no batch to fill. With librdkafka's 5 ms its threads wake for each few
    # records, and a task takes 1.2 times the processor time.
    "linger.ms": "50",
    # As with 5 ms. Twice the 50 ms, all records of a small batch could be in one partition.
    "sticky.partitioning.linger.ms": "10",
}

_SINK_NAMES = {
    "delivery.timeout.ms": "message.timeout.ms",
    "max.request.size": "message.max.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
}
"""Names of Java, and older ones of librdkafka, for properties that have a default here."""

WITHOUT_EFFECT: Mapping[str, Callable[[str, str], object]] = {
    "default.api.timeout.ms": partial(parse_int, minimum=0),
    "exclude.internal.topics": parse_bool,
    "heartbeat.interval.ms": partial(parse_int, minimum=0),
    "max.poll.interval.ms": parse_int,
    "max.poll.records": parse_int,
    "partition.assignment.strategy": parse_text,
    "session.timeout.ms": partial(parse_int, minimum=0),
}
"""Properties of group members or of polling in the Java client. The source has neither, so they have no effect.

Their values are validated nevertheless, as the Java client does, so that mistakes are reported.
"""

_VALIDATED_HERE: Mapping[str, Callable[[str, str], object]] = {
    "check.crcs": switch,
    "fetch.wait.max.ms": partial(parse_int, minimum=0, maximum=300_000),
    "group.id": parse_text,
}
"""Properties that the planning client does not get. Without validation here, errors would occur on executors only."""

_STORES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ssl.truststore": {"PEM": ("ssl.ca.location",)},
    "ssl.keystore": {"PEM": ("ssl.certificate.location", "ssl.key.location"), "PKCS12": ("ssl.keystore.location",)},
}
"""The stores of Java, with the properties for their location by the types that librdkafka supports: not Java's JKS."""

_OF_STORES = ("ssl.truststore.password", *(f"{store}.{each}" for store in _STORES for each in ("location", "type")))

_LOGIN = re.compile(r"\b(?:Plain|Scram)LoginModule\b")


def to_librdkafka(
    java: Mapping[str, str],
    token_provider: str | None = None,
    *,
    unsupported: Mapping[str, str] = _UNSUPPORTED_IN_SOURCE,
) -> dict[str, str]:
    """Return properties, whose names are those of Java or of librdkafka without `kafka.`, under librdkafka's names."""
    _check_same(java)
    refused = {**_UNSUPPORTED, **unsupported}
    translated: dict[str, str] = {}
    for name, value in java.items():
        own_name = _NAMES.get(name, name)
        if name in refused:
            raise ConfigError(f"kafka.{name}: cannot be set: {refused[name]}")
        if name in WITHOUT_EFFECT:
            WITHOUT_EFFECT[name](f"kafka.{name}", value.strip())
        elif name == "sasl.jaas.config":
            translated |= _login(value)
        elif own_name in _VALIDATED_HERE:
            _VALIDATED_HERE[own_name](f"kafka.{name}", value.strip())
            translated[own_name] = value.strip()
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = value.lower() or "none"
        elif name not in _OF_STORES:
            translated[own_name] = value
    return translated | _stores(java) | _tokens(java, token_provider)


def to_librdkafka_producer(java: Mapping[str, str], token_provider: str | None = None) -> dict[str, str]:
    """Return the properties of a producer, with the defaults of Java's."""
    _check_same(java, _SINK_NAMES)
    given = {_SINK_NAMES.get(name, name): value for name, value in java.items()}
    if "message.timeout.ms" in given:
        # librdkafka would wait for ever with 0, and Java's producer rejects it.
        parse_int("kafka.delivery.timeout.ms", given["message.timeout.ms"])
    if "buffer.memory" in given:
        if "queue.buffering.max.kbytes" in given:
            raise ConfigError(
                "kafka.buffer.memory and kafka.queue.buffering.max.kbytes: they are one property; set one"
            )
        size = parse_int("kafka.buffer.memory", given.pop("buffer.memory"), minimum=2**10, maximum=2**41 - 1)
        given["queue.buffering.max.kbytes"] = str(size // 2**10)
    if "max.block.ms" in given:
        # A full queue is waited for as long as its records may take.
        parse_int("kafka.max.block.ms", given.pop("max.block.ms"), minimum=0, maximum=2**63 - 1)
    properties = {**_SINK_DEFAULTS, **to_librdkafka(given, token_provider, unsupported=_UNSUPPORTED_IN_SINK)}
    if properties["acks"].strip().lower() in {"all", "-1"}:
        # As in Java, not with fewer acknowledgements unless it is asked for.
        properties.setdefault("enable.idempotence", "true")
    return properties


def _check_same(java: Mapping[str, str], names: Mapping[str, str] = _NAMES) -> None:
    """Reject a property that is set by both of its names, to different values."""
    # With both, the order of options would decide. `ssl.keystore.location` is a property of librdkafka as well.
    for name, other in names.items():
        both = name != "ssl.keystore.location" and {name, other} <= java.keys()
        if both and java[name].strip() != java[other].strip():
            raise ConfigError(
                f"kafka.{name} and kafka.{other}: they are one property, and their values differ; set one"
            )


def _tokens(java: Mapping[str, str], provider: str | None) -> dict[str, str]:
    mechanism = java.get("sasl.mechanism", java.get("sasl.mechanisms", "")).strip()
    if mechanism == "AWS_MSK_IAM":
        raise ConfigError(
            "kafka.sasl.mechanism: AWS_MSK_IAM is the mechanism of a Java class; "
            "use OAUTHBEARER with tokenProvider=rackassign.spark.msk:token"
        )
    if provider is not None and mechanism != "OAUTHBEARER":
        set_to = short_repr(mechanism) if mechanism else "not set"
        raise ConfigError(f"tokenProvider: only for kafka.sasl.mechanism=OAUTHBEARER, but that is {set_to}")
    by_itself = (
        java.get("sasl.oauthbearer.method", "").lower() == "oidc" or "enable.sasl.oauthbearer.unsecure.jwt" in java
    )
    if mechanism == "OAUTHBEARER" and provider is None and not by_itself:
        raise ConfigError(
            "kafka.sasl.mechanism: OAUTHBEARER needs tokens: set tokenProvider to a function that returns them "
            "(for MSK rackassign.spark.msk:token), or kafka.sasl.oauthbearer.method=oidc"
        )
    if provider is None:
        return {}
    if not _FUNCTION.fullmatch(provider):
        raise ConfigError(
            f"tokenProvider: expected the name of a function, as in company.tokens:get, got {short_repr(provider)}"
        )
    return {TOKEN_CALLBACK: provider}


def _login(jaas: str) -> dict[str, str]:
    if not _LOGIN.search(jaas):
        raise ConfigError(
            "kafka.sasl.jaas.config: only PlainLoginModule and ScramLoginModule are supported; "
            "for other mechanisms use the properties of librdkafka, such as kafka.sasl.kerberos.keytab"
        )
    return jaas_login("kafka.sasl.jaas.config", jaas, ", or OAUTHBEARER with tokenProvider")


def _stores(java: Mapping[str, str]) -> dict[str, str]:
    """Return the locations of certificates and keys."""
    translated: dict[str, str] = {}
    for store, names in _STORES.items():
        kind = one_of("PEM", "PKCS12", "JKS")(f"kafka.{store}.type", java.get(f"{store}.type", "JKS"))
        if f"{store}.location" in java:
            if kind not in names:
                raise ConfigError(f"kafka.{store}.type: librdkafka supports {' or '.join(names)}, got {kind}")
            translated |= dict.fromkeys(names[kind], java[f"{store}.location"])
    return translated
