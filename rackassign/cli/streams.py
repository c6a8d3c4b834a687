"""stdout and stderr of a command: what cannot be encoded is escaped, and what cannot be written is noticed once.

A failed write raises in the command, which so ends early. After it the stream discards what is written, so nothing
fails once more when the interpreter flushes it at its end.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class GuardedStream(io.RawIOBase):
    """The unbuffered end of a stream, which remembers its first failure.

    Args:
        raw: Where bytes are written to; None for a descriptor that is closed.
        quiet: Whether a failure is not raised.

    Attributes:
        failure: The error of the first write that failed; None if there is none.
    """

    def __init__(self, raw: io.RawIOBase | None, *, quiet: bool) -> None:
        super().__init__()
        self.failure: OSError | None = None
        self._raw = raw
        self._quiet = quiet

    def writable(self) -> bool:
        """Return True, which is what `io` asks for."""
        return True

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._raw is not None and self._raw.isatty()

    def fileno(self) -> int:
        """Return the descriptor.

        Raises:
            io.UnsupportedOperation: It is closed.
        """
        if self._raw is None:
            raise io.UnsupportedOperation("fileno")
        return self._raw.fileno()

    def write(self, data: ReadableBuffer, /) -> int | None:
        """Write bytes, or discard them after a failure.

        Raises:
            OSError: The first failure, unless the stream is quiet.
        """
        if self.failure is None:
            try:
                return _open(self._raw).write(data)
            except OSError as error:
                self.failure = error
                if not self._quiet:
                    raise
        return memoryview(data).nbytes


def _open(raw: io.RawIOBase | None) -> io.RawIOBase:
    if raw is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return raw


@contextmanager
def guarded_streams() -> Iterator[GuardedStream | None]:
    """Guard stdout and stderr while the block lasts; failures of stderr are not raised, since they cannot be shown.

    Yields:
        The guard of stdout; None if another program than the interpreter has replaced stdout, as pytest does.
    """
    out, err = sys.stdout, sys.stderr
    guarded_out, guard = _guarded(out, quiet=False)
    guarded_err, _ = _guarded(err, quiet=True)
    sys.stdout, sys.stderr = guarded_out, guarded_err
    try:
        yield guard
    finally:
        for stream in (guarded_out, guarded_err):
            _flush(stream)
        sys.stdout, sys.stderr = out, err


def _guarded(stream: TextIO | None, *, quiet: bool) -> tuple[TextIO, GuardedStream | None]:
    if stream is None:
        # The descriptor was closed before the interpreter started.
        guard = GuardedStream(None, quiet=quiet)
        return io.TextIOWrapper(io.BufferedWriter(guard), "utf-8", "backslashreplace"), guard
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if not isinstance(raw, io.FileIO):
        return stream, None
    stream.flush()
    guard = GuardedStream(raw, quiet=quiet)
    wrapper = io.TextIOWrapper(
        io.BufferedWriter(guard),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or quiet,
    )
    return wrapper, guard


def _flush(stream: TextIO) -> None:
    """Write what is buffered; a failure is in the guard."""
    try:
        stream.flush()
    except OSError:
        return
