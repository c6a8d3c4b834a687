"""Properties of clients by their names in the Java client, in librdkafka and in kafka-python, and their parsers.

Users write the properties of the client that they know. Commands (`--command-config`) accept the names of Java and of
librdkafka for kafka-python, the consumer for confluent-kafka those of librdkafka for both clients, and the Spark source
those of Java for librdkafka. Errors show no value of a property that is a secret (`shown_setting`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rackassign.errors import ConfigError
from rackassign.text import shown_setting

_RANGES = {
    "session.timeout.ms": (1, 3_600_000),
    "heartbeat.interval.ms": (1, 3_600_000),
    "max.poll.interval.ms": (1, 86_400_000),
    "auto.commit.interval.ms": (0, 86_400_000),
    "topic.metadata.refresh.interval.ms": (-1, 3_600_000),
}
"""The ranges of librdkafka for properties that it does not get from rackassign."""


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


def switch(name: str, value: object) -> bool:
    return one_of("true", "false", "t", "1", "f", "0")(name, str(value)) in {"true", "t", "1"}


def number(name: str, value: object) -> int:
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer()):
        found = int(value)
    else:
        try:
            digits = text(name, value).strip()
            # librdkafka accepts 0x10 as well.
            found = int(digits, 16 if digits.lower().startswith("0x") else 10)
        except (ConfigError, ValueError):
            raise ConfigError(f"{name}: expected a number, got {shown_setting(name, value)}") from None
    lowest, highest = _RANGES.get(name, (found, found))
    if not lowest <= found <= highest:
        raise ConfigError(f"{name}: expected a number from {lowest} to {highest}, got {shown_setting(name, value)}")
    return found


def servers(name: str, value: object) -> list[str]:
    # librdkafka also accepts PROTOCOL://HOST:PORT, and empty entries.
    addresses = [each.strip().rpartition("//")[2] for each in text(name, value).split(",")]
    return [address for address in addresses if address]


def checks_host_name(name: str, value: object) -> bool:
    return one_of("https", "none")(name, value) == "https"


@dataclass(frozen=True, slots=True)
class ClientProperty:
    """A property by its name in each client, with the parser of its value, as librdkafka reads it."""

    librdkafka: str
    # Empty if kafka-python never gets it.
    kafka_python: str = ""
    # Another name of it: in the Java client, where a PEM store stands for the file, or in librdkafka.
    other: str = ""
    parse: Callable[[str, object], Any] = text
    # Whether the value is the name of a PEM file.
    is_file: bool = False
    # Whether only the member of a group needs it, not a client that fetches.
    only_member: bool = False


_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

# What commands accept. A property that is in neither table is passed to librdkafka as it is, or refused.
CONNECTION_PROPERTIES = (
    ClientProperty(
        "security.protocol", "security_protocol", parse=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ),
    # The mechanisms that kafka-python supports as well.
    ClientProperty(
        "sasl.mechanism", "sasl_mechanism", "sasl.mechanisms", parse=one_of(*_PASSWORD_MECHANISMS, "GSSAPI")
    ),
    ClientProperty("sasl.username", "sasl_plain_username"),
    ClientProperty("sasl.password", "sasl_plain_password"),
    ClientProperty("sasl.kerberos.service.name", "sasl_kerberos_service_name"),
    ClientProperty("ssl.key.password", "ssl_password"),
    ClientProperty("ssl.ca.location", "ssl_cafile", "ssl.truststore.location", is_file=True),
    ClientProperty("ssl.certificate.location", "ssl_certfile", "ssl.keystore.location", is_file=True),
    ClientProperty("ssl.key.location", "ssl_keyfile", is_file=True),
    ClientProperty("ssl.crl.location", "ssl_crlfile", is_file=True),
    ClientProperty("ssl.endpoint.identification.algorithm", "ssl_check_hostname", parse=checks_host_name),
)

PROPERTIES = (
    *CONNECTION_PROPERTIES,
    ClientProperty("ssl.cipher.suites", "ssl_ciphers"),
    ClientProperty("ssl.ca.pem", other="ssl.truststore.certificates"),
    ClientProperty("ssl.certificate.pem", other="ssl.keystore.certificate.chain"),
    ClientProperty("ssl.key.pem", other="ssl.keystore.key"),
    ClientProperty("bootstrap.servers", "bootstrap_servers", parse=servers),
    ClientProperty("client.id", "client_id"),
    ClientProperty("group.id", "group_id"),
    ClientProperty("group.instance.id", "group_instance_id", only_member=True),
    ClientProperty("session.timeout.ms", "session_timeout_ms", parse=number, only_member=True),
    ClientProperty("heartbeat.interval.ms", "heartbeat_interval_ms", parse=number, only_member=True),
    ClientProperty("max.poll.interval.ms", "max_poll_interval_ms", parse=number, only_member=True),
    ClientProperty("topic.metadata.refresh.interval.ms", "metadata_max_age_ms", "metadata.max.age.ms", parse=number),
    ClientProperty("allow.auto.create.topics", "allow_auto_create_topics", parse=switch),
    ClientProperty("isolation.level", "isolation_level", parse=one_of("read_committed", "read_uncommitted")),
    ClientProperty("reconnect.backoff.ms", "reconnect_backoff_ms", parse=number),
    ClientProperty("reconnect.backoff.max.ms", "reconnect_backoff_max_ms", parse=number),
    ClientProperty("fetch.wait.max.ms", other="fetch.max.wait.ms"),
    ClientProperty("socket.receive.buffer.bytes", other="receive.buffer.bytes"),
    ClientProperty("socket.send.buffer.bytes", other="send.buffer.bytes"),
    ClientProperty("socket.timeout.ms", other="request.timeout.ms"),
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
