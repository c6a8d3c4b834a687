"""An example as it would be without rackassign: with the classes of its client in place of ours.

python -m tests.helpers.kafka.without_rackassign examples.fastapi.app
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


def with_plain_aiokafka() -> None:
    """Put aiokafka's classes in place of ours."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - only what the example has is loaded
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # noqa: PLC0415 - the same

    from rackassign.clients import aiokafka  # noqa: PLC0415 - the same

    def consumer(*topics: str, **configs: Any) -> Any:
        return AIOKafkaConsumer(*topics, client_rack=os.environ["RACKASSIGN_RACK"], **configs)

    vars(aiokafka).update(RackAwareConsumer=consumer, RackAwareStickyAssignor=RoundRobinPartitionAssignor)


def with_plain_confluent() -> None:
    """Put the class of confluent-kafka in place of ours."""
    import confluent_kafka  # noqa: PLC0415 - only what the example has is loaded

    from rackassign.clients import confluent  # noqa: PLC0415 - the same

    class Consumer(confluent_kafka.Consumer):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__({**config, "client.rack": os.environ["RACKASSIGN_RACK"]})

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

    vars(confluent)["RackAwareConsumer"] = Consumer


def with_plain_faust() -> None:
    """Put Faust's class in place of ours; it has no setting for a rack."""
    import faust as plain  # noqa: PLC0415 - only what the example has is loaded

    from rackassign.integrations import faust  # noqa: PLC0415 - the same

    vars(faust)["RackAwareApp"] = plain.App


def with_plain_quix() -> None:
    """Put the class of Quix Streams in place of ours, with the rack."""
    import quixstreams  # noqa: PLC0415 - only what the example has is loaded

    from rackassign.integrations import quix  # noqa: PLC0415 - the same

    def application(**options: Any) -> Any:
        rack = {"client.rack": os.environ["RACKASSIGN_RACK"]}
        return quixstreams.Application(**options, consumer_extra_config=rack)

    vars(quix)["RackAwareApplication"] = application


if __name__ == "__main__":
    del sys.argv[0]
    example = sys.argv[0].split(".")[1]
    frameworks = {"worker_pool": with_plain_confluent, "faust": with_plain_faust, "quix": with_plain_quix}
    frameworks.get(example, with_plain_aiokafka)()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
