"""A Quix Streams application that counts records by key over two topics in one state, and writes what it counts.

python -m tests.helpers.kafka.quix_totals
"""

from __future__ import annotations

import json
import os
from typing import Any

from rackassign.integrations.quix import RackAwareApplication


def main() -> None:
    app: Any = RackAwareApplication(
        broker_address=os.environ["KAFKA_BOOTSTRAP"],
        consumer_group=os.environ["GROUP"],
        auto_offset_reset="earliest",
        state_dir=os.environ["STATE_DIR"],
        commit_interval=1.0,
    )

    def count(value: bytes, key: bytes, _timestamp: int, _headers: object, state: Any) -> None:
        total = state.get("total", 0) + 1
        state.set("total", total)
        print(json.dumps({"key": key.decode(), "total": total, "value": value.decode()}), flush=True)

    topics = [
        app.topic(name, value_deserializer="bytes", key_deserializer="bytes")
        for name in os.environ["TOPICS"].split(",")
    ]
    left, right = map(app.dataframe, topics)
    left.concat(right).update(count, stateful=True, metadata=True)
    app.run()


if __name__ == "__main__":
    main()
