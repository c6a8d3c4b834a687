"""What a remedy is: a cure for one defect of the host, put on one consumer, with its proof and a switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rackassign.clients.kafka_python.internals.attributes import Consumer, misfit
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import with_version


@dataclass(frozen=True, slots=True)
class Remedy:
    """A cure for one defect of the host, put on one consumer.

    Args:
        name: By which it can be left out.
        defect: What happens without it.
        proof: The test that fails without it.
        methods: Methods it shadows, as paths from the consumer, with the parameters they must have.
        needs: Attributes it reads, as paths from the consumer.
        install: Puts it on a consumer.
        stands_on: Remedies without which it would do harm.
    """

    name: str
    defect: str
    proof: str
    methods: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...]
    install: Callable[[Consumer, WarnOnce], None]
    stands_on: tuple[str, ...] = ()

    def misfit(self, consumer: Consumer) -> str | None:
        """Return what of the host has changed so that the remedy cannot work; None if it fits."""
        return misfit(consumer, self.methods, self.needs)


def install(consumer: Consumer, remedies: Sequence[Remedy], once: WarnOnce) -> None:
    """Put remedies on a consumer; those it has already are left as they are."""
    installed: set[str] = consumer.__dict__.setdefault("_rackassign_remedies", set())
    for remedy in remedies:
        if remedy.name in installed:
            continue
        misfit = remedy.misfit(consumer)
        missing = [name for name in remedy.stands_on if name not in installed]
        if missing:
            misfit = f"{missing[0]} is off"
        if misfit is None:
            remedy.install(consumer, once)
            installed.add(remedy.name)
        else:
            once.warn(remedy.name, "%s: remedy %s is off: %s", with_version("kafka-python"), remedy.name, misfit)
