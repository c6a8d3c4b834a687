"""The JSON form of a group (`rackassign/1`) and of a plan (`rackassign-plan/1`).

Rules of this module:

* An invalid input raises one `InputError` that names the field; nothing is corrected silently. That includes a key
  that occurs twice in one object, of which JSON parsers usually use the last.
* This module checks types, keys and the format; the model checks the values.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from rackassign.errors import InputError
from rackassign.locality import Locality
from rackassign.model import Broker, Explanation, Group, Member, Partition, Partitions, Plan, Recommendation, Topology
from rackassign.text import short_repr

SCENARIO_FORMAT = "rackassign/1"
PLAN_FORMAT = "rackassign-plan/1"

_BLANKS = re.compile(r"[ \t\r\n]*")

Json = Any
"""Result of `json.loads`; every use of it is checked below."""

_T = TypeVar("_T")

_NAMES: dict[type, str] = {dict: "an object", list: "an array", str: "a string", int: "an integer"}


def parse(text: str) -> Json:
    """Parse one JSON value.

    Raises:
        InputError: If the text is not JSON, is nested too deeply, or contains an object with a duplicate key.
    """
    values = parse_all(text)
    if len(values) != 1:
        raise InputError("", f"expected one JSON value, got {len(values)}")
    return values[0]


def parse_all(text: str) -> list[Json]:
    """Parse consecutive JSON values, separated by blanks or line ends.

    Raises:
        InputError: As for `parse`; also if there is no value at all.
    """
    values: list[Json] = []
    end = 0
    try:
        while start := _BLANKS.match(text, end):
            if start.end() == len(text):
                break
            value, end = _DECODER.raw_decode(text, start.end())
            values.append(value)
    except json.JSONDecodeError as error:
        raise InputError("", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise InputError("", "not a scenario: nested too deeply") from None
    except InputError:
        raise
    except ValueError as error:
        # Python rejects integers of thousands of digits.
        raise InputError("", f"not JSON: {error}") from None
    if not values:
        raise InputError("", "not JSON: there is nothing")
    return values


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise InputError("", f"the key {short_repr(twice)} occurs twice in one object")
    return made


def _constant(name: str) -> None:
    raise InputError("", f"not JSON: {name} is no number in JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def read_group(value: Json) -> Group:
    """Create a group from a parsed scenario.

    Raises:
        InputError: If a value does not conform to the format; names the field.
    """
    scenario = _keys("", value, {"format", "brokers", "topics", "members"}, {"name", "weights", "costs", "copartition"})
    if scenario["format"] != SCENARIO_FORMAT:
        raise InputError("format", f"expected {SCENARIO_FORMAT!r}, got {short_repr(scenario['format'])}")
    brokers = _each("brokers", scenario["brokers"], _broker)
    topics = {
        topic: _each(f"topics.{topic}", partitions, _partition)
        for topic, partitions in _items("topics", scenario["topics"])
    }
    members = _each("members", scenario["members"], _member)
    weights = {
        topic: _each(f"weights.{topic}", row, _number) for topic, row in _items("weights", scenario.get("weights", {}))
    }
    costs = {
        rack: {other: _number(f"costs.{rack}.{other}", cost) for other, cost in _items(f"costs.{rack}", row)}
        for rack, row in _items("costs", scenario.get("costs", {}))
    }
    copartition = _each(
        "copartition",
        scenario.get("copartition", []),
        lambda path, topics: _each(path, topics, lambda where, topic: _typed(where, topic, str)),
    )
    name = scenario.get("name")
    return Group(
        topology=Topology(brokers=brokers, topics=topics),
        members=members,
        weights=weights,
        costs=costs,
        name=None if name is None else _typed("name", name, str),
        copartition=copartition,
    )


def write_group(group: Group) -> dict[str, Json]:
    """Return the scenario of a group; `read_group` returns an equal group for it."""
    scenario: dict[str, Json] = {"format": SCENARIO_FORMAT}
    if group.name is not None:
        scenario["name"] = group.name
    scenario["brokers"] = [
        {"id": broker.id, "rack": broker.rack} | ({"fenced": True} if broker.fenced else {})
        for broker in group.topology.brokers
    ]
    scenario["topics"] = {
        topic: [_written_partition(partition) for partition in partitions]
        for topic, partitions in group.topology.topics.items()
    }
    scenario["members"] = [_written_member(member) for member in group.members]
    if group.weights:
        scenario["weights"] = {topic: list(row) for topic, row in group.weights.items()}
    if group.costs:
        scenario["costs"] = {rack: dict(row) for rack, row in group.costs.items()}
    if group.copartition:
        scenario["copartition"] = [list(topics) for topics in group.copartition]
    return scenario


def write_plan(group: Group, plan: Plan, explanation: Explanation | None = None) -> dict[str, Json]:
    """Return a plan as JSON, with an explanation if given; counts of partitions and loads are over its target."""
    locality = Locality.of(group, plan)
    loads = [sum(map(len, partitions.values())) for partitions in plan.target.values()]
    written: dict[str, Json] = {"format": PLAN_FORMAT}
    if group.name is not None:
        written["name"] = group.name
    written |= {
        "strategy": plan.strategy,
        "assignment": {member: _listed(owned) for member, owned in plan.assignment.items()},
        "target": {member: _listed(owned) for member, owned in plan.target.items()},
        "withheld": _listed(plan.withheld),
        "partitions": {"local": locality.local, "cross": locality.cross, "unknown": locality.unknown},
        "loads": {"min": min(loads, default=0), "max": max(loads, default=0)},
        "moved": plan.moved,
        "optimal": plan.optimal,
        "proven": list(plan.proven),
        "seconds": round(plan.seconds, 6),
    }
    if plan.optimality_gap is not None:
        written["weight_gap"] = plan.optimality_gap
    if plan.weight_loads is not None:
        written["weight_loads"] = dict(zip(("min", "max"), plan.weight_loads, strict=True))
    if explanation is not None:
        written["not_local"] = [entry._asdict() for entry in explanation.not_local]
        written["advice"] = [_written_advice(advice) for advice in explanation.advice]
    return written


def _written_advice(advice: Recommendation) -> dict[str, Json]:
    written: dict[str, Json] = {"change": advice.kind, "gain": advice.gain, "cost_gain": advice.cost_gain}
    if advice.rack is not None:
        written["rack"] = advice.rack
    if advice.topics:
        written["topics"] = list(advice.topics)
    if advice.partitions:
        written["partitions"] = _listed(advice.partitions)
    if advice.max_skew is not None:
        written["max_skew"] = advice.max_skew
    return written


def _listed(partitions: Partitions) -> dict[str, list[int]]:
    return {topic: list(ids) for topic, ids in partitions.items()}


def _written_partition(partition: Partition) -> Json:
    if partition.leader is not None and partition.replicas[:1] == (partition.leader,):
        return list(partition.replicas)
    return {"replicas": list(partition.replicas), "leader": partition.leader}


def _written_member(member: Member) -> dict[str, Json]:
    written: dict[str, Json] = {"id": member.id, "rack": member.rack, "topics": sorted(member.topics)}
    if member.instance_id is not None:
        written["instance_id"] = member.instance_id
    if member.owned:
        written["owned"] = _listed(member.owned)
    if member.generation is not None:
        written["generation"] = member.generation
    if member.tags:
        written["tags"] = dict(member.tags)
    return written


def _broker(path: str, value: Json) -> Broker:
    broker = _keys(path, value, {"id"}, {"rack", "fenced"})
    fenced = broker.get("fenced", False)
    if not isinstance(fenced, bool):
        raise InputError("fenced", f"expected true or false, got {short_repr(fenced)}").with_prefix(path)
    return Broker(id=broker["id"], rack=broker.get("rack"), fenced=fenced)


def _partition(path: str, value: Json) -> Partition:
    if isinstance(value, list):
        return Partition(replicas=tuple(value), leader=value[0] if value else None)
    if not isinstance(value, dict):
        raise InputError(path, f"expected an array of broker ids or an object, got {short_repr(value)}")
    partition = _keys(path, value, {"replicas"}, {"leader"})
    replicas = _typed(f"{path}.replicas", partition["replicas"], list)
    preferred = replicas[0] if replicas else None
    leader = partition.get("leader", preferred)
    # Kafka's own representation of a missing leader.
    return Partition(replicas=tuple(replicas), leader=None if leader == -1 else leader)


def _member(path: str, value: Json) -> Member:
    optional = {"rack", "instance_id", "owned", "generation", "tags"}
    member = _keys(path, value, {"id", "topics"}, optional)
    topics = _each(f"{path}.topics", member["topics"], lambda at, topic: _typed(at, topic, str))
    return Member(
        id=member["id"],
        topics=frozenset(topics),
        rack=member.get("rack"),
        instance_id=member.get("instance_id"),
        owned={
            topic: tuple(_typed(f"{path}.owned.{topic}", partitions, list))
            for topic, partitions in _items(f"{path}.owned", member.get("owned", {}))
        },
        generation=member.get("generation"),
        tags={
            key: _typed(f"{path}.tags.{key}", tag, str) for key, tag in _items(f"{path}.tags", member.get("tags", {}))
        },
    )


def _number(path: str, value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(path, f"expected a number, got {short_repr(value)}")
    return value


def _each(path: str, value: Json, make: Callable[[str, Json], _T]) -> tuple[_T, ...]:
    """Convert each element with `make`; errors contain the element's index."""
    made: list[_T] = []
    for i, element in enumerate(_typed(path, value, list)):
        at = f"{path}[{i}]"
        try:
            made.append(make(at, element))
        except InputError as error:
            raise error if error.path.startswith(at) else error.with_prefix(at) from None
    return tuple(made)


def _items(path: str, value: Json) -> Iterator[tuple[str, Json]]:
    return iter(_typed(path, value, dict).items())


def _keys(path: str, value: Json, required: set[str], optional: set[str]) -> Mapping[str, Json]:
    """Check that a value is an object with all required keys and no unknown ones."""
    fields: dict[str, Json] = _typed(path, value, dict)
    for key in fields:
        if key not in required and key not in optional:
            known = ", ".join(sorted(required | optional))
            raise InputError(path, f"unknown key {short_repr(key)}; known are {known}")
    for key in sorted(required):
        if key not in fields:
            raise InputError(path, f"the key {key!r} is missing")
    return fields


def _typed(path: str, value: Json, kind: type[_T]) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(path, f"expected {_NAMES[kind]}, got {short_repr(value)}")
    return value
