"""Tasks: what has one state, is processed by one member, and moves as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rackassign.assignor.standby import default_changelog
from rackassign.errors import ConfigError
from rackassign.model import TopicPartition
from rackassign.util.text import short_repr


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a group.

    Each input partition is a task of its own, or, if the topics are co-partitioned, all partitions of one number are.
    Like the changelog of its state a task is named by a topic and a partition: of co-partitioned topics by the first
    one in alphabetical order.

    Args:
        topics: The input topics.
        copartitioned: Whether their partitions of one number are one task.

    Raises:
        ConfigError: An option is invalid.
    """

    topics: tuple[str, ...]
    copartitioned: bool = False

    def __post_init__(self) -> None:
        """Check the option: any text would count as True."""
        copartitioned: object = self.copartitioned
        if not isinstance(copartitioned, bool):
            raise ConfigError(f"copartitioned must be True or False, got {short_repr(copartitioned)}")

    @property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        """The topics of each kind of task, of which the first one names it."""
        return (tuple(sorted(self.topics)),) if self.copartitioned else tuple((topic,) for topic in self.topics)

    def of(self, tp: TopicPartition) -> TopicPartition:
        """Return the task of an input partition."""
        # Another topic has no task; it keeps its own name, under which nothing is found.
        named = self.copartitioned and tp.topic in self.topics
        return TopicPartition(min(self.topics), tp.partition) if named else tp

    def inputs(self, task: TopicPartition) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task."""
        if not self.copartitioned:
            return (task,)
        return tuple(TopicPartition(topic, task.partition) for topic in sorted(self.topics))

    def whole(self, tps: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the tasks of which all input partitions are among these."""
        given = set(tps)
        return {task for task in map(self.of, given) if given.issuperset(self.inputs(task))}


def changelog_names(group: str, tasks: Tasks) -> Callable[[str], str]:
    """Return the function that names the changelog of a task by the topic in its name, unless the user has one."""
    names = {topics[0]: default_changelog(group, *topics) for topics in tasks.sets}
    return names.__getitem__
