"""Connection properties by their names in the Java client, in librdkafka and in kafka-python.

Users write the properties of the client that they know. Commands (`--command-config`) accept the names of Java and of
librdkafka for kafka-python, the consumer for confluent-kafka those of librdkafka for both clients, and the Spark source
those of Java for librdkafka. No error of this module contains a value, which may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rackassign.errors import ConfigError
from rackassign.text import shown_setting


@dataclass(frozen=True, slots=True)
class ConnectionProperty:
    """A property of the connection with a value that all clients take as it is."""

    librdkafka: str
    kafka_python: str
    # Its name in the Java client if that differs; a PEM store stands for the file.
    java: str | None = None
    # Whether the value is the name of a PEM file.
    is_file: bool = False


CONNECTION_PROPERTIES = (
    ConnectionProperty("sasl.username", "sasl_plain_username"),
    ConnectionProperty("sasl.password", "sasl_plain_password"),
    ConnectionProperty("sasl.kerberos.service.name", "sasl_kerberos_service_name"),
    ConnectionProperty("ssl.key.password", "ssl_password"),
    ConnectionProperty("ssl.ca.location", "ssl_cafile", "ssl.truststore.location", is_file=True),
    ConnectionProperty("ssl.certificate.location", "ssl_certfile", "ssl.keystore.location", is_file=True),
    ConnectionProperty("ssl.key.location", "ssl_keyfile", is_file=True),
    ConnectionProperty("ssl.crl.location", "ssl_crlfile", is_file=True),
)

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

SASL_MECHANISMS = (*_PASSWORD_MECHANISMS, "GSSAPI")
"""Mechanisms that kafka-python supports as well."""


def one_of(*known: str) -> Callable[[str, object], str]:
    """Return a parser that accepts one of these words, in any case and between spaces, and returns it as it is here."""
    words = {word.lower(): word for word in known}

    def parse(name: str, value: object) -> str:
        word = words.get(str(value).strip().lower())
        if word is None:
            listed = ", ".join(filter(None, known))
            raise ConfigError(f"{name}: expected one of {listed}, got {shown_setting(name, value)}")
        return word

    return parse


# As `StreamTokenizer` reads it in Java's `JaasConfig`: in double quotes, in single quotes, or a word without quotes.
_JAAS_OPTION = re.compile(
    r"""([^\s=;"']+)\s*=\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([A-Za-z_$\xa0-\uffff][\w.$-]*)(?=[\s;]|\Z))"""
)
_JAAS_ESCAPED = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_CONTROL_CHARS = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


def jaas_credentials(jaas: str) -> tuple[str, str] | None:
    """Return user name and password of Java's `sasl.jaas.config`; None unless it has both."""
    options = _jaas_options(jaas)
    return (options["username"], options["password"]) if {"username", "password"} <= options.keys() else None


def uses_delegation_token(jaas: str) -> bool:
    """Return whether Java's `sasl.jaas.config` has a delegation token (KIP-48) in place of user name and password."""
    # Brokers find the token only if the login has the extension `tokenauth`, which no client but Java's can send.
    return _jaas_options(jaas).get("tokenauth", "").lower() == "true"


def _jaas_options(jaas: str) -> dict[str, str]:
    return {key: word or _jaas_text(double or single) for key, double, single, word in _JAAS_OPTION.findall(jaas)}


def _jaas_text(quoted: str) -> str:
    """Return a text in quotes without its escapes, of which some denote control characters or octal numbers."""

    def meant(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 8)) if escape[1][0] in "01234567" else _CONTROL_CHARS.get(escape[1], escape[1])

    return _JAAS_ESCAPED.sub(meant, quoted)


def missing_login(arguments: Mapping[str, Any], *, alternative: str = "") -> str | None:
    """Return which property kafka-python needs for SASL and does not have; None if nothing is missing."""
    protocol = arguments.get("security_protocol", "")
    if not protocol.startswith("SASL_"):
        return None
    mechanism = arguments.get("sasl_mechanism")
    if mechanism is None:
        # librdkafka's default is GSSAPI; kafka-python has no default.
        return f"{protocol} needs sasl.mechanism"
    if mechanism in _PASSWORD_MECHANISMS and not {"sasl_plain_username", "sasl_plain_password"} <= set(arguments):
        return f"{mechanism} needs sasl.username and sasl.password" + (f", or {alternative}" if alternative else "")
    return None
