"""Warnings that are given once."""

from __future__ import annotations

import logging

_MOST = 1000


class Once:
    """Logs each warning the first time only, so that a rebalance a minute does not fill the log.

    Args:
        logger: Where to.
    """

    __slots__ = ("_logger", "_said")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said: set[str] = set()

    def warn(self, key: str, message: str, *args: object, exc_info: bool = False) -> None:
        """Warn unless the same key was warned of before.

        What is remembered is bounded: past a thousand different keys nothing new is said.
        """
        if key in self._said or len(self._said) >= _MOST:
            return
        self._said.add(key)
        self._logger.warning(message, *args, exc_info=exc_info)
