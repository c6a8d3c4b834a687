"""The librdkafka clients of the driver and of executors: tokens of the user, and pools of consumers and producers.

With the mechanism OAUTHBEARER a client needs a token at the start and a new one before each runs out. librdkafka
requests them with a callback. A callback cannot be sent to executors and is therefore an option by name
(`tokenProvider`), which each process imports.

Clients are reused by the tasks of a worker process. A worker process of Spark reads one range after the other. The
cost of a consumer (its threads, its connections and the metadata of the topic) is paid once for all ranges that are
read with the same settings. Metadata have all partitions of a topic and any broker responds, in most cases one in
another rack. So they are requested once for each consumer and topic. librdkafka requests them again when a broker
reports that a leader has moved, when a connection breaks, and every few minutes.
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rackassign.errors import ConfigError, KafkaUnavailableError
from rackassign.model import TopicPartition
from rackassign.spark._client_config import TOKEN_CALLBACK
from rackassign.text import describe_error, short_repr, strip_control_chars, without_secrets

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient


log = logging.getLogger(__name__)

_Client = TypeVar("_Client")
_Value = TypeVar("_Value")

Token = tuple[Any, ...]
"""The token, the time at which it runs out in seconds since 1970, and optionally a principal and extensions."""

_MOST_S = 1e11
"""Later times, in the year 5138, are meant as milliseconds."""

_LENGTHS = (2, 3, 4)

# What librdkafka accepts (RFC 7628). It names no reason for a rejection: the client only times out.
_SENDABLE = re.compile(r"[\x20-\x7e\t\r\n]*")
_EXTENSION = re.compile(r"(?!auth\Z)[A-Za-z]+")


def try_token_provider(properties: Mapping[str, Any]) -> None:
    """Call the function that returns tokens once, if there is one: librdkafka retries errors of it until a timeout."""
    name = properties.get(TOKEN_CALLBACK)
    if name is not None:
        try:
            _provide(name, _imported(name), str(properties.get("sasl.oauthbearer.config", "")))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"tokenProvider: {name} failed: {describe_error(error)}") from error


def new_consumer(properties: Mapping[str, Any]) -> Consumer:
    from confluent_kafka import Consumer  # noqa: PLC0415 - loaded on first use

    return _created(Consumer, properties)


def new_producer(properties: Mapping[str, Any]) -> Producer:
    """Return a producer that writes locally if it has a rack."""
    from confluent_kafka import Producer  # noqa: PLC0415 - loaded on first use

    if "client.rack" not in properties:
        return _created(Producer, properties)
    from rackassign.clients.confluent import RackAwareProducer  # noqa: PLC0415 - loaded on first use

    return _created(RackAwareProducer, properties)


def check_producer(properties: Mapping[str, Any]) -> None:
    """Create a producer and release it: librdkafka rejects some properties for a producer only."""
    # It would warn that it cannot connect.
    new_producer({**without_brokers(properties), "log_level": 0})


def without_brokers(properties: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return the properties of a client that does not connect, and so needs no token."""
    return {name: value for name, value in properties.items() if name not in {"bootstrap.servers", TOKEN_CALLBACK}}


def new_admin_client(properties: Mapping[str, Any]) -> AdminClient:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - loaded on first use

    return _created(AdminClient, properties)


def _created(kind: Callable[[dict[str, Any]], _Client], properties: Mapping[str, Any]) -> _Client:
    """Return a client of a kind; errors of librdkafka are raised as those of this module, without secrets."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - loaded on first use

    try:
        return kind(_with_function(properties))
    except KafkaException as error:
        reason = strip_control_chars(without_secrets(error.args[0].str().strip(), properties))
        if error.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED:
            # confluent-kafka waits for a first token.
            raise KafkaUnavailableError(f"tokenProvider: {reason}") from None
        raise ConfigError(f"kafka.*: librdkafka rejected the configuration: {reason}") from None


def _with_function(properties: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(properties)
    if TOKEN_CALLBACK in given:
        given[TOKEN_CALLBACK] = _checked(given[TOKEN_CALLBACK])
    return given


def _checked(name: str) -> Callable[[str], Token]:
    """Import a function, and return it with a check of what it returns."""
    # librdkafka reports an error in a callback as a failed login, and a wrong expiry time not at all: the connection
    # then fails when the broker rejects the token, or no new one is ever requested.
    provide = _imported(name)

    def token(config: str) -> Token:
        try:
            return _provide(name, provide, config)
        except Exception as error:
            # librdkafka's message about it names no function.
            log.warning("tokenProvider: %s failed: %s", name, describe_error(error))
            raise

    return token


def _provide(name: str, provide: Callable[[str], Any], config: str) -> Token:
    answer = provide(config)
    problem = _problem_of(answer)
    if problem:
        raise ConfigError(f"tokenProvider: {name}: {problem}")
    return tuple(answer)


def _imported(name: str) -> Callable[[str], Any]:
    module, _, function = name.replace(":", ".").rpartition(".")
    try:
        provide = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise ConfigError(
            f"tokenProvider: {name} cannot be imported: {describe_error(error)}; the driver and all executors need it"
        ) from error
    if not callable(provide):
        raise ConfigError(f"tokenProvider: {name} is not a function")
    return provide  # type: ignore[no-any-return]


def _problem_of(answer: object) -> str:
    """Return what is wrong with an answer, without the token; empty if nothing is."""
    if not isinstance(answer, (tuple, list)) or len(answer) not in _LENGTHS:
        return "expected (token, expiry time in seconds), and optionally a principal and extensions"
    token, expires = answer[:2]
    if not isinstance(token, str) or not token:
        return f"expected a token as a string, got a value of type {type(token).__name__}"
    if not _SENDABLE.fullmatch(token):
        return "the token has characters that cannot be sent: expected ASCII without control characters"
    if isinstance(expires, bool) or not isinstance(expires, (int, float)) or not math.isfinite(expires):
        return f"expected the expiry time in seconds since 1970, got {short_repr(expires)}"
    if expires >= _MOST_S:
        return f"expected the expiry time in seconds since 1970, got {expires:.0f}: these are milliseconds"
    if expires <= time.time():
        return f"the token ran out {time.time() - expires:.0f} s ago"
    for principal in answer[2:3]:
        if not isinstance(principal, str):
            return f"expected a principal as a string, got a value of type {type(principal).__name__}"
    return next(map(_problem_of_extensions, answer[3:]), "")


def _problem_of_extensions(extensions: object) -> str:
    if not isinstance(extensions, dict):
        return f"expected a dict of extensions, got a value of type {type(extensions).__name__}"
    for name, value in extensions.items():
        if not (isinstance(name, str) and _EXTENSION.fullmatch(name)):
            return f"expected names of extensions of letters, other than auth, got {short_repr(name)}"
        if not (isinstance(value, str) and _SENDABLE.fullmatch(value)):
            return f"extension {name}: expected a string of ASCII without control characters"
    return ""


IDLE_S = 30.0
"""Seconds that an unused client is kept: less than the minute for which Spark keeps an idle worker."""

MAX_UNUSED = 4
"""Clients that are kept. Settings within a query differ by the fetch size only, which has few values at a time."""


class _Closeable(Protocol):
    def close(self) -> object: ...


_Pooled = TypeVar("_Pooled", bound=_Closeable)


@dataclass(frozen=True, slots=True)
class _Unused(Generic[_Pooled]):
    # Contains passwords.
    key: tuple[tuple[str, Any], ...] = field(repr=False)
    client: _Pooled
    since: float


class ClientPool(Generic[_Pooled]):
    """A pool that lends clients and keeps returned ones for a while. It may be used from any thread."""

    def __init__(
        self, new: Callable[[Mapping[str, Any]], _Pooled], idle_s: float = IDLE_S, max_unused: int = MAX_UNUSED
    ) -> None:
        self._new = new
        self._idle_s = idle_s
        self._max_unused = max_unused
        self._unused: list[_Unused[_Pooled]] = []
        self._sweeping = False
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, settings: Mapping[str, Any]) -> Iterator[_Pooled]:
        """Lend a client with these settings; it is closed if the block fails."""
        key = tuple(sorted(settings.items()))
        client = self._take(key) or self._new(settings)
        try:
            yield client
        except BaseException:
            # Its fetched and pending records belong to no other task, and the client itself may have failed.
            client.close()
            raise
        self._keep(_Unused(key, client, time.monotonic()))

    def close(self) -> None:
        """Close all unused clients."""
        self._close_all_but(lambda _: False)

    def _take(self, key: tuple[tuple[str, Any], ...]) -> _Pooled | None:
        with self._lock:
            for number, unused in enumerate(self._unused):
                if unused.key == key:
                    return self._unused.pop(number).client
        return None

    def _keep(self, unused: _Unused[_Pooled]) -> None:
        with self._lock:
            self._unused.append(unused)
            retained = self._unused[-self._max_unused :]
            start_sweeper, self._sweeping = not self._sweeping, True
        self._close_all_but(lambda each: each in retained)
        if start_sweeper:
            self._sweep_later()

    def _sweep_later(self) -> None:
        sweeper = threading.Timer(self._idle_s, self._sweep)
        # A daemon thread does not delay the end of the worker.
        sweeper.daemon = True
        sweeper.start()

    def _sweep(self) -> None:
        oldest = time.monotonic() - self._idle_s
        self._close_all_but(lambda each: each.since > oldest)
        with self._lock:
            self._sweeping = bool(self._unused)
            again = self._sweeping
        if again:
            self._sweep_later()

    def _close_all_but(self, keep: Callable[[_Unused[_Pooled]], bool]) -> None:
        with self._lock:
            removed = [each for each in self._unused if not keep(each)]
            self._unused = [each for each in self._unused if keep(each)]
        for each in removed:
            # Closing takes as long as the connections need, so it is not done under the lock.
            each.client.close()


class PooledConsumer:
    """A consumer with the partitions whose leaders it has requested."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.consumer = new_consumer(settings)
        self._led: set[TopicPartition] = set()

    def request_leaders(self, tps: Iterable[TopicPartition], timeout_s: float) -> None:
        """Request the leaders of the topics of partitions whose leader the consumer does not know."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

        # Of a topic that is new to a consumer, librdkafka itself asks only once a second.
        # What fails here fails when the partitions are read, where it is reported.
        for topic in sorted({tp.topic for tp in tps if tp not in self._led}):
            with suppress(KafkaException):
                partitions = self.consumer.list_topics(topic, timeout_s).topics[topic].partitions
                self._led.update(TopicPartition(topic, each.id) for each in partitions.values() if each.leader >= 0)

    def close(self) -> None:
        self.consumer.close()


class ConsumerPool(ClientPool[PooledConsumer]):
    def __init__(self, idle_s: float = IDLE_S, max_unused: int = MAX_UNUSED) -> None:
        super().__init__(PooledConsumer, idle_s, max_unused)

    @contextmanager
    def borrow(
        self, settings: Mapping[str, Any], tps: Iterable[TopicPartition] = (), timeout_s: float = 0.0
    ) -> Iterator[Consumer]:
        """Lend a consumer with these settings and without an assignment; it is closed if the block fails."""
        with self.lend(settings) as pooled:
            pooled.request_leaders(tps, timeout_s)
            yield pooled.consumer
            pooled.consumer.unassign()


@functools.cache
def consumers_of_this_process() -> ConsumerPool:
    return ConsumerPool()


_LEADERS_S = 5.0
"""So long records of a task wait in all for leaders of topics, as those of Java's producer do for metadata."""


class PooledProducer:
    """A producer, with the first record that it did not deliver: topic, partition and reason."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.failures = failures = list[tuple[str, int, str]]()
        self._problems = problems = list[str]()

        # Not methods: the producer refers to them, and would refer to itself.
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None and not failures:
                # A record that waits for a connection or a login only times out.
                more = problems if error.code() == error._MSG_TIMED_OUT else []  # noqa: SLF001 - its public name
                failures.append((message.topic() or "", message.partition() or 0, "; ".join([error.str(), *more])))

        def failed(error: KafkaError) -> None:
            if error.code() != error._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
                problems[:] = [without_secrets(error.str(), settings)]

        # Of a record that is delivered nothing is called.
        callbacks = {"on_delivery": delivered, "error_cb": failed, "delivery.report.only.error": True}
        self.producer = new_producer({**settings, **callbacks})
        self._led: set[str] = set()
        self._updated: set[str] = set()
        self._patience_s = 0.0

    def begin(self) -> None:
        """Forget what has failed for other tasks."""
        self._problems.clear()
        self._updated.clear()
        self._patience_s = _LEADERS_S

    def request_leaders(self, topics: Iterable[str]) -> None:
        """Wait for the leaders of topics, if the producer chooses by them; until it knows them, records cross racks."""
        await_leaders = getattr(self.producer, "await_leaders", None)
        if await_leaders is not None:
            for topic in sorted(set(topics) - self._led):
                before = time.monotonic()
                await_leaders(topic, max(0.0, self._patience_s))
                self._patience_s -= time.monotonic() - before
                self._led.add(topic)

    def update(self, topic: str, refusal: KafkaError) -> bool:
        """Request the partitions of a topic, if a record was refused as the producer does not know its partition.

        Returns:
            Whether they are new, so that the record may be sent again; a task requests them once.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - loaded on first use

        # librdkafka requests them every five minutes.
        if refusal.code() != refusal._UNKNOWN_PARTITION or topic in self._updated:  # noqa: SLF001 - its public name
            return False
        self._updated.add(topic)
        with suppress(KafkaException):
            self.producer.list_topics(topic, _LEADERS_S)
        return True

    def close(self) -> None:
        # What is queued then belongs to a task that has failed.
        self.producer.purge()
        self.producer.flush()


@functools.cache
def producers_of_this_process() -> ClientPool[PooledProducer]:
    return ClientPool(PooledProducer)
