"""Warnings that are given once."""

from __future__ import annotations

import logging

_MOST = 100


class WarnOnce:
    """Logs each warning the first time only, so that a rebalance a minute does not fill the log.

    What is remembered is bounded for each kind of warning by itself: members get new ids with each start, and however
    many of them there were, what is of another kind is still said.

    Args:
        logger: Where to.
    """

    __slots__ = ("_logger", "_said")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said: dict[str, set[object]] = {}

    def warn(self, kind: str, message: str, *args: object, about: object = None, exc_info: bool = False) -> None:
        """Warn unless it was warned of the same before.

        Args:
            kind: Of warning; one of few.
            message: As for `logging`.
            *args: The same.
            about: What it is about, if there may be many; past a hundred of one kind nothing more is said of that kind,
                and the log says so.
            exc_info: As for `logging`.
        """
        said = self._said.setdefault(kind, set())
        if about in said or len(said) >= _MOST:
            return
        said.add(about)
        self._logger.warning(message, *args, exc_info=exc_info)
        if len(said) == _MOST:
            self._logger.warning("more warnings like the last one are not logged")
