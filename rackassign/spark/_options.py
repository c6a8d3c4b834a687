"""The options of the source, those without an effect on a query, and those for Spark's built-in JVM source.

The source has the options of the JVM source by the same names, and those of rackassign. This module uses neither Spark
nor a Kafka client. The case of names does not matter, because Spark passes them in lower case.

Options without effect are not errors: the JVM source accepts `maxOffsetsPerTrigger` for a batch query, a client's
properties may be those of another program, and `rackBinding` may be changed for a comparison. But none of them is
ignored in silence.

Options for Spark's built-in JVM source (`kafka_options`) bind the rack on each executor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from rackassign.errors import ConfigError
from rackassign.model import TOPIC_NAME, TopicPartition
from rackassign.rack_sources import RACK_VARIABLE
from rackassign.spark._arrow import HEADERS
from rackassign.spark._client_config import (
    WITHOUT_EFFECT,
    parse_bool,
    parse_int,
    parse_text,
    to_librdkafka,
    to_librdkafka_producer,
)
from rackassign.spark._fetch_size import MAX_FETCH_BYTES
from rackassign.spark._java_regex import compile_java_regex
from rackassign.spark._offsets import EARLIEST, LATEST, MAX_OFFSET, parse_assignment, parse_offsets
from rackassign.text import Settings, short_repr, truncate
from rackassign.util.client_properties import one_of

RackBinding = Literal["none", "executor", "pull"]
"""When a rack is bound: never; by each executor for its replica; or by each executor for its replica and its splits."""

Mode = Literal["batch", "stream"]

_LEVELS = ("read_uncommitted", "read_committed")

_TIMEOUTS_MS = (10, 300_000)
"""The lowest and the highest timeout that librdkafka accepts."""

_MAX_MIN_BYTES = 100_000_000
"""The highest `fetch.min.bytes` that librdkafka accepts."""

_MAX_BATCH_ROWS = 1_000_000
"""The highest number of records that librdkafka returns at a time."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics or partitions to read, sorted; exactly one of the fields is set."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    """Where reading starts or ends; exactly one of the fields is set."""

    # An offset may be -1 (latest) or -2 (earliest), and `everywhere` is one of both. Timestamps are in milliseconds.
    everywhere: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp: int | None = None
    timestamps: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The validated options of a reader; `docs/reference/spark-options.md` describes each."""

    # Properties for librdkafka, without the rack.
    client: Mapping[str, str]
    topics: Topics
    start: StartingOffsets
    end: StartingOffsets
    # What `startingTimestamp` does if no record has that timestamp or a later one: fail, or start at the latest offset.
    no_later_record: Literal["error", "latest"] = "error"
    # The highest number of offsets in a batch of a stream; None for no limit.
    limit: int | None = None
    fail_on_loss: bool = True
    headers: bool = False
    # In order; empty for all.
    columns: tuple[str, ...] = ()
    push_filters: bool = False
    # 0 for one per partition.
    min_splits: int = 0
    # The highest number of offsets in a split; 0 for no limit.
    max_records: int = 0
    rack_binding: RackBinding = "executor"
    # The environment variable of an executor that contains its rack, and whether an executor without one is an error.
    rack_variable: str = RACK_VARIABLE
    rack_required: bool = False
    # Seconds without any records after which a read fails.
    poll_timeout_s: float = 60.0
    # The highest number of rows, and approximately of bytes of values, in an Arrow batch.
    batch_rows: int = 10_000
    batch_bytes: int = 16 * 2**20
    max_fetch_bytes: int = MAX_FETCH_BYTES
    # The highest number of tasks, each of which reads one split after the other; 0 if it follows from the splits.
    tasks: int = 0
    steal_after_s: float = 0.5
    # Empty for the address from which the driver connects to Kafka, and 0 for any free port.
    coordinator_host: str = ""
    coordinator_port: int = 0
    # Of the `Coordinator` that the user has created, for a batch query.
    coordinator_token: str = field(default="", repr=False)
    # Seconds for which an executor retries a request to the coordinator.
    coordinator_timeout_s: float = 10.0
    # The group to which a stream commits the ends of its batches, and the directory on each executor to which tasks
    # write what they received; empty for none.
    commit_group: str = ""
    metrics_path: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str], mode: Mode) -> Options:
        """Parse and validate options as Spark passes them. The kind of query determines defaults and valid options."""
        own, kafka = _split(given)
        _check_known(own)
        _check_coordinator(own, mode)
        _check_mode(own, mode)
        _check_client(kafka)
        max_fetch_bytes = parse_int(
            "kafka.max.partition.fetch.bytes", kafka.pop("max.partition.fetch.bytes", MAX_FETCH_BYTES)
        )
        # Checked but not passed on. Fetches for several partitions together have no more bytes than one may have
        # (`splits.read_together`), so the limit per partition bounds responses. And a broker that waits for more bytes
        # than a fetch may have makes each fetch last kafka.fetch.max.wait.ms.
        parse_int("kafka.fetch.max.bytes", kafka.pop("fetch.max.bytes", 0), minimum=0)
        parse_int("kafka.fetch.min.bytes", kafka.pop("fetch.min.bytes", 1), maximum=_MAX_MIN_BYTES)
        level = kafka.get("isolation.level", "read_uncommitted")
        if level not in _LEVELS:
            # librdkafka accepts any case, and rejects an invalid value on executors only.
            raise ConfigError(f"kafka.isolation.level: expected one of {', '.join(_LEVELS)}, got {short_repr(level)}")
        if "groupidprefix" in own:
            kafka.setdefault("group.id", own["groupidprefix"])
        return cls(
            # The default of Kafka's Java client; librdkafka's is read_committed.
            client=Settings({"isolation.level": "read_uncommitted", **to_librdkafka(kafka, own.get("tokenprovider"))}),
            topics=_topics(own),
            start=_start(own, mode),
            end=_end(own, mode),
            max_fetch_bytes=min(max_fetch_bytes, MAX_FETCH_BYTES),
            **_parsed(own),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The validated options of a writer; `docs/reference/spark-options.md` describes each."""

    # Properties for librdkafka, without the rack.
    client: Mapping[str, str]
    # Empty if rows have a column with it.
    topic: str = ""
    headers: bool = False
    rack_binding: RackBinding = "executor"
    rack_variable: str = RACK_VARIABLE
    rack_required: bool = False
    # The directory to which the driver writes what was sent; empty for none.
    metrics_path: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> WriteOptions:
        """Parse and validate options as Spark passes them."""
        own, kafka = _split(given)
        own = {name: value for name, value in own.items() if name not in _OF_SPARK}
        _check_known(own, _FOR_WRITING)
        _check_client(kafka)
        topic = own.get("topic", "")
        if "topic" in own:
            _check_topics("topic", [topic])
        if own.get("rackbinding", "").lower() == "pull":
            raise ConfigError("rackBinding: pull is for reading: expected executor or none")
        return cls(
            client=Settings(to_librdkafka_producer(kafka, own.get("tokenprovider"))),
            topic=topic,
            **_parsed(own),
        )


_OF_SPARK = ("checkpointlocation", "queryname")
"""Options of a stream itself, which Spark passes to its sink as well."""


def _split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return options by their names in lower case: ours, and the client's without the prefix."""
    options = {name.lower(): str(value) for name, value in given.items()}
    kafka = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    return {name: value.strip() for name, value in options.items() if not name.startswith("kafka.")}, kafka


def _check_client(kafka: dict[str, str]) -> None:
    if not kafka.get("bootstrap.servers", "").strip():
        raise ConfigError("kafka.bootstrap.servers is missing: expected HOST:PORT, separated by commas")
    for name in ("request.timeout.ms", "socket.timeout.ms"):
        if name in kafka:
            kafka[name] = str(parse_int(f"kafka.{name}", kafka[name], *_TIMEOUTS_MS))


def _parsed(own: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that one option sets each."""
    return {
        argument: parse(name, own[name.lower()]) for name, (argument, parse) in _PARSERS.items() if name.lower() in own
    }


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _milliseconds(name: str, value: str, minimum: int = 1) -> float:
    return parse_int(name, value, minimum) / 1000


def _variable(name: str, value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ConfigError(f"{name}: expected the name of an environment variable, got {short_repr(value)}")
    return value


def _column_names(name: str, value: str) -> tuple[str, ...]:
    names = tuple(word for word in (part.strip() for part in value.split(",")) if word)
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"{name}: expected different names of columns, separated by commas, got {short_repr(value)}")
    return names


def _required(name: str, value: str) -> bool:
    return one_of("warn", "fail")(name, value) == "fail"


_PARSERS: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "startingOffsetsByTimestampStrategy": ("no_later_record", one_of("error", "latest")),
    "maxOffsetsPerTrigger": ("limit", partial(parse_int, maximum=MAX_OFFSET)),
    "failOnDataLoss": ("fail_on_loss", parse_bool),
    "includeHeaders": ("headers", parse_bool),
    "columns": ("columns", _column_names),
    "pushFilters": ("push_filters", parse_bool),
    "minPartitions": ("min_splits", parse_int),
    "maxRecordsPerPartition": ("max_records", partial(parse_int, maximum=MAX_OFFSET)),
    "rackBinding": ("rack_binding", one_of(*get_args(RackBinding))),
    "rackEnvVar": ("rack_variable", _variable),
    "onMissingRack": ("rack_required", _required),
    "kafkaConsumer.pollTimeoutMs": ("poll_timeout_s", _milliseconds),
    "batchRows": ("batch_rows", partial(parse_int, maximum=_MAX_BATCH_ROWS)),
    "batchBytes": ("batch_bytes", parse_int),
    "metricsPath": ("metrics_path", parse_text),
    "commitGroup": ("commit_group", parse_text),
    "tasks": ("tasks", parse_int),
    "stealAfterMs": ("steal_after_s", partial(_milliseconds, minimum=0)),
    "coordinatorHost": ("coordinator_host", parse_text),
    "coordinatorPort": ("coordinator_port", partial(parse_int, minimum=0, maximum=65_535)),
    "coordinatorToken": ("coordinator_token", parse_text),
    "coordinatorTimeoutMs": ("coordinator_timeout_s", _milliseconds),
}
"""Options that set one argument of `Options`: which one, and the function that parses the value."""

_OF_SEVERAL = (
    *("subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "endingOffsets"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "endingTimestamp", "groupIdPrefix", "tokenProvider"),
)
"""Options that are read together with others."""

_UNSUPPORTED = {
    "minOffsetsPerTrigger": "a Python data source can have one limit; use maxOffsetsPerTrigger or a longer trigger",
    "maxTriggerDelay": "it requires minOffsetsPerTrigger, which is not supported",
    "fetchOffset.numRetries": "librdkafka retries by itself; use kafka.request.timeout.ms",
    "fetchOffset.retryIntervalMs": "librdkafka retries by itself; use kafka.request.timeout.ms",
    "path": "topics have no path; use subscribe for reading, and topic for writing",
    "rack": f"all executors would have the same rack; set {RACK_VARIABLE} in the environment of each"
    " executor, or set rackEnvVar",
}

_FOR_WRITING = ("topic", "tokenProvider", "includeHeaders", "rackBinding", "rackEnvVar", "onMissingRack", "metricsPath")

DISPLAY_NAMES = {name.lower(): name for name in (*_PARSERS, *_OF_SEVERAL, *_FOR_WRITING, *_UNSUPPORTED)}
"""The names of options in the case in which errors show them."""


def _check_known(own: Mapping[str, str], supported: Iterable[str] = (*_PARSERS, *_OF_SEVERAL)) -> None:
    names = {name.lower() for name in supported}
    for name in own:
        shown = DISPLAY_NAMES.get(name)
        if name not in names and shown in _UNSUPPORTED:
            raise ConfigError(f"{shown}: not supported: {_UNSUPPORTED[shown]}")
        if name not in names:
            raise ConfigError(
                f"unknown option {shown or truncate(name)}: expected one of {', '.join(sorted(supported))}"
            )


def _check_mode(own: Mapping[str, str], mode: Mode) -> None:
    """Reject filters of a stream, which Spark does not pass to sources, and a group for a batch query."""
    if mode == "stream" and own.get("pushfilters", "").lower() == "true":
        raise ConfigError("pushFilters: only for batch queries; Spark passes no filters of a stream")
    if mode == "batch" and "commitgroup" in own:
        raise ConfigError("commitGroup: only for streams; a batch query has no progress to show")


def _check_coordinator(own: Mapping[str, str], mode: Mode) -> None:
    """Reject a batch that pulls splits without a coordinator, and a stream with the token of one."""
    if mode == "stream" and "coordinatortoken" in own:
        raise ConfigError("coordinatorToken: only for batch queries; a stream has its own coordinator")
    needed = ("coordinatorHost", "coordinatorPort", "coordinatorToken")
    pulls = own.get("rackbinding", "").lower() == "pull"
    if mode == "batch" and pulls and any(name.lower() not in own for name in needed):
        raise ConfigError(
            "rackBinding: pull requires a coordinator that exists until the batch query ends: "
            "with rackassign.spark.Coordinator(spark) as c, and .options(**c.options)"
        )


def _only(own: Mapping[str, str], *names: str) -> str | None:
    """Return which one of these mutually exclusive options is set, in lower case; None if none is."""
    present = [name for name in names if name.lower() in own]
    if len(present) > 1:
        raise ConfigError(f"{' and '.join(present)}: only one of them can be set")
    return present[0].lower() if present else None


def _topics(own: Mapping[str, str]) -> Topics:
    chosen = _only(own, "subscribe", "subscribePattern", "assign")
    if chosen is None:
        raise ConfigError(
            "subscribe is missing: set subscribe (topics separated by commas), subscribePattern or assign"
        )
    value = own[chosen]
    if chosen == "assign":
        assigned = parse_assignment("assign", value)
        _check_topics("assign", {tp.topic for tp in assigned})
        return Topics(assigned=assigned)
    if chosen == "subscribe":
        names = sorted({name.strip() for name in value.split(",")} - {""})
        if not names:
            raise ConfigError("subscribe: expected topics separated by commas, got none")
        _check_topics("subscribe", names)
        return Topics(names=tuple(names))
    compile_java_regex(value)
    return Topics(pattern=value)


def _check_topics(option: str, names: Iterable[str]) -> None:
    for name in names:
        if not TOPIC_NAME.fullmatch(name):
            raise ConfigError(f"{option}: invalid topic name {short_repr(name)}")


def _start(own: Mapping[str, str], mode: Mode) -> StartingOffsets:
    names = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
    offsets_option = _bound(own, names, "latest" if mode == "stream" else "earliest")
    if mode == "batch":
        _forbid(
            offsets_option,
            LATEST,
            "startingOffsets: latest is not supported for a batch query, which would have no records",
        )
    return offsets_option


def _end(own: Mapping[str, str], mode: Mode) -> StartingOffsets:
    names = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
    if mode == "stream" and (set_options := [name for name in names if name.lower() in own]):
        raise ConfigError(f"{set_options[0]}: not supported for a stream; use trigger(availableNow=True)")
    offsets_option = _bound(own, names, "latest")
    _forbid(
        offsets_option,
        EARLIEST,
        "endingOffsets: earliest is not supported for a batch query, which would have no records",
    )
    return offsets_option


def _forbid(offsets_option: StartingOffsets, logical: int, problem: str) -> None:
    if offsets_option.everywhere == logical or logical in (offsets_option.offsets or {}).values():
        raise ConfigError(problem)


def _bound(own: Mapping[str, str], names: Iterable[str], default: str) -> StartingOffsets:
    """Return the value of the first of the options that is set, as the JVM source does."""
    timestamp, timestamps, offsets = names
    if timestamp.lower() in own:
        return StartingOffsets(timestamp=parse_int(timestamp, own[timestamp.lower()], minimum=0, maximum=MAX_OFFSET))
    if timestamps.lower() in own:
        return StartingOffsets(timestamps=parse_offsets(timestamps, own[timestamps.lower()], lowest=0))
    value = own.get(offsets.lower(), default)
    if value.startswith("{"):
        return StartingOffsets(offsets=parse_offsets(offsets, value))
    return StartingOffsets(
        everywhere=EARLIEST if one_of("earliest", "latest")(offsets, value) == "earliest" else LATEST
    )


_OF_PULL = ("stealAfterMs", "coordinatorHost", "coordinatorPort", "coordinatorToken", "coordinatorTimeoutMs")

_LIMIT = "kafka.max.partition.fetch.bytes"


def without_effect(given: Mapping[str, str], options: Options, mode: Mode) -> list[str]:
    """Return the options that have no effect, each with the reason."""
    names = {name.lower() for name in given}
    problems = [*_of_fetches(names, given), *_of_groups(names), *_of_offsets(names)]
    if options.headers and options.columns and HEADERS not in options.columns:
        problems.append(f"includeHeaders: {HEADERS} is not among columns")
    if mode == "batch" and "maxoffsetspertrigger" in names:
        problems.append("maxOffsetsPerTrigger: a batch query reads up to endingOffsets")
    problems += _of_racks(names, options)
    if options.rack_binding != "pull":
        problems += [f"{name}: only rackBinding=pull uses it" for name in _OF_PULL if name.lower() in names]
    return problems


def without_effect_for_writing(given: Mapping[str, str], options: WriteOptions, mode: Mode) -> list[str]:
    """Return the options that have no effect in a query that writes, each with the reason."""
    problems = [*_of_racks({name.lower() for name in given}, options)]
    if mode == "batch" and options.metrics_path:
        problems.append("metricsPath: what a batch query has sent is not reported, only the batches of a stream")
    return problems


def _of_racks(names: set[str], options: Options | WriteOptions) -> Iterator[str]:
    if options.rack_required and options.rack_binding == "none":
        yield "onMissingRack: with rackBinding=none executors need no rack"
    if "rackenvvar" in names and options.rack_binding == "none" and not options.metrics_path:
        yield "rackEnvVar: with rackBinding=none the rack of executors is not read"


def _of_fetches(names: set[str], given: Mapping[str, str]) -> Iterator[str]:
    if "kafka.fetch.min.bytes" in names:
        yield "kafka.fetch.min.bytes: the source fetches no more than its range, so it does not wait for more either"
    if "kafka.fetch.max.bytes" in names:
        yield f"kafka.fetch.max.bytes: each fetch is for one partition; use {_LIMIT}"
    limit = next((value for name, value in given.items() if name.lower() == _LIMIT), 0)
    if int(limit) > MAX_FETCH_BYTES:
        yield f"{_LIMIT}: a fetch has {MAX_FETCH_BYTES} bytes at most"


def _of_groups(names: set[str]) -> Iterator[str]:
    """Yield properties of group members, and the prefix beside the group itself, as with the JVM source."""
    for name in WITHOUT_EFFECT:
        if f"kafka.{name}" in names:
            yield f"kafka.{name}: the source reads without a group and without the poll() of Java, and does not use it"
    if {"groupidprefix", "kafka.group.id"} <= names:
        yield "groupIdPrefix: kafka.group.id is set as well, and has precedence"


def _of_offsets(names: set[str]) -> Iterator[str]:
    """Yield options for the start or the end beside another one, which comes first as with the JVM source."""
    for side in ("starting", "ending"):
        order = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
        used, *others = [name for name in order if name.lower() in names] or [""]
        yield from (f"{name}: {used} is set as well, and has precedence" for name in others)
    if "startingoffsetsbytimestampstrategy" in names and not names & {
        "startingtimestamp",
        "startingoffsetsbytimestamp",
    }:
        yield "startingOffsetsByTimestampStrategy: there is no timestamp to start at"


_PROVIDER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


def kafka_options(rack_env: str = RACK_VARIABLE, *, provider: str = "env", writing: bool = False) -> dict[str, str]:
    """Return options for `format("kafka")` with which every executor reads from its own rack, or writes in it.

    Use them as `spark.readStream.format("kafka").options(**kafka_options())`. The client of each executor reads the
    rack from its own environment (Kafka's EnvVarConfigProvider, KIP-887), so set the variable where executors start,
    with the rack of each. If it is not set, the client takes the text of the reference as the name of the rack. No
    broker has that rack, so the executor reads from leaders.

    The class of the provider is that of Kafka's own client. Where a platform has moved the packages of its client, as
    Databricks has to `kafkashaded.org.apache.kafka`, replace the option `kafka.config.providers.<provider>.class`.

    Args:
        rack_env: The environment variable that contains the rack.
        provider: The name of the config provider; another one if `env` is in use.
        writing: Whether records are written: those without a key go to leaders in the rack (KIP-1123). It needs
            kafka-clients 4.4 in place of those that come with Spark's connector, which ignore it.

    Raises:
        ConfigError: The name of the variable or of the provider is invalid.
    """
    _variable("rack_env", rack_env)
    if not _PROVIDER_NAME.fullmatch(provider):
        raise ConfigError(f"provider: expected letters, digits, - and _, got {short_repr(provider)}")
    return {
        "kafka.config.providers": provider,
        f"kafka.config.providers.{provider}.class": _PROVIDER,
        "kafka.client.rack": f"${{{provider}:{rack_env}}}",
        **({"kafka.partitioner.rack.aware": "true"} if writing else {}),
    }
