"""The command line: options, output and exit codes; the use cases are in other packages.

Results go to stdout, progress and problems to stderr. `cli/exit_codes.py` has the exit codes of all commands.
"""

from __future__ import annotations

import sys
from typing import NoReturn

from rackassign.cli.exit_codes import ExitCode


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
