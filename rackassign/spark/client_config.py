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
from rackassign.spark.option_values import one_of, switch, text, whole
from rackassign.util.redaction import shown_setting

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}

_REFUSED = {
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "client.rack": "it would be one rack for all executors; set RACKASSIGN_RACK where each of them starts",
    "enable.auto.commit": "the checkpoint holds the offsets",
    "enable.partition.eof": "the source needs it itself",
    "fetch.message.max.bytes": "use kafka.max.partition.fetch.bytes",
    "fetch.queue.backoff.ms": "the source sets it by the range",
    "interceptor.classes": "librdkafka has none",
    "key.deserializer": "keys are bytes; cast them in the query",
    "metric.reporters": "librdkafka has none",
    "queued.max.messages.kbytes": "the source sets it by the range",
    "queued.min.messages": "the source sets it by the range",
    "sasl.login.callback.handler.class": "librdkafka cannot run Java classes",
    "sasl.client.callback.handler.class": "librdkafka cannot run Java classes",
    "ssl.engine.factory.class": "librdkafka cannot run Java classes",
    "value.deserializer": "values are bytes; cast them in the query",
}

_OF_THE_POLLS: Mapping[str, Callable[[str, str], object]] = {
    "default.api.timeout.ms": partial(whole, least=0),
    "exclude.internal.topics": switch,
    "heartbeat.interval.ms": partial(whole, least=0),
    "max.poll.interval.ms": whole,
    "max.poll.records": whole,
    "partition.assignment.strategy": text,
    "session.timeout.ms": partial(whole, least=0),
}
"""Properties of group members or of polling in the Java client. The source has neither, so they have no effect.

Their values are validated nevertheless, as the Java client does, so that mistakes are reported.
"""

_OF_EXECUTORS: Mapping[str, Callable[[str, str], object]] = {
    # The values that librdkafka accepts.
    "check.crcs": one_of("true", "false", "t", "f", "1", "0"),
    "fetch.min.bytes": partial(whole, most=100_000_000),
    "fetch.wait.max.ms": partial(whole, least=0, most=300_000),
    "group.id": text,
}
"""Properties that the planning client does not get. Without validation here, errors would occur on executors only."""

_STORES = frozenset({
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain",
})  # fmt: skip

_FORMS = ("PEM", "PKCS12", "JKS")
"""The types of key stores and trust stores in Java."""

_LOGIN = re.compile(r"\b(?:Plain|Scram)LoginModule\b")
_IN_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def to_librdkafka(java: Mapping[str, str]) -> dict[str, str]:
    """Return the properties under librdkafka's names.

    Args:
        java: The properties under their names in Java or in librdkafka, without `kafka.`.

    Raises:
        ConfigError: A property is not supported or has an invalid value. The message names it and the alternative.
    """
    told: dict[str, str] = {}
    for name, value in java.items():
        if name in _REFUSED:
            raise ConfigError(f"kafka.{name}: cannot be set: {_REFUSED[name]}")
        if name in _OF_THE_POLLS:
            _OF_THE_POLLS[name](f"kafka.{name}", value.strip())
            continue
        if name in _STORES:
            continue
        if name == "sasl.jaas.config":
            told |= _login(value)
        elif (reads := _OF_EXECUTORS.get(_RENAMED.get(name, name))) is not None:
            reads(f"kafka.{name}", value.strip())
            told[_RENAMED.get(name, name)] = value.strip()
        elif name == "ssl.endpoint.identification.algorithm":
            told[name] = value.lower() or "none"
        else:
            told[_RENAMED.get(name, name)] = value
    return told | _stores(java)


def _login(jaas: str) -> dict[str, str]:
    if not _LOGIN.search(jaas):
        raise ConfigError(
            "kafka.sasl.jaas.config: only PlainLoginModule and ScramLoginModule are read; "
            "for others use the properties of librdkafka, as kafka.sasl.kerberos.keytab"
        )
    found = dict(_IN_JAAS.findall(jaas))
    if set(found) != {"username", "password"}:
        raise ConfigError('kafka.sasl.jaas.config: expected username="..." and password="..." in it')
    return {f"sasl.{key}": _ESCAPED.sub(r"\1", value) for key, value in found.items()}


def _stores(java: Mapping[str, str]) -> dict[str, str]:
    """Return the locations of certificates and keys. librdkafka cannot read Java's own type of store (JKS)."""
    told: dict[str, str] = {}
    for store in ("ssl.truststore", "ssl.keystore"):
        _form(java, store, *_FORMS)
    if "ssl.truststore.location" in java:
        _form(java, "ssl.truststore", "PEM")
        told["ssl.ca.location"] = java["ssl.truststore.location"]
    if "ssl.truststore.certificates" in java:
        told["ssl.ca.pem"] = java["ssl.truststore.certificates"]
    if "ssl.keystore.location" in java:
        if _form(java, "ssl.keystore", "PEM", "PKCS12") == "PEM":
            told["ssl.certificate.location"] = told["ssl.key.location"] = java["ssl.keystore.location"]
        else:
            told["ssl.keystore.location"] = java["ssl.keystore.location"]
    if "ssl.keystore.key" in java:
        told["ssl.key.pem"] = java["ssl.keystore.key"]
    if "ssl.keystore.certificate.chain" in java:
        told["ssl.certificate.pem"] = java["ssl.keystore.certificate.chain"]
    return told


def _form(java: Mapping[str, str], store: str, *readable: str) -> str:
    form = java.get(f"{store}.type", "JKS").upper()
    if form not in _FORMS:
        got = shown_setting(f"{store}.type", java[f"{store}.type"])
        raise ConfigError(f"kafka.{store}.type: expected one of {', '.join(_FORMS)}, got {got}")
    if form not in readable:
        raise ConfigError(f"kafka.{store}.type: librdkafka reads {' or '.join(readable)} and not {form}")
    return form
