"""What the scenes share: topics and groups of their own, and consumers of two kinds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer

from rackassign import attach
from rackassign.testing import Cluster, create_topic
from tests.helpers.kafka.consumers import EXPIRING

Row = tuple[str, str, str]
"""A situation, how it goes with kafka-python alone, and how with us."""


@dataclass
class ScenarioCluster:
    """A cluster, and names that were not used before."""

    cluster: Cluster
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def name(self) -> str:
        return f"scene-{next(self._numbers)}"

    def topic(self, partitions: int = 0, *, replicas: Sequence[Sequence[int]] = ()) -> str:
        name = self.name()
        create_topic(self.cluster.bootstrap, name, replicas or [[1 + p % 3] for p in range(partitions)])
        return name

    @contextmanager
    def consumers(self, *makers: Callable[[], KafkaConsumer]) -> Iterator[list[KafkaConsumer]]:
        with ExitStack() as opened:
            made = []
            for make in makers:
                made.append(make())
                opened.callback(made[-1].close, timeout_ms=3000)
            yield made

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap)

    def stock(self, *topics: str, **config: Any) -> KafkaConsumer:
        """Return a consumer as kafka-python has it."""
        return KafkaConsumer(*topics, bootstrap_servers=self.cluster.bootstrap, **{**EXPIRING, **config})

    def patched(self, *topics: str, **config: Any) -> KafkaConsumer:
        return attach(self.stock(*topics, **config))

    def without(self, patch: str) -> Callable[..., KafkaConsumer]:
        """Make consumers with all patches but this one, so that it is this defect that is seen and no other."""
        return lambda *topics, **config: attach(self.stock(*topics, **config), disable_patches=[patch])


def shown(values: Sequence[float], unit: str) -> str:
    """Write figures of several runs."""
    low, high = min(values), max(values)
    return f"{low:.2g} {unit}" if low == high else f"{low:.2g} to {high:.2g} {unit}"
