"""Which of librdkafka's properties are whose: some are for the member of the group, some for the reader, some for both.

The member is a consumer of kafka-python, and a property that it needs and cannot be told is refused: a group that is
joined otherwise than it was meant is worse than none. All other properties are left to librdkafka, which refuses what
it does not know itself.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID

from rackassign.clients.kafka_python import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from rackassign.errors import ConfigError
from rackassign.util.redaction import Settings, shown_setting

Whose = Literal["member", "both"]
"""The member's alone, or the reader's as well."""

"""For a rack that is to be found out."""

STATISTICS = "statistics.interval.ms"
_STATISTICS_MS = 5000

_ASSIGNORS = {
    "cooperative-sticky": RackAwareCooperativeStickyAssignor,
    "range": RackAwareRangeAssignor,
    "sticky": RackAwareStickyAssignor,
}

_STARTS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
    # librdkafka itself then says that there is none.
    "error": OFFSET_INVALID,
}

_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "auto.commit.enable": "enable.auto.commit",
}
_ON, _OFF = ("t", "1"), ("f", "0")
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _text(name: str, value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # As confluent-kafka does, which then has a string.
        return str(value)
    if not isinstance(value, str):
        raise ConfigError(f"{name}: expected a string, got {shown_setting(name, value)}")
    return value


def _number(name: str, value: object) -> int:
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    try:
        text = _text(name, value).strip()
        # librdkafka reads 0x10 as well.
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except (ConfigError, ValueError):
        raise ConfigError(f"{name}: expected a number, got {shown_setting(name, value)}") from None


def _switch(name: str, value: object) -> bool:
    # As librdkafka reads it.
    return _one_of("true", "false", *_ON, *_OFF)(name, str(value).lower()) in {"true", *_ON}


def _one_of(*known: str) -> Callable[[str, object], str]:
    def read(name: str, value: object) -> str:
        # librdkafka heeds neither case nor what is around.
        text = {word.lower(): word for word in known}.get(_text(name, value).strip().lower())
        if text is None:
            raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {shown_setting(name, value)}")
        return text

    return read


def _servers(name: str, value: object) -> list[str]:
    # librdkafka also takes PROTOCOL://HOST:PORT.
    return [server.strip().rpartition("//")[2] for server in _text(name, value).split(",")]


def _protocol(name: str, value: object) -> str:
    return _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")(name, value)


def _checks_names(name: str, value: object) -> bool:
    return _one_of("https", "none")(name, value) == "https"


_TABLE: Mapping[str, tuple[Whose, str, Callable[[str, object], Any]]] = {
    "bootstrap.servers": ("both", "bootstrap_servers", _servers),
    "client.id": ("both", "client_id", _text),
    "group.id": ("both", "group_id", _text),
    "group.instance.id": ("member", "group_instance_id", _text),
    "session.timeout.ms": ("member", "session_timeout_ms", _number),
    "heartbeat.interval.ms": ("member", "heartbeat_interval_ms", _number),
    "max.poll.interval.ms": ("member", "max_poll_interval_ms", _number),
    "topic.metadata.refresh.interval.ms": ("both", "metadata_max_age_ms", _number),
    "allow.auto.create.topics": ("both", "allow_auto_create_topics", _switch),
    "isolation.level": ("both", "isolation_level", _one_of("read_committed", "read_uncommitted")),
    "reconnect.backoff.ms": ("both", "reconnect_backoff_ms", _number),
    "reconnect.backoff.max.ms": ("both", "reconnect_backoff_max_ms", _number),
    "security.protocol": ("both", "security_protocol", _protocol),
    "sasl.mechanism": ("both", "sasl_mechanism", _one_of(*_WITH_PASSWORD, "GSSAPI")),
    "sasl.username": ("both", "sasl_plain_username", _text),
    "sasl.password": ("both", "sasl_plain_password", _text),
    "sasl.kerberos.service.name": ("both", "sasl_kerberos_service_name", _text),
    "ssl.ca.location": ("both", "ssl_cafile", _text),
    "ssl.certificate.location": ("both", "ssl_certfile", _text),
    "ssl.key.location": ("both", "ssl_keyfile", _text),
    "ssl.key.password": ("both", "ssl_password", _text),
    "ssl.crl.location": ("both", "ssl_crlfile", _text),
    "ssl.cipher.suites": ("both", "ssl_ciphers", _text),
    "ssl.endpoint.identification.algorithm": ("both", "ssl_check_hostname", _checks_names),
}
"""For each property whose it is, what kafka-python calls it, and how its value is read."""

_DEFAULTS: Mapping[str, object] = {
    # Where librdkafka's default is another one than kafka-python's.
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
}

_OURS = (
    *("client.rack", "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store"),
    *("partition.assignment.strategy", "group.protocol", "on_commit", "stats_cb", "ssl.ca.pem"),
)
_CA = "ssl.ca.pem"
_NEITHER = ("sasl.", "ssl.", "group.", "oauth_cb", "enable.ssl.", "enable.sasl.")
"""What begins like this matters for the membership, and kafka-python has nothing of the kind."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """What a consumer was told.

    Args:
        member: Arguments for the consumer of kafka-python.
        reader: Properties for the one of librdkafka.
        start: Where a partition begins of which nothing is committed, as a logical offset of librdkafka's.
        auto_commit_s: Positions are committed so often, in seconds; None if the user does that.
        auto_store: Whether everything that is delivered is to be committed, and not what the user stores.
        on_commit: Told of commits that nobody waits for.
        stats_cb: Given librdkafka's statistics.
    """

    member: Mapping[str, Any]
    reader: Mapping[str, Any]
    start: int
    auto_commit_s: float | None
    auto_store: bool
    on_commit: Callable[[Any, list[Any]], object] | None
    stats_cb: Callable[[str], object] | None = field(default=None)

    @classmethod
    def of(cls, config: Mapping[str, Any], assignors: Sequence[Any] | None = None) -> ConsumerConfig:
        """Divide the properties among those they are for.

        Args:
            config: As for `confluent_kafka.Consumer`.
            assignors: Instead of `partition.assignment.strategy`.

        Raises:
            ConfigError: One of them is wrong, or cannot be kept.
        """
        given = _plain_names(config)
        if not given.get("group.id"):
            raise ConfigError("group.id is missing")
        if not any(_servers("bootstrap.servers", given.get("bootstrap.servers") or "")):
            # Otherwise kafka-python would ask this very machine.
            raise ConfigError("bootstrap.servers is missing")
        member: dict[str, Any] = {"enable_auto_commit": False}
        reader: dict[str, Any] = {STATISTICS: _STATISTICS_MS}
        for name, value in {**_DEFAULTS, **given}.items():
            if name in _TABLE:
                whose, argument, read = _TABLE[name]
                if value is not None or read in {_number, _switch}:
                    member[argument] = read(name, value)
                if whose == "both":
                    reader[name] = value
            elif name.startswith(_NEITHER) and name not in _OURS:
                raise ConfigError(f"{name}: kafka-python, which joins the group, cannot be told this")
            elif name not in _OURS:
                reader[name] = value
        _check_login(member)
        if given.get(_CA) is not None:
            reader[_CA] = given[_CA]
            if member.get("security_protocol", "").endswith("SSL"):
                member["ssl_context"] = _trusting(_text(_CA, given[_CA]), member)
        if given.get("client.rack") is not None:
            member["client_rack"] = _text("client.rack", given["client.rack"])
        strategies = _strategies(given, assignors)
        if strategies is not None:
            member["partition_assignment_strategy"] = strategies
        _one_of("classic")("group.protocol", given.get("group.protocol") or "classic")
        start = _one_of(*_STARTS)("auto.offset.reset", given.get("auto.offset.reset") or "latest")
        interval_ms = _number("auto.commit.interval.ms", given.get("auto.commit.interval.ms", 5000))
        commits = interval_ms > 0 and _switch("enable.auto.commit", given.get("enable.auto.commit", True))
        # What librdkafka would commit or store by itself is neither fenced nor known to us.
        reader |= {"auto.offset.reset": start, "enable.auto.commit": False, "enable.auto.offset.store": False}
        return cls(
            member=Settings(member),
            reader=Settings(reader),
            start=_STARTS[start],
            auto_commit_s=interval_ms / 1000 if commits else None,
            auto_store=_switch("enable.auto.offset.store", given.get("enable.auto.offset.store", True)),
            on_commit=_callback(given, "on_commit"),
            stats_cb=_callback(given, "stats_cb"),
        )


def _callback(given: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - of any kind
    value = given.get(name)
    if value is not None and not callable(value):
        raise ConfigError(f"{name}: expected a callable, got {shown_setting(name, value)}")
    return value


def _plain_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties by their names of today, those of the topic among the others."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"expected a dict of properties, got {type(config).__name__}")
    flat = {**(config.get("default.topic.config") or {}), **config}
    flat.pop("default.topic.config", None)
    return {_ALIASES.get(name, name): value for name, value in flat.items()}


def _trusting(authorities: str, member: Mapping[str, Any]) -> ssl.SSLContext:
    """Return what kafka-python makes of its `ssl_*`, which has nothing for authorities that are in no file.

    Args:
        authorities: As PEM.
        member: Arguments for the consumer of kafka-python; what they say of files and names is kept.

    Raises:
        ConfigError: A file or the PEM cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = member.get("ssl_check_hostname", True)
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{_CA}: expected certificates as PEM") from None
    try:
        if member.get("ssl_certfile"):
            context.load_cert_chain(member["ssl_certfile"], member.get("ssl_keyfile"), member.get("ssl_password"))
        if member.get("ssl_crlfile"):
            context.load_verify_locations(member["ssl_crlfile"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if member.get("ssl_ciphers"):
            context.set_ciphers(member["ssl_ciphers"])
    except (OSError, ValueError) as error:
        raise ConfigError(f"ssl.*: what goes with {_CA} cannot be read: {error}") from None
    return context


def _check_login(member: Mapping[str, Any]) -> None:
    """Refuse what cannot be complete."""
    if not member.get("security_protocol", "").startswith("SASL_"):
        return
    mechanism = member.get("sasl_mechanism")
    if mechanism is None:
        # librdkafka's default is GSSAPI, and kafka-python has none.
        raise ConfigError(f"{member['security_protocol']} needs sasl.mechanism")
    if mechanism in _WITH_PASSWORD and not {"sasl_plain_username", "sasl_plain_password"} <= set(member):
        raise ConfigError(f"{mechanism} needs sasl.username and sasl.password")


def _strategies(given: Mapping[str, Any], assignors: Sequence[Any] | None) -> list[Any] | None:
    name = "partition.assignment.strategy"
    if given.get(name) is None:
        return None if assignors is None else list(assignors)
    if assignors is not None:
        raise ConfigError(f"{name}: assignors are given as well")
    named = [strategy.strip() for strategy in _text(name, given[name]).split(",")]
    return [_ASSIGNORS[_one_of(*_ASSIGNORS)(name, strategy)] for strategy in named]
