"""What the exporter writes while it cannot see the cluster."""

from __future__ import annotations

import pytest

from rackassign.cli.commands import exporter
from rackassign.errors import ConfigError
from rackassign.monitoring import ClusterReport, Price
from rackassign.monitoring.report_metrics import ReportMetrics
from tests.helpers.builders import cluster, rates


def test_a_reason_is_written_once_until_there_is_a_report_again(capsys: pytest.CaptureFixture[str]) -> None:
    report = ClusterReport(cluster({"t": [[1]]}), (), (), rates({}))
    metrics = ReportMetrics(Price(0.0))
    exporter._publish(["away", "away", "refused", "away", report, "away", "away"], metrics)
    assert capsys.readouterr().err.splitlines() == [f"rackassign: {it}" for it in ("away", "refused", "away", "away")]
    assert metrics.not_ready() == "away"


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("9108", "ADDRESS:PORT"),
        (":9108", "ADDRESS:PORT"),
        ("h:x", "ADDRESS:PORT"),
        ("h:65536", "ADDRESS:PORT with a port from 0 to 65535"),
    ],
)
def test_an_address_to_listen_on_names_what_is_wrong(listen: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f'^listen: expected {expected}, got "{listen}"$'):
        exporter._address(listen)
