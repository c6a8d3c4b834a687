"""Metrics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name of a sample, and its labels in order of their names."""


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry with these collectors."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry


def scraped(collector: Collector) -> dict[Series, float]:
    """Return the samples of a scrape."""
    return exposed(registry_of(collector))


def exposed(registry: CollectorRegistry) -> dict[Series, float]:
    """Return the samples of a scrape of a registry, in which each family and each series must occur once."""
    text = generate_latest(registry).decode()
    typed = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    for names in (typed, series):
        assert len(names) == len(set(names)), text
    return parsed(text)


def parsed(text: str) -> dict[Series, float]:
    """Return the samples of an exposition."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Mapping[Series, float], name: str, **labels: str) -> float:
    """Return the value of one series."""
    return found[name, tuple(sorted(labels.items()))]
