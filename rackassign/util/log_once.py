"""Warnings that are logged once."""

from __future__ import annotations

import logging

from rackassign.util.text import strip_control_chars

_MOST = 100


class WarnOnce:
    """Logs each warning only the first time, so that a rebalance per minute does not fill the log.

    The number of remembered warnings is limited separately for each kind. Members get new IDs at each start, and
    however many of their warnings there are, warnings of other kinds are still logged.

    Args:
        logger: Logger for the warnings.
    """

    __slots__ = ("_logged", "_logger")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: dict[str, set[object]] = {}

    def warn(self, kind: str, message: str, *args: object, about: object = None, exc_info: bool = False) -> None:
        """Log a warning unless an equal one was logged before.

        Args:
            kind: Kind of the warning; one of few.
            message: As for `logging`.
            *args: As for `logging`.
            about: Subject of the warning, if there may be many; after a hundred of one kind no more of that kind are
                logged, and the log states this.
            exc_info: As for `logging`.
        """
        logged = self._logged.setdefault(kind, set())
        if about in logged or len(logged) >= _MOST:
            return
        logged.add(about)
        # Names are chosen by others: a line end in the client ID of a member would begin a line of its own.
        plain = (each if isinstance(each, int | float) else strip_control_chars(str(each)) for each in args)
        self._logger.warning(message, *plain, exc_info=exc_info)
        if len(logged) == _MOST:
            self._logger.warning("more warnings like the last one are not logged")
