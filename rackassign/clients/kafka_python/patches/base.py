"""The patch type: a workaround for one defect of kafka-python, installed on one consumer, with its test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rackassign.clients.kafka_python.internals.attributes import Consumer, incompatibility
from rackassign.text import WarnOnce, with_version


class Patch(NamedTuple):
    """A workaround for one defect of kafka-python, installed on one consumer.

    Args:
        name: Name by which it can be disabled.
        defect: Effect of the defect without the patch.
        proof: The test that fails without it.
        wraps: Methods that it shadows and calls, as paths from the consumer, with the parameters they must have.
        needs: Attributes it reads, as paths from the consumer.
        install: Installs it on a consumer.
        requires: Patches without which it would do harm.
        after: Patches that wrap one of the same methods. They are installed first, so that this one calls them.
    """

    name: str
    defect: str
    proof: str
    wraps: Mapping[str, tuple[str, ...]]
    needs: tuple[str, ...]
    install: Callable[[Consumer, WarnOnce], None]
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def incompatibility(self, consumer: Consumer) -> str | None:
        """Return what has changed in kafka-python so that the patch cannot work; None if it fits."""
        return incompatibility(consumer, self.wraps, self.needs)


def install(consumer: Consumer, patches: Sequence[Patch], once: WarnOnce) -> None:
    """Install patches on a consumer; patches that are installed already are skipped."""
    installed: dict[str, Patch] = consumer.__dict__.setdefault("_rackassign_patches", {})
    for patch in patches:
        if patch.name in installed:
            continue
        misfit = _missing(patch, installed) or _out_of_order(patch, installed) or patch.incompatibility(consumer)
        if misfit is None:
            patch.install(consumer, once)
            installed[patch.name] = patch
        else:
            once.warn(patch.name, "%s: patch %s is off: %s", with_version("kafka-python"), patch.name, misfit)


def _missing(patch: Patch, installed: Mapping[str, Patch]) -> str | None:
    """Return which required patch is not installed; None if all are."""
    return next((f"{name} is off" for name in patch.requires if name not in installed), None)


def _out_of_order(patch: Patch, installed: Mapping[str, Patch]) -> str | None:
    """Return which installed patch would be called by this one instead of calling it; None for none.

    Two patches of one method are a chain, and what the outer one does not pass on the inner one never sees. So the
    order is declared. It can differ if `attach` is called twice, with different patches disabled.
    """
    for name, other in installed.items():
        shared = sorted(patch.wraps.keys() & other.wraps.keys())
        if shared and name not in patch.after:
            return f"{name} wraps {shared[0]} already, and is to be installed after it"
    return None
