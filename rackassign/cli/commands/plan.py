"""`rackassign plan`: scenarios in, plans out, many in one process.

Names and weights that stand for nothing are valid and often a slip: there is one warning for all.
"""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackassign import scenario
from rackassign.cli import ExitCode
from rackassign.cli.shared_options import standard_input
from rackassign.cli.terminal import check_output, examples, plain_line, warn
from rackassign.errors import ConfigError, InputError
from rackassign.locality import Locality, unknown_cost_racks, validate_locality_mode
from rackassign.model import LOCALITY_MODES, Explanation, Group, Partitions, Plan, Recommendation, weight_misfits
from rackassign.strategies import PLANNED_OFFLINE, Options, copartition_exceptions, validate_balance_mode
from rackassign.strategies.standby import RULES, StandbyOptions, StandbyPlan, assign_standbys
from rackassign.text import join_first

app = typer.Typer(rich_markup_mode=None)

_NAMED = 5


class ScenarioWarnings:
    """Brokers and topics that scenarios name and do not list, weights that do not fit the partitions, unknown tags."""

    def __init__(self, tags: Sequence[str] = ()) -> None:
        # `tags`: keys over whose values copies are to be spread.
        self._wanted_tags = tags
        self._tags: dict[str, None] = {}
        self._brokers: dict[int, None] = {}
        self._subscribed: dict[str, None] = {}
        self._owned: dict[str, None] = {}
        self._weighted: dict[str, None] = {}
        self._misfits: dict[str, None] = {}
        self._racks: dict[str, None] = {}

    def add(self, group: Group) -> None:
        """Collect the names of one scenario."""
        brokers, topics = {broker.id for broker in group.topology.brokers}, group.topology.topics
        replicas = {broker for rows in topics.values() for partition in rows for broker in partition.replicas}
        self._brokers |= dict.fromkeys(sorted(replicas - brokers))
        if group.weights:
            self._weighted |= dict.fromkeys(sorted(group.weights.keys() - topics.keys()))
            self._misfits |= dict.fromkeys(weight_misfits(group.weights, topics))
        self._racks |= dict.fromkeys(unknown_cost_racks(group))
        with_tags = [member.tags.keys() for member in group.members]
        self._tags |= dict.fromkeys(
            key for key in self._wanted_tags if with_tags and not any(key in t for t in with_tags)
        )
        for member in group.members:
            self._subscribed |= dict.fromkeys(sorted(member.topics - topics.keys()))
            self._owned |= dict.fromkeys(topic for topic in member.owned if topic not in topics)

    def lines(self) -> Iterator[str]:
        """Yield a line for each kind of name."""
        kinds: tuple[tuple[Iterable[object], str], ...] = (
            (self._brokers, "replicas are on brokers that are not in brokers, so their racks are unknown"),
            (self._subscribed, "members subscribe to topics that are not in topics, which are left out"),
            (self._owned, "members own partitions of topics that are not in topics, which are ignored"),
            (self._weighted, "weights are of topics that are not in topics, which are ignored"),
            (self._racks, "costs are of racks that no broker and no member has, which have no effect"),
            (self._tags, "no member has these tags of --rack-aware-assignment-tags, which have no effect"),
            (self._misfits, "a partition without a weight counts as 1, and other weights are ignored"),
        )
        for names, meaning in kinds:
            if names:
                yield f"{meaning}: {join_first(list(map(str, names)), _NAMED)}"


OUTPUTS = ("json", "jsonl", "table")


_USE_FOR_NEITHER = {"range": "range, the default,", "consumer-protocol": "consumer-protocol"}
"""Strategies for which only numbers of partitions and racks count, in words."""


class _Found(NamedTuple):
    """A JSON value of the input, or what was there instead."""

    line: int
    value: Any
    error: InputError | None = None


_STANDBY = "standby"
"""The cooperative strategy with the standbys of each partition, as StandbyAwareAssignor plans it."""

_STRATEGIES = (*PLANNED_OFFLINE, _STANDBY)


class _Wanted(NamedTuple):
    """What to make of each group."""

    decide: Callable[[Group], Plan | StandbyPlan]
    explained: bool
    copartition: tuple[tuple[str, ...], ...]


@app.command(
    epilog=examples(
        "plan group.json --strategy cooperative-sticky --explain --output table",
        "plan group.json --strategy standby --rack-aware-assignment-tags zone --output table",
        "snapshot --bootstrap-server localhost:9092 --group billing | rackassign plan --strategy sticky",
    )
)
def plan(
    file: Annotated[str, typer.Argument(help="Scenario(s) as JSON or JSON lines; - is stdin.")] = "-",
    *,
    strategy: Annotated[str, typer.Option(help=f"Assignment strategy: {', '.join(_STRATEGIES)}.")] = "range",
    locality: Annotated[
        str, typer.Option(help=f"Replicas that count as local: {', '.join(LOCALITY_MODES)}.")
    ] = "any-replica",
    max_skew: Annotated[
        int, typer.Option(help="Extra imbalance allowed for locality: members may differ by up to 1 + N partitions.")
    ] = 0,
    balance: Annotated[
        str,
        typer.Option(
            help="What is balanced first: numbers of partitions (total), or numbers of each topic's partitions (topic)."
        ),
    ] = "total",
    copartition: Annotated[
        list[str] | None,
        typer.Option(help="Topics, separated by commas, whose partitions of one number go to one member. Repeatable."),
    ] = None,
    weight_tolerance: Annotated[
        float | None,
        typer.Option(
            help="With weights: share by which the heaviest member may be above the best bound before partitions move.",
            show_default="0.05",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which a balanced plan that keeps owned partitions is taken, as a leader does.",
            show_default="no limit",
        ),
    ] = None,
    num_standby_replicas: Annotated[
        int | None, typer.Option(help="With standby: standbys of each partition.", show_default="1")
    ] = None,
    rack_aware_assignment_tags: Annotated[
        str | None,
        typer.Option(help="With standby: tags of members, separated by commas, over which copies are spread."),
    ] = None,
    standby_rule: Annotated[
        str | None, typer.Option(help=f"With standby: {', '.join(RULES)}.", show_default="even")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain non-local partitions and recommend changes.")
    ] = False,
    output: Annotated[
        str,
        typer.Option(help=f"Output format: {', '.join(OUTPUTS)}.", show_default="json, or jsonl for several values"),
    ] = "",
) -> int:
    """Compute the assignment of a consumer group offline."""
    standbys = _standby_options(num_standby_replicas, rack_aware_assignment_tags, standby_rule)
    if standbys is not None and strategy != _STANDBY:
        raise ConfigError(f"options of standbys need --strategy {_STANDBY}, got {strategy}")
    if strategy not in _STRATEGIES:
        raise ConfigError(f"strategy must be one of {', '.join(_STRATEGIES)}, got {strategy!r}")
    # Not a number is no such number either.
    if time_limit is not None and not time_limit >= 0:
        raise ConfigError(f"--time-limit: expected seconds, 0 or more, got {time_limit:g}")
    options = Options(
        locality=validate_locality_mode(locality),
        max_skew=max_skew,
        balance=validate_balance_mode(balance),
        weight_tolerance=weight_tolerance,
        time_limit_s=time_limit,
    )
    sets = tuple(tuple(topic.strip() for topic in each.split(",")) for each in copartition or ())
    for used, option in (
        (max_skew, "--max-skew"),
        (balance != "total", "--balance"),
        (sets, "--copartition"),
        (weight_tolerance is not None, "--weight-tolerance"),
        (time_limit is not None, "--time-limit"),
    ):
        if used and strategy == "range":
            raise ConfigError(
                f"--strategy range, the default, has no use for {option}: it follows Java's algorithm to the letter."
                " Use --strategy sticky or --strategy cooperative-sticky"
            )
        if used and strategy == "consumer-protocol" and option not in {"--balance", "--time-limit"}:
            raise ConfigError(f"--strategy consumer-protocol has no use for {option}, which the broker plug-in lacks")

    def decide(group: Group) -> Plan | StandbyPlan:
        if weight_tolerance is not None and not group.weights:
            raise ConfigError("--weight-tolerance cannot be used without weights, and the scenario has none")
        if strategy == _STANDBY:
            return assign_standbys(group, {}, standbys, options)
        return PLANNED_OFFLINE[strategy](group, options)

    wanted = _Wanted(decide, explain, sets)
    if output:
        check_output(output, *OUTPUTS)
    with _opened(file) as source:
        values = _values(source)
        if not output:
            head = [value for _, value in zip(range(2), values, strict=False)]
            output = "json" if len(head) == 1 else "jsonl"
            values = chain(head, values)
        warnings = ScenarioWarnings(standbys.rack_aware_assignment_tags if standbys is not None else ())
        try:
            return _answer(values, wanted, output, warnings)
        finally:
            for line in warnings.lines():
                warn(line)


def _answer(found: Iterable[_Found], wanted: _Wanted, output: str, warnings: ScenarioWarnings) -> int:
    """Write a plan for each value as soon as it is made; return the exit code."""
    failed, exceptions = False, dict[str, None]()
    for line, value, error in found:
        try:
            if error is not None:
                raise error
            group = scenario.read_group(value)
            if wanted.copartition:
                group = replace(group, copartition=wanted.copartition)
            warnings.add(group)
            decided = wanted.decide(group)
            standbys = decided if isinstance(decided, StandbyPlan) else None
            made = decided.plan if isinstance(decided, StandbyPlan) else decided
            explanation = made.explain() if wanted.explained else None
            if made.optimality_note:
                warn(made.unproven())
            if made.strategy not in _USE_FOR_NEITHER:
                exceptions |= {reason: None for _, reason in copartition_exceptions(group)}
            elif unused := [name for name in ("copartition", "weights", "costs") if getattr(group, name)]:
                names, which = " and ".join(unused), _USE_FOR_NEITHER[made.strategy]
                exceptions[f"--strategy {which} has no use for {names} of the scenario"] = None
        except (InputError, ConfigError) as problem:
            if output != "jsonl":
                raise
            failed = True
            _write_line({"line": line, "error": str(problem)})
            continue
        if output == "table":
            _write_table(group, made, explanation, standbys)
            continue
        written = scenario.write_plan(group, made, explanation)
        if standbys is not None:
            written |= _standbys_as_json(standbys)
        if output == "jsonl":
            _write_line(written)
        else:
            sys.stdout.write(json.dumps(written, indent=2) + "\n")
    for reason in exceptions:
        warn(reason)
    return ExitCode.BAD_INPUT if failed else ExitCode.DONE


def _standby_options(number: int | None, tags: str | None, rule: str | None) -> StandbyOptions | None:
    """Return the options of standbys; None if none of them is given."""
    given: dict[str, Any] = {} if number is None else {"num_standby_replicas": number}
    if tags is not None:
        given["rack_aware_assignment_tags"] = [tag.strip() for tag in tags.split(",")]
    if rule is not None:
        given["rule"] = rule
    return StandbyOptions(**given) if given else None


def _standbys_as_json(found: StandbyPlan) -> dict[str, Any]:
    missing: dict[str, dict[str, int]] = {}
    for tp, count in sorted(found.missing.items()):
        missing.setdefault(tp.topic, {})[str(tp.partition)] = count

    def lists(kept: Mapping[str, Partitions]) -> dict[str, dict[str, list[int]]]:
        return {member: {topic: list(ids) for topic, ids in own.items()} for member, own in kept.items()}

    return {
        "standbys": lists(found.standbys),
        "warmups": lists(found.warmups),
        "missing_standbys": missing,
        "collisions": found.collisions,
        "standbys_proven": found.proven,
    }


def _opened(file: str) -> BinaryIO:
    if file == "-":
        return standard_input()
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise InputError("", f"cannot read {file}: {error.strerror}") from None


def _values(source: BinaryIO) -> Iterator[_Found]:
    """Yield the JSON values of the input with the lines they start on.

    If the first line is a whole value the input is taken as JSON lines and read as it comes. If not, it may be
    one value over many lines, several such values, or JSON lines with a bad first one.
    """
    lines = ((number, line) for number, line in enumerate(source, 1) if not line.isspace())
    first = next(lines, None)
    if first is None:
        raise InputError("", "the input is empty")
    # Some editors begin a file with a byte order mark.
    first = (first[0], first[1].removeprefix(BOM_UTF8))
    values = _parsed(*first)
    if values.error is None:
        yield values
        for number, line in lines:
            yield _parsed(number, line)
        return
    rest = list(lines)
    try:
        whole = (first[1] + b"".join(line for _, line in rest)).decode()
        yield from [_Found(first[0], value) for value in scenario.parse_all(whole)]
    except (InputError, UnicodeDecodeError) as error:
        # A bad first line among JSON lines: some other line then is a scenario of its own.
        if not any(line.startswith(b"{") and b'"format"' in line and not _parsed(0, line).error for _, line in rest):
            raise InputError("", f"not UTF-8: {error}" if isinstance(error, UnicodeError) else str(error)) from None
        yield values
        for number, line in rest:
            yield _parsed(number, line)


def _parsed(number: int, line: bytes) -> _Found:
    try:
        return _Found(number, scenario.parse(line.decode()))
    except UnicodeDecodeError as error:
        return _Found(number, None, InputError("", f"not UTF-8: {error.reason} at byte {error.start}"))
    except InputError as error:
        return _Found(number, None, error)


def _write_line(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def _write_table(
    group: Group, made: Plan, explanation: Explanation | None, standbys: StandbyPlan | None = None
) -> None:
    table = Table(title=None if group.name is None else plain_line(group.name))
    for column in ("member", "rack", "partitions", "which", *(("standbys",) if standbys is not None else ())):
        table.add_column(column, justify="right" if column == "partitions" else "left", overflow="fold")
    racks = {member.id: member.rack for member in group.members}
    for member, owned in made.target.items():
        count = str(sum(map(len, owned.values())))
        kept = (_listed(standbys.standbys[member]),) if standbys is not None else ()
        table.add_row(plain_line(member), plain_line(racks[member] or "-"), count, _listed(owned), *kept)
    counts = Locality.of(group, made)
    console = Console()
    console.print(table)
    console.print(f"local {counts.local}, cross {counts.cross}, unknown {counts.unknown}", highlight=False)
    if standbys is not None:
        waiting = sum(len(ids) for own in standbys.warmups.values() for ids in own.values())
        missing = sum(standbys.missing.values())
        console.print(
            f"standbys: collisions {standbys.collisions}, missing {missing}, to warm up first {waiting}",
            highlight=False,
        )
    if explanation is None:
        return
    for reason, times in sorted(Counter(entry.reason for entry in explanation.not_local).items()):
        console.print(f"not local, {reason}: {times}", highlight=False)
    for advice in explanation.advice:
        console.print(plain_line(_describe(advice)), highlight=False)


def _listed(owned: Partitions) -> Text:
    return plain_line("  ".join(f"{topic} {','.join(map(str, ids))}" for topic, ids in owned.items()))


def _describe(advice: Recommendation) -> str:
    """Put an advice into words."""
    if advice.kind == "member":
        change = f"one more member in rack {advice.rack}, subscribed to {', '.join(advice.topics)}"
    elif advice.kind == "max-skew":
        change = f"--max-skew {advice.max_skew}"
    else:
        count = sum(map(len, advice.partitions.values()))
        change = f"a replica of {count} partitions in rack {advice.rack}"
    saved = "" if advice.cost_gain == advice.gain else f", cost {advice.cost_gain:g} less"
    return f"{change}: {advice.gain} fewer across racks{saved}"
