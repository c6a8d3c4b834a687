"""An exception at a chosen line of a package, as the handler of a signal raises it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


class LineInterrupt:
    """Raises an exception before a line is executed, counted over all modules below a folder."""

    def __init__(self, folder: Path, line: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        # `kind`: the exception.
        self._folder = str(folder)
        self._line = line
        self._kind = kind
        self._executed = 0
        self.place: str | None = None
        """File, line and function that were interrupted; None if fewer lines were executed."""

    @contextmanager
    def within(self) -> Iterator[None]:
        """Interrupt the block, which ends without the exception."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        except self._kind:
            if self.place is None:
                raise
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._each if frame.f_code.co_filename.startswith(self._folder) else None

    def _each(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self._executed += 1
            if self._executed == self._line:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise self._kind
        return self._each
