"""Bytes that producers have written, read from the metrics that they export."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import NamedTuple

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.monitoring.consumer_pool import UNKNOWN
from rackassign.text import parse_digits, short_repr, strip_control_chars, truncate

try:
    from prometheus_client.parser import text_string_to_metric_families
except ModuleNotFoundError:
    # Commands that may read metrics are used without them, too.
    text_string_to_metric_families = None  # type: ignore[assignment]

NAME = "rackassign_written_bytes_total"

_TIMEOUT_S = 10.0
_LARGEST = 256 * 1024**2
_MOST_BYTES = 2**63
_MOST_PARTITIONS = 2**31


class WrittenSeries(NamedTuple):
    """What was written where.

    Args:
        topic: The topic.
        partition: The partition; None if the producer does not export it.
        rack: Rack of the producer; None if unknown.
        to_rack: Rack of the leader at that time; None if unknown.
        origin: Number of its source, and all labels. Series that differ only in these are of different processes.
    """

    topic: str
    partition: int | None
    rack: str | None
    to_rack: str | None
    origin: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenBytes:
    """Bytes that producers have written, since each of them was started.

    Args:
        series: Bytes of each series.
    """

    series: Mapping[WrittenSeries, int]

    def topics(self) -> frozenset[str]:
        """Return the topics that were written to."""
        return frozenset(series.topic for series in self.series)


def read_written_bytes(sources: Sequence[str]) -> WrittenBytes:
    """Read `rackassign_written_bytes_total` from Prometheus's text format.

    Args:
        sources: Files and http or https addresses. Each is another process, and so are series of one text that differ
            only in other labels, as in what Prometheus federates.

    Raises:
        ConfigError: A source cannot be read, is no such text, has only other series, or has an impossible value.
        MissingExtraError: prometheus-client is not installed.
    """
    if sources and text_string_to_metric_families is None:
        raise MissingExtraError("prometheus-client", "prometheus")
    series: Counter[WrittenSeries] = Counter()
    for number, source in enumerate(sources):
        shown = _shown(source)
        text = _read(source, shown)
        for labels, value in _samples(text, shown):
            series[_series(labels, shown, number)] += _bytes(value, shown)
    return WrittenBytes(series)


def _shown(source: str) -> str:
    """Return a source for messages, without passwords: neither its user information nor its query."""
    if "://" not in source:
        return strip_control_chars(source) or '""'
    start, _, rest = source.partition("://")
    return truncate(f"{start}://{rest.partition('?')[0].partition('#')[0].rpartition('@')[2]}")


def _read(source: str, shown: str) -> str:
    remote = "://" in source
    if remote and not source.lower().startswith(("http://", "https://")):
        raise ConfigError(f"{shown}: expected a file, or an address that begins with http:// or https://")
    try:
        content = _fetched(source) if remote else _content(source)
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
        raise ConfigError(f"{shown}: not a valid {'address' if remote else 'name of a file'}") from None
    if len(content) > _LARGEST:
        raise ConfigError(f"{shown}: more than {_LARGEST // 1024**2} MiB; expected the metrics of producers")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _no_metrics(shown) from None


def _content(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(_LARGEST + 1)


def _fetched(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": "text/plain"})  # noqa: S310 - http or https
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - http or https
        if response.status != HTTPStatus.OK:
            raise urllib.error.HTTPError(url, response.status, "", response.headers, None)
        content: bytes = response.read(_LARGEST + 1)
        if response.length and len(content) <= _LARGEST:
            # A process that ends while it responds; `read` with a size does not raise then.
            raise IncompleteRead(content, response.length)
        return content


def _no_metrics(shown: str) -> ConfigError:
    return ConfigError(f"{shown}: expected metrics in Prometheus's text format")


def _samples(text: str, shown: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield labels and value of each series.

    Other metrics may be many, and the parser is slow: without a line of ours it decides what the text is.
    """
    described = NAME.removesuffix("_total")
    # Not `splitlines`, which also splits at characters that labels may contain.
    ours = "\n".join(line for line in text.split("\n") if described in line)
    exported = False
    try:
        for metric in text_string_to_metric_families(ours or text):
            # A producer that has not sent anything yet exports the description alone.
            exported |= metric.name in {described, NAME}
            for sample in metric.samples:
                if sample.name == NAME:
                    yield sample.labels, sample.value
    except (ValueError, IndexError):
        raise _no_metrics(shown) from None
    if not exported:
        raise ConfigError(f"{shown}: has no {NAME}; is it the metrics of a producer with ProducerMetrics?")


def _series(labels: Mapping[str, str], shown: str, source: int) -> WrittenSeries:
    topic, partition = labels.get("topic", ""), labels.get("partition", "")
    number = parse_digits(partition) if partition else None
    if not topic or (partition and (number is None or number >= _MOST_PARTITIONS)):
        wrong = f"partition={short_repr(partition)}" if topic else "no topic"
        raise ConfigError(f"{shown}: {NAME} has a series with {wrong}")
    origin = source, *sorted(labels.items())
    return WrittenSeries(topic, number, _rack(labels, "rack"), _rack(labels, "to_rack"), origin)


def _rack(labels: Mapping[str, str], label: str) -> str | None:
    rack = labels.get(label, "")
    return None if rack in {"", UNKNOWN} else rack


def _bytes(value: float, shown: str) -> int:
    # NaN fails any comparison.
    if not 0 <= value <= _MOST_BYTES:
        raise ConfigError(f"{shown}: {NAME} has the value {short_repr(value)}, expected bytes")
    return round(value)
