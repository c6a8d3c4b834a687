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

Parser = Callable[[str, object], Any]


def text(name: str, value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # As confluent-kafka does, which converts it to a string.
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected a string, got {shown_setting(name, value)}")
    return value


def one_of(*known: str) -> Callable[[str, object], str]:
    """Return a parser that accepts one of these words, in any case and between spaces, and returns it as it is here."""
    words = {word.lower(): word for word in known}

    def parse(name: str, value: object) -> str:
        word = words.get(text(name, value).strip().lower())
        if word is None:
            raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {shown_setting(name, value)}")
        return word

    return parse


def checks_host_name(name: str, value: object) -> bool:
    return one_of("https", "none")(name, value) == "https"


@dataclass(frozen=True, slots=True)
class ConnectionProperty:
    """A property of the connection by its name in each client, with the parser of its value."""

    librdkafka: str
    kafka_python: str
    # Another name of it: in the Java client, where a PEM store stands for the file, or in librdkafka.
    other: str = ""
    parse: Parser = text
    # Whether the value is the name of a PEM file.
    is_file: bool = False


_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

CONNECTION_PROPERTIES = (
    ConnectionProperty(
        "security.protocol", "security_protocol", parse=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ),
    # The mechanisms that kafka-python supports as well.
    ConnectionProperty(
        "sasl.mechanism", "sasl_mechanism", "sasl.mechanisms", parse=one_of(*_PASSWORD_MECHANISMS, "GSSAPI")
    ),
    ConnectionProperty("sasl.username", "sasl_plain_username"),
    ConnectionProperty("sasl.password", "sasl_plain_password"),
    ConnectionProperty("sasl.kerberos.service.name", "sasl_kerberos_service_name"),
    ConnectionProperty("ssl.key.password", "ssl_password"),
    ConnectionProperty("ssl.ca.location", "ssl_cafile", "ssl.truststore.location", is_file=True),
    ConnectionProperty("ssl.certificate.location", "ssl_certfile", "ssl.keystore.location", is_file=True),
    ConnectionProperty("ssl.key.location", "ssl_keyfile", is_file=True),
    ConnectionProperty("ssl.crl.location", "ssl_crlfile", is_file=True),
    ConnectionProperty("ssl.endpoint.identification.algorithm", "ssl_check_hostname", parse=checks_host_name),
)


# As `StreamTokenizer` reads it in Java's `JaasConfig`: in double quotes, in single quotes, or a word without quotes.
_JAAS_OPTION = re.compile(
    r"""([^\s=;"']+)\s*=\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([A-Za-z_$\xa0-\uffff][\w.$-]*)(?=[\s;]|\Z))"""
)
_JAAS_ESCAPED = re.compile(r"\\([0-3]?[0-7]{1,2}|.)")
_CONTROL_CHARS = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


def jaas_login(name: str, jaas: str, or_else: str = "") -> dict[str, str]:
    """Return librdkafka's properties for Java's `sasl.jaas.config`, from user name and password in it."""
    options = {key: word or _jaas_text(double or single) for key, double, single, word in _JAAS_OPTION.findall(jaas)}
    if options.get("tokenauth", "").lower() == "true":
        # Brokers find the token only if the login has the extension `tokenauth` (KIP-48).
        raise ConfigError(
            f"{name}: tokenauth: only Java's client can log in with a delegation token; use the password of a user"
            + or_else
        )
    if not {"username", "password"} <= options.keys():
        raise ConfigError(f'{name}: expected username="..." and password="..." in it')
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


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
