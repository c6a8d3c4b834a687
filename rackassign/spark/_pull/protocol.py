"""The messages between tasks, submitting processes and the coordinator, each a line of JSON.

A request begins with the token of the query. The response to an invalid request is an `ErrorResponse`.

===================== ========================================================= ======================
Request               Sender                                                    Response
===================== ========================================================= ======================
`SplitRequest`        A task that needs its next splits                         `SplitResponse`
`SubmitSplitsRequest` A process that plans a batch query, once for some splits  `SubmitSplitsResponse`
`StartBatchRequest`   The same process, after all splits                        `StartBatchResponse`
===================== ========================================================= ======================
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeVar

from rackassign.errors import ConfigError, InputError, RackassignError
from rackassign.model import TopicPartition
from rackassign.spark._splits import MAX_TOGETHER, OffsetRange, Split
from rackassign.text import short_repr

MAX_LINE_BYTES = 65_536
"""The highest number of bytes in a request."""

MAX_RESPONSE_BYTES = MAX_TOGETHER * MAX_LINE_BYTES
"""The highest number of bytes in a response: each of its splits fits into a request."""

Wait = Literal["wait"]
"""Sent in place of splits to a task that has to repeat its request later."""

MALFORMED = "malformed request"
WRONG_TOKEN = "wrong token"  # noqa: S105 - the text of an error


class InvalidRequestError(RackassignError):
    """A request is malformed, or does not have the token of the query."""


def check_reachable(host: str) -> None:
    """Reject the unspecified address (0.0.0.0 or ::), which executors cannot connect to."""
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        # The host is a name.
        return
    if unspecified:
        raise ConfigError(f"coordinatorHost: expected the address by which executors reach the driver, got {host}")


@dataclass(frozen=True, slots=True)
class CoordinatorEndpoint:
    host: str
    port: int
    token: str
    batch: int

    def __post_init__(self) -> None:
        check_reachable(self.host)

    @property
    def address(self) -> str:
        """The address as HOST:PORT, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __repr__(self) -> str:
        return f"CoordinatorEndpoint({self.address}, batch {self.batch})"


def encode_split(split: Split) -> dict[str, Any]:
    return {
        "topic": split.range.tp.topic,
        "partition": split.range.tp.partition,
        "start": split.range.start,
        "end": split.range.end,
        "racks": list(split.racks),
        "size": split.size,
        "fetch": split.fetch_bytes,
    }


def decode_split(value: Mapping[str, Any]) -> Split:
    try:
        tp = TopicPartition(str(value["topic"]), int(value["partition"]))
        offsets = OffsetRange(tp, int(value["start"]), int(value["end"]))
        return Split(offsets, tuple(value["racks"]), int(value["size"]), int(value["fetch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("split", f"malformed: {error}") from None


def _decode_splits(values: Iterable[Mapping[str, Any]]) -> tuple[Split, ...]:
    return tuple(map(decode_split, values))


def _decode_splits_or_wait(value: Any) -> tuple[Split, ...] | Wait:  # noqa: ANN401 - JSON
    return "wait" if value == "wait" else _decode_splits(value)


def _encode(value: object) -> object:
    return [encode_split(split) for split in value] if isinstance(value, tuple) else value


def _wire(name: str, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the metadata of a field that has another name in the line, or has to be read."""
    # `read` may raise a KeyError, TypeError, ValueError or RackassignError.
    return {"name": name, "read": read}


def _number(name: str) -> Callable[[object], int]:
    def read(value: object) -> int:
        if type(value) is not int:
            raise InputError(name, f"expected a number, got {short_repr(value)}")
        return value

    return read


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """The n-th request of a task for splits."""

    token: str = field(repr=False)
    batch: int
    task: int
    # From 0.
    number: int
    rack: str | None

    def __post_init__(self) -> None:
        if type(self.batch) is not int:
            raise unknown_batch(self.batch)
        if type(self.task) is not int or type(self.number) is not int:
            raise InvalidRequestError(MALFORMED)
        if not (self.rack is None or isinstance(self.rack, str)):
            raise InvalidRequestError(MALFORMED)


@dataclass(frozen=True, slots=True)
class SubmitSplitsRequest:
    """The request to add splits to a batch that is being submitted. The same request may be sent again, at any time."""

    token: str = field(repr=False)
    # The name of the batch while it is being submitted, and the number of the first of these splits within it.
    submission: str = field(metadata=_wire("offer", str))
    first: int = field(metadata=_wire("at", int))
    splits: tuple[Split, ...] = field(metadata=_wire("splits", _decode_splits))


@dataclass(frozen=True, slots=True)
class StartBatchRequest:
    """The request to start a batch whose splits have been submitted. The same request may be sent again."""

    token: str = field(repr=False)
    submission: str = field(metadata=_wire("offer", str))
    splits: int = field(metadata=_wire("count", int))
    tasks: int = field(metadata=_wire("tasks", int))
    # 0 for no limit.
    max_splits_per_task: int = field(metadata=_wire("each", int))
    steal_after_s: float = field(metadata=_wire("steal_after_s", float))


Request = SplitRequest | SubmitSplitsRequest | StartBatchRequest


@dataclass(frozen=True, slots=True)
class SplitResponse:
    """The next splits for a task, none if there are no more for it, or `wait` if it has to repeat its request later."""

    KEY: ClassVar = "splits"
    splits: tuple[Split, ...] | Wait = field(metadata=_wire("splits", _decode_splits_or_wait))


@dataclass(frozen=True, slots=True)
class SubmitSplitsResponse:
    """The response to a `SubmitSplitsRequest`: the number of splits of the batch up to the last one of the request."""

    KEY: ClassVar = "have"
    received: int = field(metadata=_wire("have", _number("have")))


@dataclass(frozen=True, slots=True)
class StartBatchResponse:
    KEY: ClassVar = "batch"
    batch: int = field(metadata=_wire("batch", _number("batch")))


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The response to a request that is invalid or cannot be fulfilled."""

    error: str


Response = SplitResponse | SubmitSplitsResponse | StartBatchResponse | ErrorResponse

ExpectedResponse = TypeVar("ExpectedResponse", SplitResponse, SubmitSplitsResponse, StartBatchResponse)
_Message = TypeVar("_Message")


def encode(message: Request | Response) -> bytes:
    """Return a message as a line, with its fields in the order in which they are declared."""
    values = {each.metadata.get("name", each.name): _encode(getattr(message, each.name)) for each in fields(message)}
    return json.dumps(values).encode() + b"\n"


def _decode(kind: type[_Message], values: Mapping[str, Any]) -> _Message:
    """Return the message of a kind; raises a KeyError, TypeError or ValueError, or what the message itself raises."""
    arguments = {}
    for each in fields(kind):  # type: ignore[arg-type] # all messages are dataclasses
        value = values[each.metadata.get("name", each.name)]
        arguments[each.name] = each.metadata["read"](value) if each.metadata else value
    return kind(**arguments)


def parse_request(line: bytes, token: str, *, accept_batches: bool) -> Request:
    """Return the request in a line, which any program may have sent. The message of an error is for the sender."""
    try:
        message = json.loads(line)
        sent = message["token"].encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidRequestError(MALFORMED) from None
    if not hmac.compare_digest(sent, token.encode()):
        raise InvalidRequestError(WRONG_TOKEN)
    try:
        if not (accept_batches and "offer" in message):
            return _decode(SplitRequest, message)
        return _decode(SubmitSplitsRequest, message) if "splits" in message else _decode(StartBatchRequest, message)
    except RackassignError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InvalidRequestError(MALFORMED) from None


def parse_response(line: bytes, expected: type[ExpectedResponse]) -> ExpectedResponse | ErrorResponse:
    """Return the response in a line; a ValueError or RecursionError if the sender is probably no coordinator."""
    message = json.loads(line)
    if not isinstance(message, dict) or not message.keys() & {expected.KEY, "error"}:
        raise ValueError(f"expected the response of a coordinator, got {short_repr(message)}")
    return ErrorResponse(str(message["error"])) if "error" in message else _decode(expected, message)


def unknown_batch(batch: object) -> ConfigError:
    return ConfigError(f"batch {short_repr(batch)} has ended or does not exist")
