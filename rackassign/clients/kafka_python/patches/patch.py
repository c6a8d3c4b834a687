"""The patch type: a workaround for one defect of kafka-python, installed on one consumer, with its test.

`create_response_classes` is no `Patch`: it concerns the process and no single consumer, it changes no method, and it
has to happen before a consumer connects. So it cannot be disabled. kafka-python has a class for each version of a
response, and creates it when the first such response arrives (`VersionSubscriptable.__getitem__`). A class that is
created registers itself for its API, by a weak reference (`ResponseClassRegistry`): `SlotsBuilder.__new__` does not
pass on the `init=False` that is meant to prevent that. If the IO threads of two clients receive the first response of a
version at the same moment, both create a class. One is kept, and the other one may be the one that is registered. Once
it is garbage-collected, every response of that API raises `ReferenceError` on the IO thread, on all connections of the
process, for as long as it runs. To the client the request times out. Seen in kafka-python 3.0.9 to 3.0.12.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from rackassign.clients.kafka_python.internals.attributes import Consumer, incompatibility
from rackassign.text import WarnOnce, with_version


class Patch(NamedTuple):
    """A workaround for one defect of kafka-python, installed on one consumer."""

    name: str
    # Effect of the defect without the patch, and the test that fails without it.
    defect: str
    proof: str
    # Methods that it shadows and calls, as paths from the consumer, with the parameters they must have.
    wraps: Mapping[str, tuple[str, ...]]
    # Attributes that it reads, as paths from the consumer.
    needs: tuple[str, ...]
    install: Callable[[Consumer, WarnOnce], None]
    # Patches without which it would do harm.
    requires: tuple[str, ...] = ()
    # Patches that wrap one of the same methods. They are installed first, so that this one calls them.
    after: tuple[str, ...] = ()
    # First and last version with the defect among those that are supported; below the oldest one the patch goes.
    versions: tuple[str, str] = ("3.0.9", "3.0.12")

    def incompatibility(self, consumer: Consumer) -> str | None:
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


def create_response_classes() -> str | None:
    """Create the class of every version of every response, and register one that is kept for each API.

    Returns what has changed in kafka-python so that it was not possible. It takes some 10 ms the first time, and may
    be called again, by any thread. A process whose responses raise `ReferenceError` already recovers.
    """
    try:
        registry = import_module("kafka.protocol.api_header").ResponseClassRegistry
        for response in _responses(import_module("kafka.protocol.api_message").ApiMessage):
            for version in range(response.max_version + 1):
                response[version]
            # The registered class can be another thread's, of a version that was created at the same time as here. So
            # the class without a version is registered, as when kafka-python defined it, and no version is from now on.
            registry.register_response_class(weakref.proxy(response))
    except Exception as error:  # noqa: BLE001 - then classes are created late, as without this
        return f"{type(error).__name__}: {error}"
    return None


def _responses(message: Any) -> Iterator[Any]:
    """Return the class of each response that is imported, without those of its versions."""
    for each in message.__subclasses__():
        if each._class_version is None:
            if not each.is_request():
                yield each
            yield from _responses(each)
