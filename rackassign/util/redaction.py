"""What must not be shown of settings, whichever client they are of: one rule for messages and for `repr`.

Kafka's own tools write `[hidden]` in the place of a password, and so does this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rackassign.util.text import short_repr

HIDDEN = "[hidden]"

_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|user\.?info|proxy"
    r"|oauth(?:bearer)?\.(?:cb|config|extensions|assertion)"
    r"|(?:access|api|private|keystore)\.?key"
    # Where a key is may be shown, and what is in it may not.
    r"|ssl\.key(?!\.location|store|file)"
    r"|\.pem$|certificates$|certificate\.chain$"
)
_LEAST = 3
"""Characters: what is shorter stands in many a word."""


def is_secret(name: object) -> bool:
    """Tell whether the value of a setting must not be shown.

    Args:
        name: As Java, librdkafka, kafka-python or Spark call it, as in `sasl.password` and `sasl_plain_password`.
    """
    return _SECRET.search(re.sub(r"[_-]", ".", str(name).lower())) is not None


def shown_setting(name: object, value: object) -> str:
    """Show the value of a setting within a message of one line, unless it is secret."""
    return HIDDEN if is_secret(name) else short_repr(value)


def without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """Return what another library says of settings, with the values of those that are secret left out."""
    values = {str(value) for name, value in settings.items() if value is not None and is_secret(name)}
    # The longest first: one may be within another.
    for value in sorted(values, key=lambda each: (-len(each), each)):
        if len(value) >= _LEAST:
            text = text.replace(value, HIDDEN)
    return text


class Settings(dict[str, Any]):
    """Settings that can be shown: a dict whose `repr` hides what is secret, and that is a dict in all else."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr({name: HIDDEN if is_secret(name) else value for name, value in self.items()})

    __str__ = __repr__
