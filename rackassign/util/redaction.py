"""Redaction of secret settings of any client: one rule for messages and for `repr`.

Kafka's own tools write `[hidden]` in place of a password, and so does this module.
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
    # The location of a key may be shown, its content may not.
    r"|ssl\.key(?!\.location|store|file)"
    r"|\.pem$|certificates$|certificate\.chain$"
)
_LEAST = 3
"""Minimum length: shorter values occur by chance in many words."""


def is_secret(name: object) -> bool:
    """Return whether the value of a setting must not be shown.

    Args:
        name: Name of the setting in Java, librdkafka, kafka-python or Spark: `sasl.password`, `sasl_plain_password`.
    """
    return _SECRET.search(re.sub(r"[_-]", ".", str(name).lower())) is not None


def shown_setting(name: object, value: object) -> str:
    """Format the value of a setting for a one-line message, unless it is secret."""
    return HIDDEN if is_secret(name) else short_repr(value)


def without_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """Return another library's message about settings, with the values of secret settings removed."""
    values = {str(value) for name, value in settings.items() if value is not None and is_secret(name)}
    # The longest first: one may contain another.
    for value in sorted(values, key=lambda each: (-len(each), each)):
        if len(value) >= _LEAST:
            text = text.replace(value, HIDDEN)
    return text


class Settings(dict[str, Any]):
    """A dict of settings whose `repr` hides secret values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr({name: HIDDEN if is_secret(name) else value for name, value in self.items()})

    __str__ = __repr__
