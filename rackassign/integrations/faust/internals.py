"""All uses of private names of Faust; each docstring names them. All were seen in faust-streaming 0.11.3 and 0.15.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import faust
from faust.assignor import PartitionAssignor
from faust.assignor.client_assignment import ClientMetadata
from faust.transport.drivers import aiokafka as driver

from rackassign.text import WarnOnce, with_version

DISTRIBUTION = "faust-streaming"
FIRST, LAST = (0, 11), (0, 15)
"""Supported versions."""


def pack(metadata: ClientMetadata) -> bytes:
    """Return the user data of an assignment; calls `PartitionAssignor._compress`."""
    return PartitionAssignor._compress(metadata.dumps())


def unpack(user_data: bytes) -> ClientMetadata:
    """Return the metadata in the user data of an assignment; calls `PartitionAssignor._decompress`."""
    return cast("ClientMetadata", ClientMetadata.loads(PartitionAssignor._decompress(user_data)))


class PreparingApp(faust.App):
    """An app that prepares the consumers of its workers before they start; overrides `_new_transport`."""

    def __init__(self, id: str, once: WarnOnce, **options: Any) -> None:  # noqa: A002 - Faust's own name
        self._once = once
        super().__init__(id, **options)

    def prepare_consumer(self, consumer: Any) -> None:
        """Prepare an `AIOKafkaConsumer`; Faust's thread of the consumer calls this."""

    def _new_transport(self) -> Any:
        transport = super()._new_transport()
        prepare_consumers(transport, self.prepare_consumer, self._once)
        return transport


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
        once.warn("differs", "%s differs: its workers read from leaders", with_version(DISTRIBUTION))
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
