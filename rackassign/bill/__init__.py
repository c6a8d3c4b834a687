"""The bill: what Kafka's traffic between zones costs, who causes it, and what saves most of it.

Invariants of this package:

* A line is bytes per second between two racks of brokers. Money is computed from it when it is shown.
* What is known of a figure is a range, from what crosses for certain to what may cross; no figure is a guess between.
* Nothing here connects to Kafka. Figures are from reports of `monitoring` and from texts of others.
"""

from __future__ import annotations

from typing import Literal, get_args

Line = Literal["replicating", "producing", "consuming", "other"]
"""A line of the bill; `other` is traffic between zones that is not Kafka's, where the network is measured."""

LINES: tuple[Line, ...] = get_args(Line)
