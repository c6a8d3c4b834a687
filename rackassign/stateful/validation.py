"""Validation of a stateful consumer's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rackassign.assignor.user_functions import check_function
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.stateful.tasks.run import Process, check_process
from rackassign.util.text import short_repr, truncate

OnRestore = Callable[[TopicPartition, int, int], None]
"""Called during a restore with the partition, the number of records read and the number of all records."""

_RESETS = ("earliest", "latest")

_LONGEST_COMMIT_MS = 60_000

_WITHOUT_EFFECT = {
    "auto_commit_interval_ms": "use commit_interval_ms",
    "default_offset_commit_callback": "it commits offsets itself, and repeats a commit that fails",
    "consumer_timeout_ms": "it is not iterated over, and poll has timeout_ms",
}
"""Settings of `KafkaConsumer` for what this consumer does not do, with the reason."""


def check(
    positional: Sequence[str],
    topics: Iterable[str],
    process: Process,
    state_dir: str | Path,
    config: Mapping[str, Any],
) -> tuple[str, ...]:
    """Refuse invalid arguments; return the topics.

    Raises:
        ConfigError: An option is invalid.
    """
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise ConfigError(f"topics must be a list of names, got {short_repr(topics)}")
    names = (*positional, *topics)
    if not names or not config.get("group_id"):
        raise ConfigError("topics and group_id are needed")
    for topic in names:
        if not isinstance(topic, str):
            raise ConfigError(f"topics must be names, one after the other, got {short_repr(topic)}")
    if len(set(names)) < len(names):
        raise ConfigError(f"each topic can be given once, got {', '.join(map(truncate, names))}")
    check_process(process)
    if not isinstance(state_dir, (str, Path)):
        raise ConfigError(f"state_dir must be a path, got {short_repr(state_dir)}")
    if state_dir == "":
        raise ConfigError("state_dir is empty, which would be the directory in which the program was started")
    for name in ("enable_auto_commit", "partition_assignment_strategy"):
        if name in config:
            raise ConfigError(f"{name} is set by this consumer")
    for name, reason in _WITHOUT_EFFECT.items():
        if config.get(name) is not None:
            raise ConfigError(f"{name} has no effect in this consumer: {reason}")
    for name in ("key_deserializer", "value_deserializer"):
        # kafka-python (3.0.12) calls a deserializer that raises again and again, and poll() never returns.
        if config.get(name) is not None:
            raise ConfigError(f"{name} is not supported by this consumer: decode records in process")
    if config.get("auto_offset_reset", "earliest") not in _RESETS:
        raise ConfigError(
            f"auto_offset_reset must be earliest or latest, got {short_repr(config['auto_offset_reset'])}"
        )
    return names


def check_on_restore(on_restore: object) -> None:
    """Refuse what cannot be called.

    Raises:
        ConfigError: It is not None, and no function that can be called with a progress.
    """
    if on_restore is not None:
        check_function(on_restore, "on_restore", "partition", "read", "all")


def check_commit_interval(commit_interval_ms: object) -> None:
    """Refuse an invalid interval.

    Raises:
        ConfigError: It is no number of milliseconds up to a minute.
    """
    if type(commit_interval_ms) is not int or not 0 <= commit_interval_ms <= _LONGEST_COMMIT_MS:
        raise ConfigError(
            f"commit_interval_ms must be an integer from 0 to {_LONGEST_COMMIT_MS},"
            f" got {short_repr(commit_interval_ms)}"
        )
