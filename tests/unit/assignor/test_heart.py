"""A leader with the range assignor, from the bytes of a join to those of its response.

What an assignor knows of its member: topics that it subscribes to and does not read.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rackassign.assignor.member import MemberContext
from rackassign.model import Broker, Group, Member, Partition, Topology
from rackassign.strategies import Options, plan_sticky

ROOT = Path(__file__).parents[3]

FORBIDDEN = (
    "numpy",
    "rackassign.solver",
    "rackassign.admin",
    "rackassign.monitoring",
    "rackassign.clients.kafka_python._consumer",
    "rackassign.clients.kafka_python.patches",
)

MOST_MODULES = 40

MOST_LINES = 4000
"""Lines of the modules that the page of the assignor explains."""

PAGE = ROOT / "docs/explanation/the-assignor.md"

CODE = f"""
import json, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({FORBIDDEN!r}):
            raise ImportError(f"{{name}} is imported by a leader with the range assignor")

sys.meta_path.insert(0, Refused())

from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from rackassign import RackAwareRangeAssignor
from rackassign.wire import Subscription, decode_assignment, encode_subscription
from tests.helpers.fakes.kafka_python import THREE_RACKS, FakeMembership, member

assignor = RackAwareRangeAssignor("a")
assignor.bind(FakeMembership())
assignor.load()
members = [member(f"m-{{rack}}", ["t"], rack=rack) for rack in "abc"]
for each in members:
    sent = encode_subscription(Subscription(("t",), rack=each.metadata.rack_id))
    each.metadata = ConsumerProtocolSubscription.decode(sent)
assigned = assignor.assign(THREE_RACKS, members)
assignor.on_assignment(assigned["m-a"], 5)
# The monitor compares the racks of the last assignment with those of now.
assignor._refreshed()
plain = assignor.assign(THREE_RACKS, members[:1])
print(json.dumps({{
    "assigned": {{name: decode_assignment(each.encode()).partitions for name, each in assigned.items()}},
    "plain": {{name: decode_assignment(each.encode()).partitions for name, each in plain.items()}},
    "modules": [name for name in sys.modules if name.startswith("rackassign")],
}}))
"""


def test_a_range_assignment_takes_neither_numpy_nor_the_solver() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["assigned"] == {"m-a": {"t": [0]}, "m-b": {"t": [1]}, "m-c": {"t": [2]}}
    assert result["plain"] == {"m-a": {"t": [0, 1, 2]}}
    assert "failed" not in run.stderr
    assert len(result["modules"]) <= MOST_MODULES


def test_the_page_of_the_assignor_explains_modules_that_one_person_can_read() -> None:
    named = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    files = [ROOT / "rackassign" / name for name in named]
    assert len(files) == 15
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= MOST_LINES


BROKERS = tuple(Broker(i, rack) for i, rack in enumerate("abc"))
READ = tuple(Partition((i,), i) for i in range(3))
CHANGELOG = tuple(Partition(((i + 1) % 3,), (i + 1) % 3) for i in range(3))


def context(unread: frozenset[str] = frozenset()) -> MemberContext:
    topology = Topology(BROKERS, {"orders": READ, "changelog": CHANGELOG})
    adapter: Any = SimpleNamespace(topology=lambda _cluster, _topics: topology)
    member = MemberContext(adapter, "tests", rack="a", locality="any-replica", name="sticky")
    member.unread_topics = unread
    return member


def local(topology: Topology) -> int:
    """Return how many partitions of `orders` a co-partitioned group reads locally."""
    topics = frozenset(topology.topics)
    members = tuple(Member(f"m-{rack}", topics, rack=rack) for rack in "cab")
    plan = plan_sticky(Group(topology, members, copartition=(("orders", "changelog"),)), Options())
    assert all(given["orders"] == given["changelog"] for given in plan.assignment.values())
    return sum(f"m-{'abc'[p]}" == member for member, given in plan.assignment.items() for p in given["orders"])


def test_only_replicas_of_topics_that_are_read_count() -> None:
    found = context(frozenset({"another"})).topology(None, [])
    assert found.topics == {"orders": READ, "changelog": CHANGELOG}
    unread = context(frozenset({"changelog"})).topology(None, [])
    assert local(unread) == 3
    assert unread.topics["orders"] == READ
    assert len(unread.topics["changelog"]) == 3
    assert all(not partition.replicas for partition in unread.topics["changelog"])
