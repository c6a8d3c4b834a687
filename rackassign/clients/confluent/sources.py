"""Makes consumers of librdkafka, one in place of the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka

from rackassign.clients.confluent.stats import StatsMeter


class Sources:
    """Makes one consumer after the other with the same properties; only the newest one's statistics count.

    Args:
        properties: Of librdkafka.
        logger: For what it has to say.
        meter: Told its statistics, and that they begin anew.
        listeners: Told its statistics, too.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        logger: Any,  # noqa: ANN401 - as confluent-kafka's
        meter: StatsMeter,
        listeners: Sequence[Callable[[str], object]],
    ) -> None:
        self._properties = properties
        self._more = {} if logger is None else {"logger": logger}
        self._meter = meter
        self._listeners: tuple[Callable[[str], object], ...] = (meter, *listeners)
        self._made = 0

    def __call__(self) -> confluent_kafka.Consumer:
        """Return a new one."""
        number = self._made + 1

        def see(statistics: str) -> None:
            # One that is closed may have a last word.
            if number == self._made:
                for listener in self._listeners:
                    listener(statistics)

        made = confluent_kafka.Consumer({**self._properties, "stats_cb": see}, **self._more)
        self._made = number
        self._meter.begin_anew()
        return made
