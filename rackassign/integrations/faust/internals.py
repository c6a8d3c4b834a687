"""All uses of private names of Faust; each docstring names them. All exist in faust-streaming 0.11.3 to 0.15.3."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from faust.transport.drivers import aiokafka as driver

from rackassign.util.log_once import WarnOnce
from rackassign.util.text import with_version

_DISTRIBUTION = "faust-streaming"
_FIRST, _AFTER_LAST = (0, 11), (0, 16)


def warn_of_version(once: WarnOnce) -> None:
    """Warn if the installed Faust is not among the versions that this package was tested with."""
    found = re.match(r"(\d+)\.(\d+)", version(_DISTRIBUTION))
    if found is None or not _FIRST <= (int(found[1]), int(found[2])) < _AFTER_LAST:
        once.warn("version", "%s was not tested with rackassign; 0.11 to 0.15 were", with_version(_DISTRIBUTION))


def prepare_consumers(transport: Any, prepare: Callable[[Any], None], once: WarnOnce) -> None:
    """Call a function with each `AIOKafkaConsumer` that a transport creates for workers, before the consumer starts.

    Sets the public attribute `Consumer` of the transport. The classes override `_new_consumer_thread` of the driver's
    `Consumer` and `_create_worker_consumer` of its `AIOKafkaConsumerThread`.

    Args:
        transport: The transport of an app. With another driver than aiokafka, or another class of consumer, nothing is
            changed and a warning is logged.
        prepare: The function.
        once: For the warning.
    """
    create = getattr(driver.AIOKafkaConsumerThread, "_create_worker_consumer", None)
    if create is None or not hasattr(driver.Consumer, "_new_consumer_thread"):
        once.warn("differs", "%s differs: its workers read from leaders", with_version(_DISTRIBUTION))
        return
    if not isinstance(transport, driver.Transport) or transport.Consumer is not driver.Consumer:
        once.warn("driver", "the workers read from leaders: the transport is not Faust's own for aiokafka")
        return

    class RackAwareThread(driver.AIOKafkaConsumerThread):
        def _create_worker_consumer(self, transport: Any) -> Any:
            consumer = super()._create_worker_consumer(transport)
            prepare(consumer)
            return consumer

    class RackAwareConsumer(driver.Consumer):
        def _new_consumer_thread(self) -> Any:
            return RackAwareThread(self, loop=self.loop, beacon=self.beacon)

    vars(transport)["Consumer"] = RackAwareConsumer
