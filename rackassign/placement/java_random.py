"""Reproducible random numbers, determined by a seed.

They are the numbers of `java.util.Random`, so that the result of Kafka's own classes for a seed can be reproduced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableSequence
from typing import Any

from rackassign.errors import ConfigError
from rackassign.text import short_repr

_MULTIPLIER = 0x5DEECE66D
_INCREMENT = 11
_MASK = 2**48 - 1
_INT_BITS = 31


class JavaRandom(ABC):
    """Random numbers, derived from random bits like in `java.util.Random`."""

    @abstractmethod
    def next_bits(self, bits: int) -> int:
        """Return that many random bits (up to 32), as a signed 32-bit number."""

    def next_int(self, bound: int) -> int:
        """Return a number of at least 0 and below the bound, which must be positive."""
        if bound & (bound - 1) == 0:
            return (bound * self.next_bits(_INT_BITS)) >> _INT_BITS
        while True:
            drawn = self.next_bits(_INT_BITS)
            number = drawn % bound
            # Numbers of the incomplete last interval are drawn again, as small ones would be more likely otherwise.
            if drawn - number + bound - 1 < 2**_INT_BITS:
                return number

    def shuffle(self, values: MutableSequence[Any]) -> None:
        """Shuffle values in place (`Collections.shuffle`)."""
        for size in range(len(values), 1, -1):
            other = self.next_int(size)
            values[size - 1], values[other] = values[other], values[size - 1]


class SeededJavaRandom(JavaRandom):
    """`java.util.Random` with a seed.

    Args:
        seed: Determines all numbers.
    """

    def __init__(self, seed: int = 0) -> None:
        self._state = (seed ^ _MULTIPLIER) & _MASK

    def next_bits(self, bits: int) -> int:  # noqa: D102 - documented in the base class
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _MASK
        drawn = self._state >> (48 - bits)
        return drawn - 2**32 if drawn >= 2**31 else drawn


def random_from_config(configs: dict[str, Any]) -> JavaRandom:
    """Return random numbers for the setting `seed`, 0 if it is not set.

    Raises:
        ConfigError: The seed is not an integer.
    """
    seed = configs.get("seed", 0)
    if type(seed) is not int:
        raise ConfigError(f"seed: expected an integer, got {short_repr(seed)}")
    return SeededJavaRandom(seed)
