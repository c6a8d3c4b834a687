"""The broker that an admin client takes for the controller.

In 3.0.12 an admin client finds one once (`_controller_id`; with KRaft any live broker will do) and never drops it:
when that broker dies, every request that goes to the controller fails at once and for ever. With `_controller_id` None
it looks for another.
"""

from __future__ import annotations

from typing import Any

from kafka.errors import KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError

DEAD = (KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError)
"""What the host raises when the controller it knows is gone."""


def forget_controller(admin: Any) -> None:
    """Have an admin client look for a controller with its next request; does nothing if the host is another."""
    if hasattr(admin, "_controller_id"):
        admin._controller_id = None
