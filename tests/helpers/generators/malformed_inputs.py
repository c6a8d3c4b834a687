"""Subscriptions that no sound client sends."""

from __future__ import annotations

import random
from collections.abc import Iterator

from rackassign.wire import Subscription, encode_subscription

_EXTREME = (0, 1, 2, 0x7F, 0x80, 0xFF)

_HEAD = 2
"""Bytes of the version, before the topics."""


def subscriptions(topic: str, owned: str, partitions: int, seed: int) -> Iterator[bytes]:
    """Yield mutated subscriptions to one topic that claim partitions of another, without end."""
    dice = random.Random(seed)
    while True:
        claimed = tuple(p for p in range(partitions) if dice.random() < 0.5)
        subscription = Subscription(
            (topic,), dice.randbytes(dice.randrange(9)), {owned: claimed}, dice.choice([-1, 0, 4, 2**31 - 1]), "a"
        )
        data = bytearray(encode_subscription(subscription, dice.randrange(4)))
        for _ in range(dice.randrange(1, 5)):
            at = dice.randrange(len(data))
            kind = dice.randrange(5)
            if kind == 0:
                data[at:at] = dice.randbytes(dice.randrange(1, 5))
            elif kind == 1 and len(data) > 1:
                del data[at:]
            elif kind == 2:
                data[at] ^= 1 << dice.randrange(8)
            else:
                data[at] = dice.choice(_EXTREME)
            if not data:
                break
        yield bytes(data)


def broker_survives(data: bytes) -> bool:
    """Tell whether a broker of Apache Kafka 4.3 can read this, or refuses to in good order.

    It reads the topics and the user data, as of version 0. An end that comes too soon is an error it expects; a length
    that is more than what is left, or a null where none may be, is one that breaks the whole group.
    """
    place = _HEAD
    if len(data) < _HEAD or int.from_bytes(data[:_HEAD], "big", signed=True) < 0:
        return len(data) < _HEAD
    count = _number(data, place, 4)
    place += 4
    if count is None:
        return True
    if count < 0 or count > len(data) - place:
        return False
    for _ in range(count):
        length = _number(data, place, 2)
        place += 2
        if length is None:
            return True
        if length < 0 or length > len(data) - place:
            return False
        place += length
    length = _number(data, place, 4)
    return length is None or length <= len(data) - place - 4


def _number(data: bytes, place: int, size: int) -> int | None:
    """Return a number, None if the bytes end before it does."""
    return int.from_bytes(data[place : place + size], "big", signed=True) if place + size <= len(data) else None
