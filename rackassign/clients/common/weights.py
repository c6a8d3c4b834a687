"""The option `weights`: a weight of each partition, from a mapping, a function or a weigher.

* Whatever the user's code does, the group is assigned. If it raises, partitions are counted, with one warning.
* Unknown is not equal. A leader that has just taken over has measured nothing yet. If it counted partitions instead,
  they would move now and move back once weights are known. So unknown weights are presumed to be those with which the
  group is balanced as it is (`presumed_weights`): members keep their partitions, and only the others are distributed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from itertools import islice
from numbers import Real
from typing import Any, Protocol, TypeAlias, runtime_checkable

from rackassign.clients.common.member_context import MemberContext
from rackassign.clients.common.user_functions import check_function
from rackassign.errors import InputError
from rackassign.model import Group, TopicPartition, weight_misfits
from rackassign.strategies.loading import valid_owners
from rackassign.util.text import join_first, short_repr

Weights: TypeAlias = Mapping[str, Sequence[float]]
"""A weight of each partition, by topic."""


@runtime_checkable
class Weigher(Protocol):
    """Measures weights while a member leads its group. It is called where the client handles its group."""

    def weigh(self, partition_counts: Mapping[str, int]) -> Weights | None:
        """Return the weight of each partition; must not block.

        Args:
            partition_counts: Number of partitions of each topic of the group.

        Returns:
            Weights by topic, None if they are not known yet.
        """

    def pause(self) -> None:
        """Stop measuring, because another member leads now; must not block."""


_ABSENT = object()
"""Stands for the weights of a topic that has none."""

WeightsOption: TypeAlias = Weights | Weigher | Callable[[], Weights | None]
"""What the option `weights` accepts."""


class WeightSource:
    """Returns the weights of a group, whatever the option `weights` is.

    Args:
        member: The member that leads.
        option: The option; None for none.
    """

    def __init__(self, member: MemberContext, option: WeightsOption | None) -> None:
        self._member = member
        self._option = option
        self._slow = False

    def constant(self) -> dict[str, tuple[float, ...]]:
        """Return weights that do not change; none of a function or a weigher.

        Raises:
            InputError: They are no weights.
            ConfigError: The function, or a method of the weigher, cannot be called as it will be.
        """
        option = self._option
        if isinstance(option, type):
            raise InputError("weights", f"{option.__name__} is a class, pass an instance of it")
        if option is None:
            return {}
        if isinstance(option, Weigher):
            check_function(option.weigh, "weights: weigh() of the weigher", "partition_counts")
            check_function(option.pause, "weights: pause() of the weigher")
            return {}
        if callable(option):
            check_function(option, "weights")
            return {}
        return _rows(option)

    def of_group(self, group: Group) -> dict[str, tuple[float, ...]]:
        """Return the weights of a group's topics; topics without weights are missing.

        Raises:
            Exception: Whatever the user's code raises.
        """
        begun = time.monotonic()
        try:
            rows = self._read(group)
        finally:
            # Also of what raises: a request that times out is the usual reason for being slow.
            self._check_time(time.monotonic() - begun)
        if rows is None:
            self._member.log.info("%s: weights are not known; members keep what they have", self._member.name)
            return presumed_weights(group)
        return rows

    def _read(self, group: Group) -> dict[str, tuple[float, ...]] | None:
        """Return what the user has for the topics of a group; None if that is not known."""
        weights: Any = self._current(group)
        if weights is None:
            return None
        known = group.topology.topics
        if isinstance(weights, Mapping):
            # Not iterated, since another thread may add topics; and read once, since a mapping may compute its rows.
            read = {topic: weights.get(topic, _ABSENT) for topic in known} if weights else {}
            weights = {topic: row for topic, row in read.items() if row is not _ABSENT}
            if read:
                self._warn_of_misfits(weights, group)
        return _rows(weights, {topic: len(row) for topic, row in known.items()})

    def _warn_of_misfits(self, weights: Mapping[Any, Any], group: Group) -> None:
        """Warn once of topics that have no weights, or another number of them than partitions."""
        misfits = weight_misfits(weights, group.topology.topics)
        if misfits:
            self._member.once.warn(
                "misfits",
                "%s: weights do not fit the topics of the group: %s; a partition without a weight counts as 1",
                *(self._member.name, join_first(misfits, 3)),
                about=tuple(misfits),
            )

    def on_assigned(self, *, leads: bool) -> None:
        """Pause the weigher of a member that does not lead its group any more; raises what the weigher raises."""
        if not leads and isinstance(self._option, Weigher):
            self._option.pause()

    def _current(self, group: Group) -> Weights | None:
        option = self._option
        if option is None or self._slow:
            return {}
        if isinstance(option, Weigher):
            return option.weigh({topic: len(row) for topic, row in group.topology.topics.items()})
        return option() if callable(option) else option

    def _check_time(self, took_s: float) -> None:
        """Call the user's code never again if it has taken too long."""
        limit_s = self._member.time_limit_s()
        if took_s > limit_s:
            # This leader may have been removed from the group by now, and would be again, each time it leads.
            self._slow = True
            self._member.once.warn(
                "slow weights",
                "%s: weights took %.1f s, and all of an assignment may take %.1f s, a third of the session timeout:"
                " the function is not called any more, and partitions are counted instead",
                *(self._member.name, took_s, limit_s),
            )


def presumed_weights(group: Group) -> dict[str, tuple[float, ...]]:
    """Return the weights with which the members' loads are equal now; none if no partition is owned.

    The partitions of a member share its load equally. A partition without owner weighs as much as the average one.
    """
    # Only claims that count: an old one would make the load of its partitions that of another member.
    owner = valid_owners(group)
    sizes = Counter(owner.values())
    if not sizes:
        return {}
    mean = len(owner) / len(sizes)
    loads = {tp: mean / sizes[member] for tp, member in owner.items()}
    return {
        topic: tuple(loads.get(TopicPartition(topic, partition), 1.0) for partition in range(len(row)))
        for topic, row in group.topology.topics.items()
    }


def _rows(weights: object, sizes: Mapping[str, int] | None = None) -> dict[str, tuple[float, ...]]:
    """Return weights as a group has them; the group checks the numbers.

    Args:
        weights: What the user has passed.
        sizes: Number of partitions of each topic, if they are known; further weights of a topic are not read.

    Raises:
        InputError: They are not lists by topic.
    """
    if not isinstance(weights, Mapping):
        expected = "expected lists of numbers by topic, a function that returns them, or a weigher"
        raise InputError("weights", f"{expected}, got {short_repr(weights)}")
    rows: dict[str, tuple[float, ...]] = {}
    for topic, row in weights.items():
        if not isinstance(topic, str):
            raise InputError("weights", f"expected topics, got {short_repr(topic)}")
        # What has no length may have no end, and can be read only once.
        listed = isinstance(row, Iterable) and isinstance(row, Sized)
        if not listed or isinstance(row, (Mapping, AbstractSet, str, bytes)):
            raise InputError(f"weights.{topic}", f"expected a list of numbers, got {short_repr(row)}")
        # All at once, before anything is called for a weight: another thread may change the user's object.
        read = tuple(islice(row, None if sizes is None else sizes.get(topic)))
        rows[topic] = tuple(map(_number, read))
    return rows


def _number(value: Any) -> Any:  # noqa: ANN401 - whatever a user's list has
    """Return a number of any type as a float, numpy's too, and anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf
