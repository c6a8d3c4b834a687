"""Distribution of librdkafka's properties: to the group member, to the fetcher, or to both.

The member is a consumer of kafka-python. A property that it would need but does not support is rejected: joining a
group with other settings than intended is worse than not joining. All other properties are passed to librdkafka, which
rejects unknown ones.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID

from rackassign.assignor.base import check_assignors
from rackassign.clients.kafka_python import (
    RackAwareCooperativeStickyAssignor,
    RackAwareRangeAssignor,
    RackAwareStickyAssignor,
)
from rackassign.clients.kafka_python._assignors import RackAwareAssignor
from rackassign.errors import ConfigError
from rackassign.text import Settings, short_repr, shown_setting
from rackassign.util.client_properties import PROPERTIES, missing_login, number, one_of, servers, switch, text

STATISTICS = "statistics.interval.ms"
_STATISTICS_MS = 5000

_LINGER, _LINGER_MS = "linger.ms", 5
_STICKY, _STICKY_MS = "sticky.partitioning.linger.ms", 900_000
"""Properties of a producer: librdkafka's default of the first, and the largest value of the second."""

_METADATA = "topic.metadata.refresh.interval.ms"
_REFRESH_MS = 30_000
"""Longest time between two looks of a producer at the leaders."""

_ASSIGNORS = {
    "cooperative-sticky": RackAwareCooperativeStickyAssignor,
    "range": RackAwareRangeAssignor,
    "sticky": RackAwareStickyAssignor,
}

_STARTS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
    # librdkafka itself then reports that there is no offset.
    "error": OFFSET_INVALID,
}

_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "auto.commit.enable": "enable.auto.commit",
    "queue.buffering.max.ms": "linger.ms",
}


def _fraction(name: str, value: object) -> float:
    try:
        return float(text(name, value))
    except ValueError:
        raise ConfigError(f"{name}: expected a number, got {shown_setting(name, value)}") from None


_TABLE = {each.librdkafka: each for each in PROPERTIES if each.kafka_python}
"""Properties that the member gets."""

_DEFAULTS: Mapping[str, object] = {
    # Properties with another default in librdkafka than in kafka-python.
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
}

_OURS = (
    *("client.rack", "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store"),
    *("partition.assignment.strategy", "group.protocol", "on_commit", "stats_cb", "ssl.ca.pem"),
)
_CA = "ssl.ca.pem"
_QUEUE_RECORDS, _QUEUE_KILOBYTES = "queued.min.messages", "queued.max.messages.kbytes"
CLIENT_ID = "rdkafka"
"""librdkafka's default."""
_NEITHER = ("sasl.", "ssl.", "group.", "oauth_cb", "enable.ssl.", "enable.sasl.")
"""Prefixes of properties that affect the membership and do not exist in kafka-python."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The size of the queue of fetched records, in records and bytes, at which librdkafka stops to fetch."""

    records: int = 100_000
    size: int = 65_536 * 1024

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> QueueLimits:
        limits, records, kilobytes = cls(), given.get(_QUEUE_RECORDS), given.get(_QUEUE_KILOBYTES)
        return cls(
            limits.records if records is None else number(_QUEUE_RECORDS, records),
            limits.size if kilobytes is None else 1024 * number(_QUEUE_KILOBYTES, kilobytes),
        )

    def near(self, records: int, size: int) -> bool:
        """Return whether a queue is at least half full."""
        return 2 * records >= self.records or 2 * size >= self.size


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The configuration of a consumer."""

    # Arguments of kafka-python's consumer, the member of the group, and properties of librdkafka's, which reads.
    member: Mapping[str, Any]
    reader: Mapping[str, Any]
    # Initial position of a partition without committed offset, as a logical offset of librdkafka.
    start: int
    # None if automatic commits are disabled.
    auto_commit_s: float | None
    # Whether all delivered offsets are to be committed, rather than those that the user stores.
    auto_store: bool
    on_commit: Callable[[Any, list[Any]], object] | None
    stats_cb: Callable[[str], object] | None = field(default=None)
    queue: QueueLimits = field(default_factory=QueueLimits)

    @classmethod
    def of(cls, config: Mapping[str, Any], assignors: Sequence[Any] | None = None) -> ConsumerConfig:
        """Distribute the properties; `assignors` replace `partition.assignment.strategy`."""
        properties = _plain_names(config)
        if not properties.get("group.id"):
            raise ConfigError("group.id is missing")
        if not any(servers("bootstrap.servers", properties.get("bootstrap.servers") or "")):
            # Otherwise kafka-python would connect to localhost.
            raise ConfigError("bootstrap.servers is missing")
        member: dict[str, Any] = {"enable_auto_commit": False}
        reader: dict[str, Any] = {STATISTICS: _STATISTICS_MS}
        for name, value in {**_DEFAULTS, **properties}.items():
            if name in _TABLE:
                each = _TABLE[name]
                if value is not None or each.parse in {number, switch}:
                    member[each.kafka_python] = each.parse(name, value)
                if not each.only_member:
                    reader[name] = value
            elif name.startswith(_NEITHER) and name not in _OURS:
                raise ConfigError(f"{name}: kafka-python, which joins the group, does not support this")
            elif name not in _OURS:
                reader[name] = value
        _check_membership(member)
        if properties.get(_CA) is not None:
            reader[_CA] = properties[_CA]
            if member.get("security_protocol", "").endswith("SSL"):
                member["ssl_context"] = _trusting(text(_CA, properties[_CA]), member)
        if properties.get("client.rack") is not None:
            member["client_rack"] = text("client.rack", properties["client.rack"])
        strategies = _strategies(properties, assignors)
        if strategies is not None:
            member["partition_assignment_strategy"] = strategies
        if one_of("classic", "consumer")("group.protocol", properties.get("group.protocol") or "classic") != "classic":
            raise ConfigError(
                "group.protocol: this consumer is a member of the classic protocol. With the consumer protocol the"
                " broker assigns: load rackassign's assignor there (`rackassign broker-plugin install-hint`), and use"
                " confluent_kafka.Consumer with client.rack"
            )
        start = one_of(*_STARTS)("auto.offset.reset", properties.get("auto.offset.reset") or "latest")
        interval_ms = number("auto.commit.interval.ms", properties.get("auto.commit.interval.ms", 5000))
        commits = interval_ms > 0 and switch("enable.auto.commit", properties.get("enable.auto.commit", True))
        # Commits by librdkafka itself would be neither fenced nor visible here.
        reader |= {"auto.offset.reset": start, "enable.auto.commit": False, "enable.auto.offset.store": False}
        return cls(
            member=Settings(member),
            reader=Settings(reader),
            start=_STARTS[start],
            auto_commit_s=interval_ms / 1000 if commits else None,
            auto_store=switch("enable.auto.offset.store", properties.get("enable.auto.offset.store", True)),
            on_commit=_callback(properties, "on_commit"),
            stats_cb=_callback(properties, "stats_cb"),
            queue=QueueLimits.of(properties),
        )

    def with_client_id(self, change: Callable[[str], str]) -> ConsumerConfig:
        """Return the same configuration with another client ID, made of the configured or default one."""
        changed = change(self.reader.get("client.id") or CLIENT_ID)
        return replace(
            self,
            member=Settings({**self.member, "client_id": changed}),
            reader=Settings({**self.reader, "client.id": changed}),
        )


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The configuration of a producer."""

    properties: Mapping[str, Any]
    # How long a partition is kept for records without a key, and the time between two looks at the leaders.
    keep_s: float
    refresh_s: float
    # Whether librdkafka reports its statistics.
    counts: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ProducerConfig:
        properties = _plain_names(config)
        _callback(properties, "stats_cb")
        age = number(_METADATA, properties.get(_METADATA, _REFRESH_MS))
        linger = _fraction(_LINGER, properties.get(_LINGER, _LINGER_MS))
        # librdkafka's default, too, is twice the time that a batch waits.
        sticky = min(2 * linger, _STICKY_MS) if _STICKY not in properties else number(_STICKY, properties[_STICKY])
        return cls(
            properties=Settings(properties),
            keep_s=sticky / 1000,
            refresh_s=(min(age, _REFRESH_MS) if age > 0 else _REFRESH_MS) / 1000,
            counts=number(STATISTICS, properties.get(STATISTICS, 0)) > 0,
        )


def _check_membership(member: dict[str, Any]) -> None:
    """Refuse what cannot work, and remove what librdkafka takes for "not set" and kafka-python does not."""
    if (missing := missing_login(member)) is not None:
        raise ConfigError(missing)
    if member.get("metadata_max_age_ms", 1) <= 0:
        # For librdkafka no refreshes of its own, with 0 too. kafka-python would refresh all the time.
        del member["metadata_max_age_ms"]
    if not member.get("group_instance_id"):
        member.pop("group_instance_id", None)


def _callback(given: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - of any kind
    value = given.get(name)
    if value is not None and not callable(value):
        raise ConfigError(f"{name}: expected a callable, got {shown_setting(name, value)}")
    return value


def _plain_names(config: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the properties by their current names, with those of the topic among them."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"expected a dict of properties, got {type(config).__name__}")
    if strange := [name for name in config if not isinstance(name, str)]:
        raise ConfigError(f"expected names of properties, got {short_repr(strange[0])}")
    of_topics = config.get("default.topic.config") or {}
    if not isinstance(of_topics, Mapping):
        raise ConfigError(f"default.topic.config: expected a dict of properties, got {short_repr(of_topics)}")
    flat = {**of_topics, **config}
    flat.pop("default.topic.config", None)
    return {_ALIASES.get(name, name): value for name, value in flat.items()}


def _trusting(authorities: str, member: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the SSL context for kafka-python's `ssl_*` arguments, which support CA certificates only in files."""
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
        raise ConfigError(f"ssl.*: a file used with {_CA} cannot be read: {error}") from None
    return context


def _strategies(given: Mapping[str, Any], assignors: Sequence[Any] | None) -> list[Any] | None:
    name = "partition.assignment.strategy"
    if given.get(name) is None:
        return None if assignors is None else check_assignors(assignors, RackAwareAssignor, "assignors")
    if assignors is not None:
        raise ConfigError(f"{name}: cannot be combined with assignors")
    named = [strategy.strip() for strategy in text(name, given[name]).split(",")]
    return [_ASSIGNORS[one_of(*_ASSIGNORS)(name, strategy)] for strategy in named]
