"""The topics of changelogs: missing ones are created, existing ones are checked."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from kafka import KafkaAdminClient
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    KafkaError,
    TopicAlreadyExistsError,
)

from rackassign.admin.admin_client import AuthorizationError, check_authorized, connected, requires, topic_resource
from rackassign.admin.alter import RequestRejectedError, TopicAdmin
from rackassign.admin.describe import UNCLEAN_ELECTION, retry_on_disconnect, topic_configs
from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TOPIC_NAME
from rackassign.stateful._changelog import DELETES_MS, LARGEST_BYTES
from rackassign.text import short_repr, truncate

log = logging.getLogger(__name__)

_POLICY, _DELETES, _LAG = "cleanup.policy", "delete.retention.ms", "min.compaction.lag.ms"
_LARGEST = "max.message.bytes"

CONFIG = {
    _POLICY: "compact",
    _LAG: "3600000",
    _DELETES: str(DELETES_MS),
    UNCLEAN_ELECTION: "false",
    "message.timestamp.type": "LogAppendTime",
}
"""Configuration of a changelog.

With the lag a member that starts again finds the last record that its local file was read up to. Local files are
discarded after half of the time that deletions are kept. A leader without the last records would make files wrong.
Times are those of brokers, and used for the lag alone: if the clock of a member were fast, brokers would refuse its
records, and if it were slow there would be no lag.
"""

_AROUND_BYTES = 1_024
"""More than what a batch of one record has around its key and value."""

_LONGEST = 249
_KNOWN_S, _BROKERS_S, _LOOK_S = 20.0, 30.0, 0.1

_LEAST_KEPT_MS = 60_000


class Changelog(NamedTuple):
    partitions: int
    # Topic ID, which differs for another topic of the same name; empty with brokers before 2.8.
    id: str
    # Why it has fewer partitions than its topic; empty if it has as many.
    problem: str = ""
    # How long it keeps the records of deletions at least, and the size of a key with its value that it takes.
    deletes_ms: int = DELETES_MS
    largest_bytes: int = LARGEST_BYTES


def check_changelog_names(wanted: Mapping[tuple[str, ...], object]) -> None:
    names: list[str] = []
    for topics, changelog in wanted.items():
        # A function of the user may have returned it.
        if not isinstance(changelog, str) or not TOPIC_NAME.fullmatch(changelog):
            size = len(str(changelog))
            why = f"the name has {size} characters, of which Kafka allows {_LONGEST}; " if size > _LONGEST else ""
            raise ConfigError(
                f"the changelog of {truncate(', '.join(topics))} cannot be called {short_repr(changelog)}: {why}see"
                " changelog="
            )
        names.append(changelog)
    inputs = [topic for topics in wanted for topic in topics]
    if len({*inputs, *names}) < len(inputs) + len(names):
        raise ConfigError(f"each topic needs a changelog of its own, got {', '.join(sorted(names))}")


def ensure_changelog_topics(
    connection: Mapping[str, Any], wanted: Mapping[tuple[str, ...], str]
) -> dict[str, Changelog]:
    """Create missing changelogs, with as many partitions and replicas as their topics; extend those of grown topics."""
    with _admin(connection, "prepared") as admin:
        return _prepared(admin, wanted, connection)


def topic_ids(connection: Mapping[str, Any], topics: Sequence[str]) -> dict[str, str]:
    """Return the topic ID of each of these topics that exists."""
    with _admin(connection, "described") as admin:
        return {name: _id(found) for name, found in _described(admin, topics).items()}


@contextmanager
def _admin(connection: Mapping[str, Any], done: str) -> Iterator[KafkaAdminClient]:
    """Yield an admin client; raise its errors as those of changelogs that cannot be prepared, or described."""
    try:
        with closing(connected(KafkaAdminClient, connection)) as admin:
            yield admin
    except (KafkaError, OSError) as error:
        where = truncate(str(connection.get("bootstrap_servers", "its default address")))
        raise KafkaUnavailableError(f"changelogs cannot be {done} on Kafka at {where}: {error}") from None


def _prepared(
    admin: KafkaAdminClient, wanted: Mapping[tuple[str, ...], str], connection: Mapping[str, Any]
) -> dict[str, Changelog]:
    inputs = [topic for topics in wanted for topic in topics]
    there = _described(admin, [*inputs, *wanted.values()])
    for topics, changelog in wanted.items():
        _check_inputs(topics, there)
        if changelog not in there:
            _make(admin, changelog, there[topics[0]]["partitions"])
    made = _awaited(admin, dict.fromkeys(wanted.values(), 1))
    # Again and behind them: a topic may have grown in between, and its changelog with it.
    there = {**there, **_described(admin, inputs)}
    problems: dict[str, str] = {}
    for topics, changelog in wanted.items():
        has, like = len(_rows(made[changelog])), _check_inputs(topics, there)
        if has > like:
            raise ConfigError(f"{changelog} has {has} partitions and {topics[0]} has {like}: state would not be found")
        if has < like:
            problems[changelog] = _extended(admin, _Growth(topics[0], changelog, has, like), connection)
            if not problems[changelog]:
                made |= _awaited(admin, {changelog: like})
    limits = _check_configs(admin, list(made))
    return {
        name: Changelog(len(found["partitions"]), _id(found), problems.get(name, ""), *limits.get(name, ()))
        for name, found in made.items()
    }


def _check_inputs(topics: Sequence[str], there: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the number of partitions of each of these topics."""
    for topic in topics:
        if topic not in there:
            raise ConfigError(f"topic {truncate(topic)} does not exist")
    sizes = {topic: len(_rows(there[topic])) for topic in topics}
    if len(set(sizes.values())) > 1:
        each = ", ".join(f"{truncate(topic)} has {size}" for topic, size in sizes.items())
        raise ConfigError(
            f"co-partitioned topics need equal numbers of partitions: {each}; copy the smaller ones into new topics"
            " with as many, or extend them (kafka-topics.sh --alter), which moves keys to other partitions"
        )
    return sizes[topics[0]]


class _Growth(NamedTuple):
    """A changelog, its partitions, and those of its topic."""

    topic: str
    changelog: str
    has: int
    like: int


def _extended(admin: KafkaAdminClient, growth: _Growth, connection: Mapping[str, Any]) -> str:
    """Add partitions to a changelog, with as many replicas as it has; return why that is not possible, or ""."""
    topic, changelog, has, like = growth
    try:
        with requires("ALTER", topic_resource([changelog])):
            retry_on_disconnect(lambda: admin.create_partitions({changelog: like}))
    except InvalidPartitionsError:
        # Another member was faster.
        return ""
    except KafkaError as error:
        servers = connection.get("bootstrap_servers", "localhost:9092")
        where = servers if isinstance(servers, str) else ",".join(map(str, servers))
        return (
            f"{topic} has {like} partitions, but its changelog {changelog} has only {has}, and this member cannot"
            f" extend it ({error}): partitions from {has} on are not processed until you extend it: kafka-topics.sh"
            f" --bootstrap-server {truncate(where)} --alter --topic {changelog} --partitions {like}"
        )
    log.warning(
        "%s has %d partitions now: %s, which had %d, was extended. If its records have keys, many keys have another"
        " partition from now on, where their state is empty",
        *(topic, like, changelog, has),
    )
    return ""


def _described(admin: KafkaAdminClient, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    described = retry_on_disconnect(lambda: admin.describe_topics(list(names)))
    for topic in described:
        check_authorized(topic["error_code"], "DESCRIBE", topic_resource([topic["name"]]))
    return {topic["name"]: topic for topic in described if not topic["error_code"]}


def _awaited(admin: KafkaAdminClient, changelogs: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the descriptions of changelogs once the broker has metadata of so many partitions of each."""
    deadline = time.monotonic() + _KNOWN_S
    while True:
        existing = _described(admin, list(changelogs))
        missing = [
            name for name, size in changelogs.items() if name not in existing or len(_rows(existing[name])) < size
        ]
        if not missing:
            return existing
        if time.monotonic() >= deadline:
            raise KafkaUnavailableError(f"brokers have no metadata of {', '.join(missing)}, which was created")
        time.sleep(_LOOK_S)


def _id(found: Mapping[str, Any]) -> str:
    return str(found["topic_id"] or "")


def _rows(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = found["partitions"]
    return rows


def _make(admin: KafkaAdminClient, changelog: str, like: Sequence[Mapping[str, Any]]) -> None:
    """Create a changelog, with fewer replicas than its topic if brokers are missing, but enough to write to it."""
    wanted = min(len(each["replica_nodes"]) for each in like)
    deadline = time.monotonic() + _BROKERS_S
    least = None
    while True:
        for replicas in range(wanted, (wanted if least is None else least) - 1, -1):
            try:
                _create(admin, changelog, len(like), replicas)
            except InvalidReplicationFactorError as error:
                problem = error
                continue
            if replicas < wanted:
                log.warning(
                    "%s was created with %d replicas instead of %d, because brokers are missing: once they are back,"
                    " add replicas with kafka-reassign-partitions.sh",
                    *(changelog, replicas, wanted),
                )
            return
        if least is not None and time.monotonic() >= deadline:
            raise problem
        if least is None:
            least = _least_replicas(admin, changelog, wanted)
        else:
            time.sleep(_LOOK_S)


def _create(admin: KafkaAdminClient, changelog: str, partitions: int, replicas: int) -> None:
    described = {"num_partitions": partitions, "replication_factor": replicas, "configs": CONFIG}
    try:
        with requires("CREATE", topic_resource([changelog])):
            retry_on_disconnect(lambda: admin.create_topics({changelog: described}))
    except TopicAlreadyExistsError:
        # Another member was faster.
        return


def _least_replicas(admin: KafkaAdminClient, changelog: str, wanted: int) -> int:
    """Return the number of replicas that writes need (`min.insync.replicas`); all of them if that is not known."""
    try:
        return min(wanted, TopicAdmin(admin).validate(changelog, CONFIG).min_isr or wanted)
    except (KafkaError, RequestRejectedError) as error:
        log.warning("min.insync.replicas of %s is not known: %s", changelog, error)
        return wanted


def _check_configs(admin: KafkaAdminClient, changelogs: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Refuse changelogs that are not compacted, or too soon, and warn about settings with which they may lose state."""
    # For how many milliseconds each keeps records of deletions, and what size of a key and a value; {} if not allowed.
    try:
        configs = topic_configs(admin, changelogs, [_POLICY, UNCLEAN_ELECTION, _LARGEST, _DELETES, _LAG])
    except AuthorizationError as error:
        log.warning("cannot check whether changelogs are compacted: %s", error)
        return {}
    for name, values in configs.items():
        if values[_POLICY] != "compact":
            raise ConfigError(f"{name} must have {_POLICY}=compact, but has {values[_POLICY]}: it would lose state")
        if int(values[_DELETES]) < DELETES_MS:
            log.warning(
                "%s has %s=%s: with less than %d, copies may differ", name, _DELETES, values[_DELETES], DELETES_MS
            )
        if _kept_ms(values) < _LEAST_KEPT_MS:
            raise ConfigError(
                f"{name} has {_DELETES}={values[_DELETES]} and {_LAG}={values[_LAG]}: one must be at least"
                f" {_LEAST_KEPT_MS}, since a state is discarded after half of that time between two polls"
            )
        if values[UNCLEAN_ELECTION] == "true":
            log.warning(
                "%s has unclean.leader.election.enable=true: a leader without its last records would lose state: set it"
                " to false",
                name,
            )
    return {
        name: (_kept_ms(values), min(LARGEST_BYTES, int(values[_LARGEST]) - _AROUND_BYTES))
        for name, values in configs.items()
    }


def _kept_ms(values: Mapping[str, str]) -> int:
    """Return how long the records of deletions are kept: what is not compacted is not removed either."""
    return max(int(values[_DELETES]), int(values[_LAG]))
