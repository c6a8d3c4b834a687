"""Metrics of others in Prometheus's text format, from files and over HTTP."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.text import short_repr, strip_control_chars, truncate

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

try:
    from prometheus_client.parser import text_string_to_metric_families
except ModuleNotFoundError:
    # Commands that may read metrics are used without them, too.
    text_string_to_metric_families = None  # type: ignore[assignment]

__all__ = [
    "MetricsText",
    "counted_bytes",
    "no_metrics",
    "parse_metrics",
    "read_metrics",
    "readable",
    "text_string_to_metric_families",
    "without_secrets",
]

# A broker that has just started, or that shares its processor, takes some 8 s to collect its metrics the first time.
_TIMEOUT_S = 30.0
_AT_ONCE = 16
_LARGEST = 256 * 1024**2
_LIMIT_BYTES = 2**63


class MetricsText(NamedTuple):
    """Metrics in Prometheus's text format: the source for messages, when it was read in seconds, and the text."""

    shown: str
    read_at: float
    text: str


def read_metrics(sources: Sequence[str], what: str) -> list[MetricsText]:
    """Read metrics from files and http or https addresses; `what` is what they are, for messages."""
    if sources and text_string_to_metric_families is None:
        raise MissingExtraError("prometheus-client", "prometheus")
    if len(set(sources)) < len(sources):
        raise ConfigError(f"{what}: one source is given twice, and would count twice")
    # All are read before the first one is parsed, which takes seconds if there are many series; and at the same time,
    # as brokers take most of a second to collect theirs.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(_read_text, sources))


def _read_text(source: str) -> MetricsText:
    begin, shown = time.monotonic(), without_secrets(source)
    text = _read(source, shown)
    return MetricsText(shown, (begin + time.monotonic()) / 2, text)


def parse_metrics(text: str, shown: str, names: Collection[str]) -> Iterator[Sample]:
    """Yield the samples of the lines that have one of these words, which are in small letters."""
    # Other metrics may be many, and the parser is slow. Not `splitlines`, which also splits at characters that labels
    # may contain.
    lines = "\n".join(
        line for line in text.split("\n") if line[:1] != "#" and any(map(line.lower().__contains__, names))
    )
    try:
        for metric in text_string_to_metric_families(f"{lines}\n"):
            yield from metric.samples
    except (ValueError, IndexError):
        raise no_metrics(shown) from None


def without_secrets(source: str) -> str:
    """Return a source for messages, without passwords: neither its user information nor its query."""
    if "://" not in source:
        return strip_control_chars(source) or '""'
    start, _, rest = source.partition("://")
    return truncate(f"{start}://{rest.partition('?')[0].partition('#')[0].rpartition('@')[2]}")


@contextmanager
def readable(shown: str, what: str) -> Iterator[None]:
    """Turn errors of opening and reading into a `ConfigError` without secrets; `what` may be invalid."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise ConfigError(f"{shown}: responded {error.code}, expected 200") from None
    except HTTPException as error:
        # Its message may contain the address.
        raise ConfigError(f"{shown}: not a valid address, or no valid response ({type(error).__name__})") from None
    except OSError as error:
        # Those of urllib have their cause as the reason.
        cause = getattr(error, "reason", None) or error
        raise ConfigError(f"{shown}: {strip_control_chars(getattr(cause, 'strerror', None) or str(cause))}") from None
    except ValueError:
        raise ConfigError(f"{shown}: not a valid {what}") from None


def _read(source: str, shown: str) -> str:
    remote = "://" in source
    if remote and not source.lower().startswith(("http://", "https://")):
        raise ConfigError(f"{shown}: expected a file, or an address that begins with http:// or https://")
    with (
        readable(shown, "address" if remote else "name of a file"),
        # http or https
        urllib.request.urlopen(source, timeout=_TIMEOUT_S) if remote else Path(source).open("rb") as file,  # noqa: S310
    ):
        content: bytes = file.read(_LARGEST + 1)
        if len(content) <= _LARGEST and getattr(file, "length", None):
            # A process that ends while it responds; `read` with a size does not raise then.
            raise IncompleteRead(content)
    if len(content) > _LARGEST:
        raise ConfigError(f"{shown}: more than {_LARGEST // 1024**2} MiB; expected metrics")
    try:
        # Without the mark that editors of Windows put at the begin, the name of a first series would be another one.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise no_metrics(shown) from None


def counted_bytes(value: float, name: str, shown: str) -> int:
    """Return the value of a counter of bytes; `ConfigError` if it is none."""
    # NaN fails any comparison.
    if not 0 <= value < _LIMIT_BYTES:
        raise ConfigError(f"{shown}: {name} has the value {short_repr(value)}, expected bytes")
    return round(value)


def no_metrics(shown: str) -> ConfigError:
    return ConfigError(f"{shown}: expected metrics in Prometheus's text format")
