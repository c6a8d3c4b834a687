"""A Quix Streams application that reads a topic locally, and counts the records of each key in its state.

`RackAwareApplication` takes the place of `Application`; it gets its rack from RACKASSIGN_RACK. Quix Streams commits
records after they were processed, so after a crash some are processed again and none is lost. Run one for each zone:

    RACKASSIGN_RACK=use1-az1 KAFKA_BOOTSTRAP=broker:9092 python -m examples.quix.app
"""

from __future__ import annotations

import os

from quixstreams import State

from rackassign.integrations.quix import RackAwareApplication


def handle(value: bytes, state: State) -> None:
    """Do what the application is for, with one record."""
    state.set("count", state.get("count", 0) + 1)
    print((value or b"").decode(errors="replace"), flush=True)


def main() -> None:
    """Process records until Ctrl-C or SIGTERM."""
    app = RackAwareApplication(
        broker_address=os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092"),
        consumer_group=os.environ.get("GROUP", "quix"),
        auto_offset_reset="earliest",
        state_dir=os.environ.get("STATE_DIR", "state"),
    )
    orders = app.topic(os.environ.get("TOPIC", "orders"), value_deserializer="bytes")
    app.dataframe(orders).update(handle, stateful=True)
    app.run()


if __name__ == "__main__":
    main()
