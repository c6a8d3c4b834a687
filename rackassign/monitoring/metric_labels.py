"""Labels and descriptions of the metrics that a consumer and a report share, for any metrics library.

A report measures what is written, a consumer what it fetches. In the long run a group that keeps up reads what is
written, so the sum of its consumers equals what reports of it measure.
"""

from __future__ import annotations

from collections.abc import Mapping

from rackassign.locality import read_locality

RackPair = tuple[str | None, str | None]
"""The rack of the replica, and the rack of the reader."""

UNKNOWN = "unknown"
"""Label of an unknown rack."""

# PromQL cannot compare two labels, so the comparison of the racks is a label of its own.
READ_BYTES_LABELS = ("group", "rack", "from_rack", "locality")
READ_BYTES = (
    "Bytes of record batches, by the reader's rack, the rack they come from, and whether these are equal:"
    " local, cross or unknown."
)
PARTITIONS_LABELS = ("group", "locality")
PARTITIONS = "Partitions by whether they are read from their reader's own rack: local, cross or unknown."


def rack_label(rack: str | None) -> str:
    """Return the label of a rack."""
    return UNKNOWN if rack is None else rack


def by_labels(read: Mapping[tuple[str, RackPair], float]) -> dict[tuple[str, str, str, str], float]:
    """Return bytes of groups by the values of `READ_BYTES_LABELS`.

    Args:
        read: Bytes by group and pair of racks.
    """
    # A rack may have the name that is the label of unknown ones.
    sums: dict[tuple[str, str, str, str], float] = {}
    for (group, (source, home)), total in read.items():
        labels: tuple[str, str, str, str] = (group, rack_label(home), rack_label(source), read_locality(source, home))
        sums[labels] = sums.get(labels, 0.0) + total
    return sums
