"""Creates the classes of kafka-python's responses before two threads can create the same one.

kafka-python has a class for each version of a response, and creates it when the first such response arrives
(`VersionSubscriptable.__getitem__`). A class that is created registers itself for its API, by a weak reference
(`ResponseClassRegistry`): `SlotsBuilder.__new__` does not pass on the `init=False` that is meant to prevent that. If
the IO threads of two clients receive the first response of a version at the same moment, both create a class. One is
kept, and the other one may be the one that is registered. Once it is garbage-collected, every response of that API
raises `ReferenceError` on the IO thread, on all connections of the process, for as long as it runs. To the client the
request times out.

This is no `Patch`: it concerns the process and no single consumer, it changes no method, and it has to happen before a
consumer connects. So it cannot be disabled. Seen in kafka-python 3.0.9 to 3.0.12.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from importlib import import_module
from typing import Any


def create_response_classes() -> str | None:
    """Create the class of every version of every response, and register one that is kept for each API.

    It takes some 10 ms the first time, and may be called again, by any thread. A process whose responses raise
    `ReferenceError` already recovers.

    Returns:
        What has changed in kafka-python so that it was not possible; None if all classes exist.
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
