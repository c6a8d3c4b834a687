"""What stands at the end of `--help`: examples that can be copied, and the exit codes."""

from __future__ import annotations

from rackassign.cli.exit_codes import ExitCode

# A paragraph that begins with it keeps its line ends.
_AS_IT_IS = "\b\n"


def examples(*commands: str) -> str:
    """Return the epilog with examples of a command.

    Args:
        commands: Words behind `rackassign`, as a shell reads them.
    """
    lines = "".join(f"\n  rackassign {command}" for command in commands)
    return f"{_AS_IT_IS}{'Example' if len(commands) == 1 else 'Examples'}:{lines}"


def exit_codes() -> str:
    """Return the epilog with the exit codes of all commands."""
    lines = "".join(f"\n  {code.value:3}  {code.meaning}" for code in ExitCode)
    return f"{_AS_IT_IS}Exit codes:{lines}"
