"""What all commands that print have in common."""

from __future__ import annotations

from rackassign.errors import ConfigError


def check_output(output: str, *known: str) -> None:
    """Refuse a form of output that the command does not have; `ConfigError` names those it has."""
    if output not in known:
        raise ConfigError(f"output must be one of {', '.join(known)}, got {output!r}")
