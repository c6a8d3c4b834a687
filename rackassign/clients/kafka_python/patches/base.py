"""The patch type: a workaround for one defect of kafka-python, installed on one consumer, with its test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rackassign.clients.kafka_python.internals.attributes import Consumer, incompatibility
from rackassign.util.log_once import WarnOnce
from rackassign.util.text import with_version


@dataclass(frozen=True, slots=True)
class Patch:
    """A workaround for one defect of kafka-python, installed on one consumer.

    Args:
        name: Name by which it can be disabled.
        defect: Effect of the defect without the patch.
        proof: The test that fails without it.
        methods: Methods it shadows, as paths from the consumer, with the parameters they must have.
        needs: Attributes it reads, as paths from the consumer.
        install: Installs it on a consumer.
        requires: Patches without which it would do harm.
    """

    name: str
    defect: str
    proof: str
    methods: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...]
    install: Callable[[Consumer, WarnOnce], None]
    requires: tuple[str, ...] = ()

    def incompatibility(self, consumer: Consumer) -> str | None:
        """Return what has changed in kafka-python so that the patch cannot work; None if it fits."""
        return incompatibility(consumer, self.methods, self.needs)


def install(consumer: Consumer, patches: Sequence[Patch], once: WarnOnce) -> None:
    """Install patches on a consumer; patches that are installed already are skipped."""
    installed: set[str] = consumer.__dict__.setdefault("_rackassign_patches", set())
    for patch in patches:
        if patch.name in installed:
            continue
        misfit = patch.incompatibility(consumer)
        missing = [name for name in patch.requires if name not in installed]
        if missing:
            misfit = f"{missing[0]} is off"
        if misfit is None:
            patch.install(consumer, once)
            installed.add(patch.name)
        else:
            once.warn(patch.name, "%s: patch %s is off: %s", with_version("kafka-python"), patch.name, misfit)
