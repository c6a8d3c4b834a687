"""Prometheus metrics of reports, by group, and the HTTP server of the exporter: metrics, health and readiness.

Rebalances of groups are counted between reports, for a rate: how calm a group is. Wanted members are for what scales
the group.
"""

from __future__ import annotations

import math
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from socketserver import ThreadingMixIn
from typing import Any, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.model import Partitions
from rackassign.monitoring.analysis import GroupAnalysis
from rackassign.monitoring.collector import ClusterReport
from rackassign.monitoring.live_groups import GroupDescription
from rackassign.monitoring.pool import PARTITIONS, READ_BYTES, RackPair, rack_label, read_by_labels
from rackassign.monitoring.prometheus import samples_of
from rackassign.monitoring.report import Price, hidden_topics
from rackassign.monitoring.scaling import ReplicaRacks, step_up
from rackassign.monitoring.traffic import traffic_matrix

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ModuleNotFoundError:
    raise MissingExtraError("prometheus-client", "prometheus") from None

_LATE, _GRACE_S = 3, 10.0
"""A report that has not come after so many intervals, and so many seconds more, is overdue."""


class ReportMetrics(Collector):
    """Metrics of reports, the last one at each scrape; bytes are accumulated over reports.

    After a report that failed there are no series of groups, until the next one: values of the past would look like
    those of a healthy cluster. A report that is long overdue counts as failed: while Kafka does not respond,
    kafka-python waits for much longer than the interval of the reports.
    """

    def __init__(
        self,
        price: Price,
        interval_s: float = math.inf,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        # `clock` is Unix time, `timer` a monotonic clock, both in seconds.
        self._price = price
        self._interval_s = interval_s
        self._clock = clock
        self._timer = timer
        self._taken_at = 0.0
        self._lock = threading.Lock()
        self._last: ClusterReport | None = None
        self._problem = "nothing was measured yet"
        self._succeeded_at: float | None = None
        self._failed = 0
        self._read: dict[tuple[str, RackPair], float] = {}
        self._rebalances = RebalanceCounter()
        self._wanted = WantedMembers()

    def take(self, survey: ClusterReport) -> None:
        """Store a report."""
        with self._lock:
            self._last = survey
            self._problem = ""
            self._succeeded_at = self._clock()
            self._taken_at = self._timer()
            gone = {name for name, _ in self._read} - {i.snapshot.live.name for i in survey.inspections}
            # A group that is temporarily skipped continues its counter; deleted groups are dropped.
            odd = {odd.name for odd in survey.skipped}
            if any(odd.unlisted for odd in survey.skipped):
                # Any group that is missing may be one of those that a broker does not list now.
                odd |= gone | self._rebalances.totals().keys()
            self._read = {key: total for key, total in self._read.items() if key[0] not in gone - odd}
            self._drop_former_racks(survey)
            self._rebalances.take((i.snapshot.live for i in survey.inspections), frozenset(odd))
            self._wanted.take(survey, frozenset(odd))
            for inspected in survey.inspections:
                # Bytes, and not rates times seconds: the time between the samples differs between brokers.
                for pair, size in traffic_matrix(inspected.now, inspected.rates.bytes_read).pairs.items():
                    key = (inspected.snapshot.live.name, pair)
                    self._read[key] = self._read.get(key, 0.0) + size

    def _drop_former_racks(self, survey: ClusterReport) -> None:
        """Drop series of reader racks that no broker and no member of the group has any more.

        Otherwise members that report the name of their pod as rack would add series with each of their starts.
        """
        brokers = {broker.rack for broker in survey.cluster.topology.brokers}
        homes = {i.snapshot.live.name: {m.rack for m in i.snapshot.group.members} for i in survey.inspections}
        self._read = {
            (name, pair): total
            for (name, pair), total in self._read.items()
            if pair[1] is None or pair[1] in brokers or name not in homes or pair[1] in homes[name]
        }

    def fail(self, problem: str) -> None:
        """Count a report that could not be made, and withdraw the series of groups."""
        with self._lock:
            self._failed += 1
            self._problem = problem
            self._last = None

    @property
    def succeeded(self) -> bool:
        """Whether there has been a report."""
        return self._succeeded_at is not None

    def not_ready(self) -> str:
        """Return why there are no series of groups; empty if there are."""
        with self._lock:
            return self._problem or self._overdue()

    def _overdue(self) -> str:
        """Return since when a report is overdue; empty if none is."""
        if self._last is None:
            return ""
        age_s = self._timer() - self._taken_at
        # The analysis of hundreds of groups may take longer than the interval.
        if age_s <= _LATE * max(self._interval_s, self._last.duration_s) + _GRACE_S:
            return ""
        return f"no survey has succeeded for {age_s:.0f} s"

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of the last report; called from the server's thread."""
        with self._lock:
            last, failed, read, succeeded_at = self._last, self._failed, dict(self._read), self._succeeded_at
            rebalances, wanted = self._rebalances.totals(), self._wanted.by_rack()
            if self._overdue():
                last = None
        yield GaugeMetricFamily(
            "rackassign_up",
            "Whether the last survey succeeded: 1, or 0 without series of groups.",
            value=last is not None,
        )
        yield CounterMetricFamily(
            "rackassign_surveys_failed", "Surveys that failed because Kafka did not respond.", value=failed
        )
        if succeeded_at is not None:
            yield GaugeMetricFamily(
                "rackassign_last_success_timestamp_seconds",
                "Unix time of the last survey that succeeded.",
                succeeded_at,
            )
        if last is None:
            return
        yield GaugeMetricFamily(
            "rackassign_survey_duration_seconds", "Duration of the last survey, with its interval.", last.duration_s
        )
        yield samples_of(READ_BYTES, read_by_labels(read))
        yield from group_metrics(last, rebalances, self._price)
        members = _gauge(
            "wanted_members", "Members that the group should have in the rack, see `rackassign scale`.", "rack"
        )
        for labels, count in wanted.items():
            members.add_metric(labels, count)
        yield members
        problems = sum(odd.unseen for odd in last.skipped) + len(last.measured.problems)
        problems += len({topic for inspected in last.inspections for topic in hidden_topics(inspected)})
        yield GaugeMetricFamily("rackassign_survey_problems", "What the last survey could not see.", value=problems)


def metrics_registry(*metrics: Collector) -> CollectorRegistry:
    """Return a registry with these metrics only; they change with each survey, so none are described in advance."""
    registry = CollectorRegistry(auto_describe=False)
    for each in metrics:
        registry.register(each)
    return registry


def group_metrics(survey: ClusterReport, rebalances: Mapping[str, int], price: Price) -> Iterator[Metric]:
    """Yield the metrics of the groups of a report."""
    described = _gauge("group_seen", "Whether the last survey could describe the group.")
    for name in sorted({odd.name for odd in survey.skipped if odd.name and odd.unseen}):
        described.add_metric((name,), 0)
    for inspected in survey.inspections:
        described.add_metric((inspected.snapshot.live.name,), 1)
    yield described
    yield from _locality(survey)
    yield from _members(survey, rebalances)
    yield from _money(survey, price)
    yield from _lag(survey)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rackassign_{name}", text, labels=("group", *labels))


def _locality(survey: ClusterReport) -> Iterator[Metric]:
    partitions: dict[tuple[str, ...], float] = {}
    reachable = _gauge(
        "reachable_partitions", "What a strategy would make of rackassign_partitions.", "strategy", "locality"
    )
    moves = _gauge("reachable_moves", "Partitions that would change readers for that.", "strategy")
    for inspected in survey.inspections:
        name = inspected.snapshot.live.name
        partitions |= {(name, locality): count for locality, count in asdict(inspected.partitions).items()}
        for reach in inspected.reaches:
            for locality, count in asdict(reach.partitions).items():
                reachable.add_metric((name, reach.strategy, locality), count)
            moves.add_metric((name, reach.strategy), reach.moved)
    yield from (samples_of(PARTITIONS, partitions), reachable, moves)


def _members(survey: ClusterReport, rebalances: Mapping[str, int]) -> Iterator[Metric]:
    members = _gauge("members", "Members.")
    without = _gauge("members_without_rack", "Members without a known rack.")
    elsewhere = _gauge(
        "members_in_foreign_racks", "Members with a rack that no broker has. Their reads count as unknown."
    )
    by_broker = _gauge(
        "group_assigned_by_broker",
        "Whether the broker assigns the group (KIP-848), not a member. 0 for a group without members.",
    )
    assignor = _gauge("broker_assignor", "1 for the assignor of a group to which the broker assigns.", "assignor")
    epoch = _gauge("group_epoch", "Epoch of a group to which the broker assigns. Each change of members raises it.")
    planned = _gauge("group_assignment_epoch", "Epoch of the group for which the broker has planned.")
    behind = _gauge("members_behind", "Members that do not have yet what the broker planned.")
    rebalanced = CounterMetricFamily(
        "rackassign_rebalances",
        "Rebalances between surveys, by the generations that members send. Without these, a change counts as one.",
        labels=("group",),
    )
    racks = set(survey.cluster.topology.broker_racks().values())
    for inspected in survey.inspections:
        live = inspected.snapshot.live
        members.add_metric((live.name,), len(live.members))
        without.add_metric((live.name,), sum(m.rack is None for m in inspected.snapshot.group.members))
        foreign = sum(m.rack is not None and m.rack not in racks for m in inspected.snapshot.group.members)
        elsewhere.add_metric((live.name,), foreign)
        # A group without members keeps the type of the last ones.
        by_broker.add_metric((live.name,), live.kind == "consumer" and bool(live.members))
        rebalanced.add_metric((live.name,), rebalances[live.name])
        if live.kind == "consumer":
            assignor.add_metric((live.name, live.strategy), bool(live.members))
            epoch.add_metric((live.name,), live.epoch)
            planned.add_metric((live.name,), live.assignment_epoch)
            behind.add_metric((live.name,), len(live.behind))
    yield from (members, without, elsewhere, by_broker, assignor, epoch, planned, behind, rebalanced)


def _money(survey: ClusterReport, price: Price) -> Iterator[Metric]:
    cost = _gauge("cross_usd_per_month", "What crosses racks, in USD a month at the given price.")
    saved = _gauge(
        "savings_usd_per_month",
        "What rackassign would save beyond replica selector and client.rack, in USD a month: at least, and at most.",
        "bound",
    )
    for inspected in survey.inspections:
        # If only a part was measured or described, the cost would be too low.
        if survey.measured.seconds and not inspected.flows.unmeasured and not hidden_topics(inspected):
            name = inspected.snapshot.live.name
            cost.add_metric((name,), price.monthly(inspected.flows.cross))
            for bound, bytes_s in zip(("at_least", "at_most"), inspected.savings_bytes_s, strict=True):
                saved.add_metric((name, bound), price.monthly(bytes_s))
    yield from (cost, saved)


def _lag(survey: ClusterReport) -> Iterator[Metric]:
    whole = _gauge("lag_records", "Records between the committed offsets and the ends of the logs.")
    of_racks = _gauge(
        "rack_lag_records", "What of rackassign_lag_records is of partitions with a reader, by its rack.", "rack"
    )
    for inspected in survey.inspections:
        if inspected.rates.total_lag is not None:
            whole.add_metric((inspected.snapshot.live.name,), inspected.rates.total_lag)
            for label, records in _lag_by_label(inspected).items():
                of_racks.add_metric((inspected.snapshot.live.name, label), records)
    yield from (whole, of_racks)


def _lag_by_label(inspected: GroupAnalysis) -> Counter[str]:
    # A rack may have the name that is the label of unknown ones.
    sums: Counter[str] = Counter()
    for rack, records in inspected.lag_by_rack.items():
        sums[rack_label(rack)] += records
    return sums


Application: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""An application of WSGI (PEP 3333)."""


METRICS, HEALTHY, READY = "/metrics", "/-/healthy", "/-/ready"


_SILENCE_S = 30.0
"""A client that sends nothing for so long is disconnected: each connection has a thread."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in `socketserver`
        """Ignore connections that end or stay silent, such as those of health checks; print any other error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_S

    def log_message(self, *_: object) -> None:
        """Log nothing: a scrape every few seconds is no event."""


@contextmanager
def serve_metrics(address: str, port: int, registry: CollectorRegistry, not_ready: Callable[[], str]) -> Iterator[int]:
    """Serve while the block lasts, in threads; yield the port."""
    # `not_ready`: returns why the metrics are not current; empty if they are.
    family, *_, (host, *_) = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
    )[0]
    kind: type[_Server] = type("_FamilyServer", (_Server,), {"address_family": family})
    server: _Server = make_server(str(host), port, _app(registry, not_ready), kind, _Handler)
    thread = threading.Thread(target=server.serve_forever, name="rackassign-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _app(registry: CollectorRegistry, not_ready: Callable[[], str]) -> Application:
    metrics: Application = make_wsgi_app(registry)

    def app(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environment.get("PATH_INFO", "")
        if path == METRICS:
            return metrics(environment, start_response)
        status, text = "404 Not Found", f"not found: {METRICS}, {HEALTHY} and {READY} are"
        if path == HEALTHY:
            status, text = "200 OK", "healthy"
        elif path == READY:
            reason = not_ready()
            status, text = ("503 Service Unavailable", reason) if reason else ("200 OK", "ready")
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return app


@dataclass(frozen=True, slots=True)
class _Seen:
    generation: int
    assigned: Mapping[str, Partitions]


class RebalanceCounter:
    """Counts the rebalances of groups from their descriptions, one after the other.

    Members of cooperative and sticky strategies send their generation with their subscription, so the difference
    counts all rebalances in between. Without generations, a change of members or of their partitions counts as one.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._totals: dict[str, int] = {}

    def take(self, groups: Iterable[GroupDescription], hidden: frozenset[str]) -> None:
        """Take the descriptions of all groups."""
        # `hidden`: names of groups that exist and could not be described now; those that are neither are forgotten.
        named = {group.name: group for group in groups}
        for name in set(self._seen) - set(named) - hidden:
            del self._seen[name], self._totals[name]
        for name, group in named.items():
            now = _Seen(group.generation, {member.id: member.assigned for member in group.members})
            before = self._seen.get(name)
            self._totals[name] = self._totals.get(name, 0) + (0 if before is None else _between(before, now))
            self._seen[name] = now

    def totals(self) -> dict[str, int]:
        """Return the rebalances of each group since it was first described."""
        return dict(self._totals)


def _between(before: _Seen, now: _Seen) -> int:
    changed = before.assigned != now.assigned
    if before.generation < 0 or now.generation < before.generation:
        # No generations are sent, or the group was empty in between and its generations began again.
        return int(changed)
    return max(now.generation - before.generation, int(changed))


@dataclass(frozen=True, slots=True)
class _Wanted:
    members: int
    # Members at the last report.
    seen: int
    racks: ReplicaRacks
    by_rack: Mapping[str, int]


class WantedMembers:
    """The members that groups should have in each rack, from one report to the next, for what starts and stops them.

    They are as many as the group had at the first report, and with each report over which its lag has grown although
    all of them were there, as many as the next step up has. So they do not change while members start, stop or are
    replaced, and they never fall: whether fewer would keep up is not known. A group without members is forgotten.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Wanted] = {}

    def take(self, survey: ClusterReport, hidden: frozenset[str]) -> None:
        """Take a report."""
        # `hidden`: names of groups that exist and could not be described now.
        before, self._groups = self._groups, {name: self._groups[name] for name in hidden & self._groups.keys()}
        for found in survey.inspections:
            live, group = found.snapshot.live, found.snapshot.without_foreign_racks().group
            try:
                racks = ReplicaRacks.of(group, "any-replica" if live.kind == "consumer" else survey.cluster.mode)
            except ConfigError:
                continue
            seen, old = len(group.members), before.get(live.name)
            members = seen if old is None else old.members
            if old is not None and found.rates.lag_growth > 0 and min(old.seen, seen) >= members:
                members = step_up(racks.partitions, max(members, seen)) or members
            if old is not None and (old.members, old.racks) == (members, racks):
                by_rack = old.by_rack
            else:
                by_rack = racks.distribute(members, Counter(m.rack for m in group.members if m.rack is not None))
            self._groups[live.name] = _Wanted(members, seen, racks, by_rack)

    def by_rack(self) -> dict[tuple[str, str], int]:
        """Return the members by group and rack."""
        return {(name, rack): n for name, wanted in self._groups.items() for rack, n in wanted.by_rack.items()}
