"""Chance that is the same everywhere: placers draw from it, and a seed decides all of it.

The numbers are those of `java.util.Random`, so that what Kafka's own classes do with a seed can be done again here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableSequence
from typing import Any

from rackassign.errors import ConfigError
from rackassign.util.text import short_repr

_MULTIPLIER = 0x5DEECE66D
_INCREMENT = 11
_MASK = 2**48 - 1
_INT_BITS = 31


class JavaRandom(ABC):
    """Random numbers, as `java.util.Random` makes them of random bits."""

    @abstractmethod
    def next_bits(self, bits: int) -> int:
        """Return that many random bits (up to 32), as a signed 32-bit number."""

    def next_int(self, bound: int) -> int:
        """Return a number from 0 to below the bound, which is positive."""
        if bound & (bound - 1) == 0:
            return (bound * self.next_bits(_INT_BITS)) >> _INT_BITS
        while True:
            drawn = self.next_bits(_INT_BITS)
            number = drawn % bound
            # The last run of numbers is not whole: drawn again, as small numbers would be likelier.
            if drawn - number + bound - 1 < 2**_INT_BITS:
                return number

    def shuffle(self, values: MutableSequence[Any]) -> None:
        """Put values into a random order, in place (`Collections.shuffle`)."""
        for size in range(len(values), 1, -1):
            other = self.next_int(size)
            values[size - 1], values[other] = values[other], values[size - 1]


class SeededJavaRandom(JavaRandom):
    """`java.util.Random` of a seed.

    Args:
        seed: Decides all that is drawn.
    """

    def __init__(self, seed: int = 0) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK

    def next_bits(self, bits: int) -> int:  # noqa: D102 - as the base says
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        drawn = self._state >> (48 - bits)
        return drawn - 2**32 if drawn >= 2**31 else drawn


def random_from_config(configs: dict[str, Any]) -> JavaRandom:
    """Return the chance that the setting `seed` asks for; 0 where there is none.

    Raises:
        ConfigError: The seed is not an integer.
    """
    seed = configs.get("seed", 0)
    if type(seed) is not int:
        raise ConfigError(f"seed: expected an integer, got {short_repr(seed)}")
    return SeededJavaRandom(seed)
