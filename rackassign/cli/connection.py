"""Connection of commands to Kafka: `--bootstrap-server`, and a properties file with all other settings of a client.

Properties have the names of the Java client, or those of librdkafka where they differ, so that the file of another
client can be used. An unknown property is refused, because it may be one that matters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from kafka import KafkaAdminClient
from kafka.errors import (
    BrokerResponseError,
    IllegalSaslStateError,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaError,
    RequestTimedOutError,
)

from rackassign.admin.admin_client import connected, is_authorization_error
from rackassign.cli.shared_options import read_text
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.text import Settings, describe_error, name_error, parse_digits, short_repr, truncate
from rackassign.util.client_properties import CONNECTION_PROPERTIES, jaas_login, missing_login, one_of

Bootstrap = Annotated[
    str, typer.Option("--bootstrap-server", help="Brokers to connect to: HOST:PORT, or several separated by commas.")
]
ClientConfig = Annotated[
    str, typer.Option("--command-config", help="Properties file for the connection: security.protocol, sasl.*, ssl.*.")
]

_FIRST_CONTACT_MS = 10_000
_LARGEST_PORT = 65535

_PROPERTIES = {name: each for each in CONNECTION_PROPERTIES for name in (each.librdkafka, each.other) if name}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_TRIMMED = "".join(map(chr, range(33)))
"""What Java's `String.trim` removes from both ends, as Kafka does with each value."""


@contextmanager
def admin_client(bootstrap: str, file: str = "") -> Iterator[KafkaAdminClient]:
    """Yield an admin client, which is closed afterwards."""
    # `bootstrap` is HOST:PORT, or several separated by commas; `file` names properties, empty for none.
    config = client_config(bootstrap, file)

    with _logged_errors() as errors:
        try:
            admin = connected(
                KafkaAdminClient, {**config, "client_id": "rackassign", "bootstrap_timeout_ms": _FIRST_CONTACT_MS}
            )
        except (KafkaError, OSError) as error:
            raise KafkaUnavailableError(_unreachable(_worst(errors.found, error), bootstrap)) from None
        # From here on errors are raised by the requests.
        errors.close()
        try:
            yield admin
        except KafkaUnavailableError:
            # Some errors of rackassign are errors of the client as well. Their messages are complete.
            raise
        except KafkaError as error:
            raise KafkaUnavailableError(_unreachable(error, bootstrap)) from None
        finally:
            admin.close()


class Reconnection:
    """Replaces an admin client while it is in use, as long as the `with` block lasts."""

    def __init__(self, bootstrap: str, file: str, use: Callable[[KafkaAdminClient], None]) -> None:
        self._open = partial(admin_client, bootstrap, file)
        self._use = use
        self._current = ExitStack()

    def __enter__(self) -> Callable[[], None]:
        """Return the function that connects again, with the errors of `admin_client`."""
        return self._reconnect

    def __exit__(self, *_: object) -> None:
        self._current.close()

    def _reconnect(self) -> None:
        with ExitStack() as opened:
            # The client so far is in use until there is another one.
            self._use(opened.enter_context(self._open()))
            self._current.close()
            self._current = opened.pop_all()


def _unreachable(error: Exception, bootstrap: str) -> str:
    if is_authorization_error(error):
        # kafka-python appends the whole request.
        return f"Kafka at {truncate(bootstrap)} does not allow it: {name_error(error)}"
    hint = ""
    if isinstance(error, KafkaConnectionError) and "disconnected" in str(error):
        # kafka-python does not always read the reason before it notices the end of the connection.
        hint = "; brokers disconnect clients whose login or security.protocol is wrong"
    elif isinstance(error, KafkaConnectionError) and "Handshake failed" in str(error):
        hint = "; listeners without TLS fail the handshake too: check security.protocol"
    elif isinstance(error, IllegalSaslStateError):
        hint = ": the listener takes no login; check security.protocol"
    elif isinstance(error, InvalidReceiveError):
        # The first bytes of an alert of TLS or of HTTP, read as the length of a response.
        hint = "; this is no response of Kafka: security.protocol is wrong, or the port is that of another service"
    refused = isinstance(error, BrokerResponseError) and not isinstance(error, RequestTimedOutError)
    what = "refuses the request" if refused else "does not respond"
    return f"Kafka at {truncate(bootstrap)} {what}: {describe_error(error)}{hint}"


class _LoggedErrors(logging.Handler):
    """Errors in the log records of a client, until it is closed.

    A command may run for days, and a client logs an error at each attempt to reach a broker that is down.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Exception] = []
        self._closed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the errors of a record."""
        if not self._closed:
            # An error is an argument of the record, whatever the text is.
            arguments = record.args if isinstance(record.args, tuple) else ()
            self.found.extend(argument for argument in arguments if isinstance(argument, Exception))

    def close(self) -> None:
        """Forget the errors, and keep no more."""
        self._closed = True
        self.found.clear()
        super().close()


@contextmanager
def _logged_errors() -> Iterator[_LoggedErrors]:
    """Keep the client's log records from stderr, and yield the errors in them.

    The client only logs why it cannot connect, and finally raises a timeout.
    """
    listener, client = _LoggedErrors(), logging.getLogger("kafka")
    client.addHandler(listener)
    try:
        yield listener
    finally:
        client.removeHandler(listener)


def _worst(errors: list[Exception], raised: Exception) -> Exception:
    """Return the most informative error: a broker that rejects a client sometimes only disconnects."""
    # `raised` may be the rejection or only a timeout.
    # With an error of the protocol kafka-python also reports that its own patience has ended, at any moment.
    reasons = [error for error in (*errors, raised) if not isinstance(error, RequestTimedOutError)]
    return next(iter([error for error in reasons if isinstance(error, BrokerResponseError)] or reasons), raised)


def parse_address(option: str, text: str, form: str, *, lowest_port: int, or_else: str = "") -> tuple[str, int]:
    """Return the host and the port of an address."""
    host, _, port = text.rpartition(":")
    number = parse_digits(port)
    if not host or number is None or len(text.split()) > 1:
        raise ConfigError(f"{option}: expected {form}{or_else}, got {short_repr(text)}")
    if not lowest_port <= number <= _LARGEST_PORT:
        ports = f"with a port from {lowest_port} to {_LARGEST_PORT}"
        raise ConfigError(f"{option}: expected {form} {ports}, got {short_repr(text)}")
    return host, number


def client_config(bootstrap: str, file: str = "") -> dict[str, Any]:
    """Return arguments for a client of kafka-python.

    Args:
        bootstrap: HOST:PORT, or several separated by commas.
        file: Properties file; empty for none.

    Raises:
        ConfigError: An address or a property is not valid; names the line.
    """
    servers = [server.strip() for server in bootstrap.split(",")]
    for server in servers:
        parse_address(
            "bootstrap-server", server, "HOST:PORT", lowest_port=1, or_else=", or several separated by commas"
        )
    return Settings({"bootstrap_servers": servers, **(_read(file) if file else {})})


def _read(file: str) -> dict[str, Any]:
    import javaproperties  # noqa: PLC0415 - most calls read no file

    config: dict[str, Any] = {}
    number = 1
    # Ends of lines are left as they are: what Python takes for one may be part of a value in Java's format.
    text = StringIO(read_text(file), newline="")
    try:
        for each in javaproperties.parse(text):
            if isinstance(each, javaproperties.KeyValue):
                config |= _to_kafka_python(each.key, each.value.strip(_TRIMMED))
            number += len(_LINE_END.findall(each.source))
    except (ConfigError, javaproperties.InvalidUEscapeError) as error:
        raise ConfigError(f"{file}:{number}: {error}") from None
    if (missing := missing_login(config, alternative="sasl.jaas.config")) is not None:
        raise ConfigError(f"{file}: {missing}")
    return config


def _to_kafka_python(name: str, value: str) -> dict[str, Any]:
    """Return the arguments of kafka-python for a property; errors never show a value that may be a password."""
    if not name:
        raise ConfigError("expected a property and its value")
    if name == "sasl.jaas.config":
        return {_PROPERTIES[each].kafka_python: text for each, text in jaas_login(name, value).items()}
    if name in {"ssl.truststore.type", "ssl.keystore.type"}:
        one_of("PEM")(name, value)
        return {}
    if name == "ssl.endpoint.identification.algorithm":
        # In Java, no text means no algorithm.
        value = value or "none"
    if name in _PROPERTIES:
        each = _PROPERTIES[name]
        if each.is_file:
            _check_pem(name, value)
        return {each.kafka_python: each.parse(name, value)}
    # Without a valid name or a value, this may be the rest of a value that was broken in two, so part of a password.
    known = short_repr(name) if value and _NAME.fullmatch(name) else "that is not shown, for it may be part of a value"
    raise ConfigError(f"unknown property {known}")


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
