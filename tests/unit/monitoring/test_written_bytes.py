"""What producers have written, read from their metrics: files, addresses, and texts that are something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackassign.errors import ConfigError
from rackassign.monitoring import metrics_text
from rackassign.monitoring.written_bytes import WrittenSeries, read_written_bytes
from rackassign.text import strip_control_chars

NAME = "rackassign_written_bytes_total"
HEAD = "# HELP rackassign_written_bytes_total Bytes.\n# TYPE rackassign_written_bytes_total counter\n"
OTHER = '# TYPE python_info gauge\npython_info{version="3.10"} 1.0\n'


def line(value: object = 5, **labels: str) -> str:
    """Return a series of partition 0 of topic t, from rack a to rack b."""
    named = {"topic": "t", "partition": "0", "rack": "a", "to_rack": "b", "locality": "cross", **labels}
    shown = ",".join(f'{key}="{text}"' for key, text in named.items())
    return f"{NAME}{{{shown}}} {value}\n"


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    return tmp_path / "metrics.txt"


def refused(source: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read_written_bytes([str(source)])
    said = str(caught.value)
    assert said == strip_control_chars(said)
    return said


@contextmanager
def serving(body: bytes, status: int = 200, *, missing: int = 0) -> Iterator[str]:
    """Serve one page on this machine, of which so many bytes are not sent, and yield host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) + missing))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def read(metrics: Path) -> list[tuple[WrittenSeries, int]]:
    """Return the series of a file, without all of their labels."""
    return [(series._replace(labels=()), size) for series, size in read_written_bytes([str(metrics)]).series.items()]


def test_series_are_read_with_racks_and_partition(metrics: Path) -> None:
    metrics.write_text(HEAD + OTHER + line("1.5e+03") + line(7, partition="12", rack="unknown", to_rack="unknown"))

    assert read(metrics) == [(WrittenSeries("t", 0, "a", "b"), 1500), (WrittenSeries("t", 12, None, None), 7)]


def test_sources_and_processes_of_one_source_are_kept_apart(metrics: Path) -> None:
    # Prometheus federates with the labels of its targets, with a time, and the series of all instances together.
    federated = f'{NAME}{{topic="t",partition="0",rack="a",to_rack="b",instance="%s"}} 10 1395066363000\n'
    metrics.write_text(federated % "one" + federated % "two")

    with serving((HEAD + line(5)).encode()) as address:
        found = read_written_bytes([str(metrics), f"http://{address}/metrics"])

    assert sorted(found.series.values()) == [5, 10, 10]


def test_a_partition_that_is_not_exported_is_absent(metrics: Path) -> None:
    metrics.write_text(f'{NAME}{{topic="t",rack="a"}} 5\n' + line(6, partition="", rack="", to_rack="b"))

    assert read(metrics) == [(WrittenSeries("t", None, "a", None), 5), (WrittenSeries("t", None, None, "b"), 6)]


def test_large_values_stay_exact(metrics: Path) -> None:
    metrics.write_text(line(2**62))

    assert read(metrics) == [(WrittenSeries("t", 0, "a", "b"), 2**62)]


@pytest.mark.parametrize("text", [HEAD, "# TYPE rackassign_written_bytes counter\n# EOF\n", HEAD + line(0, topic="u")])
def test_a_producer_that_has_not_sent_anything_counts_nothing(metrics: Path, text: str) -> None:
    metrics.write_text(text)

    assert sum(read_written_bytes([str(metrics)]).series.values()) == 0


@pytest.mark.parametrize(
    "text", [OTHER, "", 'other{topic="rackassign_written_bytes"} 5\n', "# HELP other Of rackassign_written_bytes.\n"]
)
def test_metrics_of_something_else_are_refused(metrics: Path, text: str) -> None:
    metrics.write_text(text)

    assert refused(metrics) == f"{metrics}: has no {NAME}; is it the metrics of a producer with ProducerMetrics?"


@pytest.mark.parametrize(
    "content",
    [
        b"<!doctype html>\n<title>Sign in</title>\n",
        b'{"status": "success"}',
        b"\xff\xfe\x00",
        b"PAR1\x00\x00",
        f'{NAME}{{topic="t"'.encode(),
        f'{NAME}{{topic="t"}} five'.encode(),
    ],
)
def test_what_is_no_exposition_is_refused(metrics: Path, content: bytes) -> None:
    metrics.write_bytes(content)

    assert refused(metrics) == f"{metrics}: expected metrics in Prometheus's text format"


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf", "1e300", str(2**64), "9" * 4000, "9" * 5000])
def test_values_that_are_no_bytes_are_refused(metrics: Path, value: str) -> None:
    metrics.write_text(line(value))

    assert refused(metrics).startswith(f"{metrics}: {NAME} has the value ")


@pytest.mark.parametrize("partition", ["x", "-1", "1.0", "+1", str(2**31), "9" * 30, "\u0663", "\x1b[2J"])
def test_labels_that_are_no_partition_are_refused(metrics: Path, partition: str) -> None:
    metrics.write_text(line(partition=partition))

    assert refused(metrics).startswith(f"{metrics}: {NAME} has a series with partition=")


def test_a_byte_order_mark_is_no_part_of_the_text(metrics: Path) -> None:
    metrics.write_text(line(7) + line(5, topic="u"), "utf-8-sig")

    assert sum(read_written_bytes([str(metrics)]).series.values()) == 12


def test_a_label_that_occurs_twice_is_refused_or_counts_once(metrics: Path) -> None:
    metrics.write_text(f'{NAME}{{topic="t",topic="u"}} 5\n')

    # That depends on the version of prometheus-client.
    try:
        found = read_written_bytes([str(metrics)]).series
    except ConfigError:
        found = {}
    assert found in ({}, {WrittenSeries("u", None, None, None): 5})


def test_a_series_without_topic_is_refused(metrics: Path) -> None:
    metrics.write_text(f"{NAME} 5\n")

    assert refused(metrics) == f"{metrics}: {NAME} has a series with no topic"


def test_files_that_cannot_be_read_are_named(metrics: Path) -> None:
    assert refused(metrics) == f"{metrics}: No such file or directory"
    assert refused(metrics.parent) == f"{metrics.parent}: Is a directory"
    assert refused("") == '"": Is a directory'
    assert refused("a\0b") == "a\\x00b: not a valid name of a file"


def test_a_response_that_breaks_off_is_not_taken_for_whole() -> None:
    with serving(HEAD.encode() + line(12).encode(), missing=1) as address:
        assert "no valid response (IncompleteRead)" in refused(f"http://{address}/metrics")


def test_addresses_that_cannot_be_read_are_named_without_secrets() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{unused.getsockname()[1]}"
        assert refused(f"http://{closed}/metrics?token=s3cret") == f"http://{closed}/metrics: Connection refused"
    with serving(b"", 404) as address:
        assert refused(f"http://{address}/metrics") == f"http://{address}/metrics: responded 404, expected 200"
    for url in ("file:///etc/passwd", "ftp://host/metrics", "data://x"):
        assert refused(url) == f"{url}: expected a file, or an address that begins with http:// or https://"
    for url in ("http://", "http://[", "https://me:s3cret@127.0.0.1:0x/metrics", "http://a b/\n"):
        said = refused(url)
        assert "s3cret" not in said
        assert said.startswith("http")


def test_a_source_that_is_given_twice_would_count_twice(metrics: Path) -> None:
    metrics.write_text(HEAD + line())
    with pytest.raises(ConfigError, match="given twice"):
        read_written_bytes([str(metrics)] * 2)


def test_text_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_text, "_LARGEST", 1024**2)

    assert refused("/dev/zero") == "/dev/zero: more than 1 MiB; expected metrics"


@given(st.lists(st.sampled_from([NAME, *'{}=,"\\# \n', "topic", "partition", "1", "e", ".", "-", "\u2028", "\0"])))
def test_any_text_gives_bytes_or_one_error(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    metrics = tmp_path_factory.getbasetemp() / "any.txt"
    metrics.write_text("".join(parts))

    try:
        found = read_written_bytes([str(metrics)])
    except ConfigError:
        return
    assert all(count >= 0 for count in found.series.values())
