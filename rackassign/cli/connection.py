"""How commands reach Kafka: `--bootstrap-server`, and a file of properties for what else a client must know.

The names of the properties are those of the Java client, and those of librdkafka where they differ, so that the file
of another client will do. A property that is not known here is refused: it may be the one that matters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackassign.cli.inputs import read_text
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.util.redaction import Settings, shown_setting
from rackassign.util.text import short_repr, truncate

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

Bootstrap = Annotated[
    str, typer.Option("--bootstrap-server", help="Brokers to connect to: HOST:PORT, or several separated by commas.")
]
ClientConfig = Annotated[
    str, typer.Option("--command-config", help="Properties file for the connection: security.protocol, sasl.*, ssl.*.")
]

_FIRST_CONTACT_MS = 10_000
_LARGEST_PORT = 65535

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_AS_IT_IS = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.key.password": "ssl_password",
}
_FILES = {
    "ssl.ca.location": "ssl_cafile",
    "ssl.truststore.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.crl.location": "ssl_crlfile",
}
_IN_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')

# Name or value; a backslash takes away what the next character means.
_ESCAPED = re.compile(r"\\(.)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_LINE = re.compile(r"((?:[^\\=:\s]|\\.)+)\s*[=:\s]\s*(.*)")


@contextmanager
def admin_client(bootstrap: str, file: str = "") -> Iterator[KafkaAdminClient]:
    """Lend an admin client, closed afterwards.

    Args:
        bootstrap: HOST:PORT, by comma.
        file: Of properties; empty for none.

    Raises:
        ConfigError: One of them is wrong.
        NoAnswerError: Kafka is not there, or refuses something, in the block too.
    """
    config = client_config(bootstrap, file)
    from kafka import KafkaAdminClient  # noqa: PLC0415 - commands without a cluster start quicker
    from kafka.errors import KafkaError  # noqa: PLC0415

    with _troubles() as troubles:
        try:
            admin = KafkaAdminClient(**config, client_id="rackassign", bootstrap_timeout_ms=_FIRST_CONTACT_MS)
        except (KafkaError, OSError) as error:
            raise KafkaUnavailableError(_unreachable(_worst(troubles, error), bootstrap)) from None
        try:
            yield admin
        except KafkaUnavailableError:
            # Some of ours are errors of the client as well, and complete messages.
            raise
        except KafkaError as error:
            raise KafkaUnavailableError(_unreachable(error, bootstrap)) from None
        finally:
            admin.close()


def _unreachable(error: Exception, bootstrap: str) -> str:
    # Imports the client, which is there by now.
    from rackassign.admin.authorization import is_authorization_error  # noqa: PLC0415

    if is_authorization_error(error):
        # kafka-python appends the whole request.
        return f"Kafka at {truncate(bootstrap)} does not allow it: {type(error).__name__}"
    return f"Kafka at {truncate(bootstrap)} does not answer: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return text if text.isprintable() else ascii(text)[1:-1]


@contextmanager
def _troubles() -> Iterator[list[Exception]]:
    """Keep what the client logs from stderr, and lend the errors in it.

    Why there is no contact is only logged; what is raised in the end is that time is up.
    """
    errors: list[Exception] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # An argument of what is logged, whatever the words are.
            arguments = record.args if isinstance(record.args, tuple) else ()
            errors.extend(argument for argument in arguments if isinstance(argument, Exception))

    listener, client = Listener(), logging.getLogger("kafka")
    client.addHandler(listener)
    try:
        yield errors
    finally:
        client.removeHandler(listener)


def _worst(errors: list[Exception], otherwise: Exception) -> Exception:
    """Return the most informative error: a broker that rejects a client sometimes only disconnects."""
    from kafka.errors import BrokerResponseError  # noqa: PLC0415

    refusals = [error for error in errors if isinstance(error, BrokerResponseError)]
    return next(iter(refusals or errors), otherwise)


def client_config(bootstrap: str, file: str = "") -> dict[str, Any]:
    """Return arguments for a client of kafka-python.

    Args:
        bootstrap: HOST:PORT, by comma.
        file: Of properties; empty for none.

    Raises:
        ConfigError: One of them is wrong; names the line.
    """
    servers = [server.strip() for server in bootstrap.split(",")]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _LARGEST_PORT:
            raise ConfigError(f"bootstrap-server: expected HOST:PORT, got {short_repr(server)}")
    return Settings({"bootstrap_servers": servers, **(_read(file) if file else {})})


def _read(file: str) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for number, line in _lines(read_text(file)):
        matched = _LINE.fullmatch(line) or _LINE.fullmatch(f"{line}=")
        where = f"{file}:{number}"
        if matched is None:
            raise ConfigError(f"{where}: expected a property and its value")
        name, value = (_ESCAPED.sub(r"\1", part) for part in matched.groups())
        try:
            config |= _meant(name, value)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
    _check(file, config)
    return config


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither blank nor comments, with their numbers; a backslash joins two lines."""
    begun, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not begun and (not stripped or stripped[0] in "#!"):
            continue
        start = start if begun else number
        begun += stripped
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield start, begun
        begun = ""
    if begun:
        yield start, begun


def _meant(name: str, value: str) -> dict[str, Any]:
    """Return what a property is for kafka-python; no value is ever shown, it may be a password."""
    if name in _AS_IT_IS:
        return {_AS_IT_IS[name]: value}
    if name in _FILES:
        _check_pem(name, value)
        return {_FILES[name]: value}
    if name == "security.protocol":
        return {"security_protocol": _one_of(name, value.upper(), *_PROTOCOLS)}
    if name in {"sasl.mechanism", "sasl.mechanisms"}:
        return {"sasl_mechanism": _one_of(name, value.upper(), *_WITH_PASSWORD, "GSSAPI")}
    if name == "sasl.jaas.config":
        found = dict(_IN_JAAS.findall(value))
        if len(found) != len(("username", "password")):
            raise ConfigError(f'{name}: expected username="..." and password="..." in it')
        return {f"sasl_plain_{key}": _ESCAPED.sub(r"\1", value) for key, value in found.items()}
    if name == "ssl.endpoint.identification.algorithm":
        return {"ssl_check_hostname": _one_of(name, value.lower(), "https", "none", "") == "https"}
    if name in {"ssl.truststore.type", "ssl.keystore.type"}:
        _one_of(name, value.upper(), "PEM")
        return {}
    # What is no name, or has no value, may be the rest of a value that was broken in two: part of a password.
    known = short_repr(name) if value and _NAME.fullmatch(name) else "that is not shown, for it may be part of a value"
    raise ConfigError(f"unknown property {known}")


def _one_of(name: str, value: str, *known: str) -> str:
    if value not in known:
        raise ConfigError(f"{name}: expected one of {', '.join(filter(None, known))}, got {shown_setting(name, value)}")
    return value


def _check_pem(name: str, file: str) -> None:
    if "-----BEGIN " in file:
        raise ConfigError(f"{name}: expected a file, got what should be in it")
    try:
        begins = Path(file).read_bytes()
    except ValueError:
        raise ConfigError(f"{name}: {truncate(file)} cannot be the name of a file") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {truncate(file)}: {error.strerror}") from None
    if b"-----BEGIN " not in begins:
        raise ConfigError(f"{name}: {truncate(file)} is not PEM, the only form that Python reads")


def _check(file: str, config: dict[str, Any]) -> None:
    """Refuse what cannot be complete."""
    if not config.get("security_protocol", "").startswith("SASL_"):
        return
    mechanism = config.get("sasl_mechanism")
    if mechanism is None:
        raise ConfigError(f"{file}: {config['security_protocol']} needs sasl.mechanism")
    if mechanism in _WITH_PASSWORD and not {"sasl_plain_username", "sasl_plain_password"} <= set(config):
        raise ConfigError(f"{file}: {mechanism} needs sasl.username and sasl.password, or sasl.jaas.config")
