"""The command line: options, output and exit codes; the use cases are in other packages.

Results go to stdout, progress and problems to stderr.
"""

from __future__ import annotations

import signal
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from typing_extensions import Self


class ExitCode(IntEnum):
    """How a command ended."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Create a member of the enumeration."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done, and nothing is wrong"
    NO = 1, 'the answer is "no": findings, no rack found, below a limit, not all done'
    BAD_INPUT = 2, "the input is invalid, or an extra is missing"
    NO_ANSWER = 3, "no reliable answer: Kafka is unreachable, a permission is missing, or brokers disagree"
    NOT_WRITTEN = 4, "the output could not be written completely"
    INTERRUPTED = 128 + signal.SIGINT, "stopped by a signal; `top` and `exporter` end with 0 then"
    PIPE_CLOSED = 128 + 13, "the reader of the output has ended, as `head` does"


def main() -> NoReturn:
    """Run the console script; prints in one line what to install if the extra is missing."""
    try:
        from rackassign.cli.app import run  # noqa: PLC0415 - typer and rich come with the extra
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.stderr.write("rackassign: the command line needs an extra: pip install 'rackassign[cli]'\n")
        sys.exit(2)
    except KeyboardInterrupt:
        # While it is loaded; after that `run` returns the same.
        sys.exit(ExitCode.INTERRUPTED)
    sys.exit(run())
