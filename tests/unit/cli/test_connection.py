"""How commands are told where Kafka is."""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.errors import (
    ClusterAuthorizationFailedError,
    IllegalSaslStateError,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaTimeoutError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
)

from rackassign.admin.admin_client import (
    REFUSALS,
    AuthorizationError,
    check_authorized,
    group_resource,
    requires,
    topic_resource,
)
from rackassign.cli import connection
from rackassign.cli.app import run
from rackassign.cli.connection import admin_client, client_config
from rackassign.errors import ConfigError, KafkaUnavailableError


@pytest.fixture
def pem(tmp_path: Path) -> str:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\n")
    return str(file)


def read(tmp_path: Path, text: str) -> dict[str, object]:
    file = tmp_path / "client.properties"
    file.write_text(text)
    config = client_config("h:1", str(file))
    assert config.pop("bootstrap_servers") == ["h:1"]
    return config


def test_bootstrap_alone() -> None:
    assert client_config("a:9092, b:1,[::1]:2") == {"bootstrap_servers": ["a:9092", "b:1", "[::1]:2"]}


@pytest.mark.parametrize(
    "bad",
    ["", "host", "host:", ":9092", "h:0", "h:65536", "h:-1", "h:1,", "h:٣", "a:1,b", "a:1 b:2", f"h:{'1' * 5000}"],
)
def test_bad_bootstrap_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="bootstrap-server: expected HOST:PORT"):
        client_config(bad)


def test_the_file_of_a_java_client(tmp_path: Path, pem: str) -> None:
    config = read(
        tmp_path,
        f"""# how to come in
! the same
security.protocol = SASL_SSL
sasl.mechanism: SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
   username="me" \\
   password="a\\\\"b;=c";
ssl.truststore.type=PEM
ssl.truststore.location={pem}
ssl.keystore.location={pem}
ssl.key.password=
ssl.endpoint.identification.algorithm=
""",
    )
    assert config == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": 'a"b;=c',
        "ssl_cafile": pem,
        "ssl_certfile": pem,
        "ssl_password": "",
        "ssl_check_hostname": False,
    }


def test_the_file_of_librdkafka(tmp_path: Path, pem: str) -> None:
    text = "security.protocol=sasl_ssl\nsasl.mechanisms=PLAIN\nsasl.username=me\nsasl.password=a b#c\n"
    assert read(tmp_path, f"{text}ssl.ca.location={pem}") == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "a b#c",
        "ssl_cafile": pem,
    }


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_only_ends_of_lines_end_a_value(tmp_path: Path, inside: str, end: str) -> None:
    lines = ["sasl.mechanism=PLAIN", "sasl.username=me", f"sasl.password=a{inside}sasl.username=b", ""]
    (tmp_path / "client.properties").write_bytes(end.join(lines).encode())
    config = client_config("h:1", str(tmp_path / "client.properties"))
    assert (config["sasl_plain_username"], config["sasl_plain_password"]) == ("me", f"a{inside}sasl.username=b")


def test_escapes_are_those_of_java(tmp_path: Path) -> None:
    text = "sasl.mechanism=PLAIN\nsasl.username = m\\u0065 \n# none\nsasl.password:\\\n  a\\tb\\\\c\\=\\:\\d\n"
    config = read(tmp_path, text)
    assert (config["sasl_plain_username"], config["sasl_plain_password"]) == ("me", "a\tb\\c=:d")


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "\n  \n# nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\nacks=all", r':2: unknown property "acks"'),
        ("= 3", ":1: expected a property and its value"),
        ("sasl.mechanism=PLAIN\n\nsasl.password=a\\\n\\u12", ":3: Invalid"),
        ("security.protocol=TLS", ':1: security.protocol: expected one of PLAINTEXT, .*, got "TLS"'),
        ("sasl.mechanism=OAUTHBEARER", ":1: sasl.mechanism: expected one of PLAIN, "),
        (
            'sasl.jaas.config=x required username="id" password="hmac" tokenauth="true";',
            ":1: sasl.jaas.config: tokenauth: only Java's client can log in with a delegation token",
        ),
        ("sasl.jaas.config=x required user=me;", ":1: sasl.jaas.config: expected username="),
        ("ssl.truststore.type=JKS", ":1: ssl.truststore.type: expected one of PEM"),
        ("ssl.ca.location=/nowhere", ":1: ssl.ca.location: cannot read /nowhere: No such file"),
        ("security.protocol=SASL_SSL", "SASL_SSL needs sasl.mechanism"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=me", "PLAIN needs sasl.username and"),
        ("security.protocol \\", ":1: security.protocol: expected one of"),
    ],
)
def test_bad_lines_are_refused_with_their_number(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_a_store_that_is_not_pem_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ConfigError, match=r"ssl.truststore.location: .* is not PEM"):
        read(tmp_path, f"ssl.truststore.location={store}")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read /nowhere: No such file"):
        client_config("h:1", "/nowhere")
    file = tmp_path / "latin"
    file.write_bytes(b"sasl.password=\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        client_config("h:1", str(file))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["--bootstrap-server", "here", "--group", "g"],
            'bootstrap-server: expected HOST:PORT, or several separated by commas, got "here"',
        ),
        (
            ["--bootstrap-server", "h:99999", "--group", "g"],
            'bootstrap-server: expected HOST:PORT with a port from 1 to 65535, got "h:99999"',
        ),
        (["--bootstrap-server", "h:1", "--group", ""], "group: expected the name of a group"),
        (
            ["--bootstrap-server", "h:1", "--group", "g", "--command-config", "/no"],
            "cannot read /no: No such file or directory",
        ),
        (
            ["--bootstrap-server", "h:1", "--group", "g", "--output", "xml"],
            "output must be one of table, json, got 'xml'",
        ),
        (["--group", "g"], "Missing option '--bootstrap-server'."),
        (
            ["--bootstrap-server", "h:1", "--group", "g", "--observe-seconds", "inf"],
            "observe-seconds: expected seconds, at most 86400 (a day), got inf",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *words]) == 2
    assert capsys.readouterr() == ("", f"rackassign: {problem}\n")


class Refusing:
    """An admin client that is let in."""

    def __init__(self, **_: object) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ClusterAuthorizationFailedError("of a request of many lines"),
            "Kafka at h:1 does not allow it: ClusterAuth.*r",
        ),
        (AuthorizationError("ALTER", "the cluster"), "not allowed: ALTER on the cluster"),
        (KafkaConnectionError("it has gone"), "Kafka at h:1 does not respond: .*it has gone"),
    ],
)
def test_what_a_broker_refuses_is_told_apart(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackassign.cli.connection.KafkaAdminClient", Refusing)
    with pytest.raises(KafkaUnavailableError) as raised, admin_client("h:1"):
        raise error
    assert re.fullmatch(told, str(raised.value))


def test_a_permission_that_is_missing_is_named() -> None:
    for kind in (*REFUSALS, KafkaConnectionError):
        with (
            pytest.raises(AuthorizationError if kind in REFUSALS else KafkaConnectionError),
            requires("READ", "group g"),
        ):
            raise kind
    check_authorized(None, "READ", "group g")
    for fine in (0, 3, KafkaConnectionError, KafkaConnectionError()):
        check_authorized(fine, "READ", "group g")
    for refusal in (29, 30, 31, 53, 65, *REFUSALS, REFUSALS[0]()):
        with pytest.raises(AuthorizationError, match=r"^not allowed: READ on group g$"):
            check_authorized(refusal, "READ", "group g")


def test_resources_are_named_in_one_line() -> None:
    assert topic_resource(["b", "a", "b"]) == "topics a, b"
    assert topic_resource(["x"]) == "topic x"
    assert topic_resource(f"t{i}" for i in range(9)) == "topics t0, t1, t2 and 6 more"
    assert group_resource("g\n1") == r"group g\n1"


def test_a_state_file_that_cannot_be_read_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"format": "another"}')
    assert run(["audit", "--bootstrap-server", "h:1", "--state-file", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"rackassign: {file} is not a state file of rackassign: ")


def test_errors_that_the_client_logs_are_not_kept_while_a_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rackassign.cli.connection.KafkaAdminClient", Refusing)
    # Otherwise pytest keeps them.
    monkeypatch.setattr(logging.getLogger("kafka"), "propagate", False)
    logged: list[weakref.ref[KafkaConnectionError]] = []

    def log() -> None:
        error = KafkaConnectionError("a broker is down")
        logged.append(weakref.ref(error))
        logging.getLogger("kafka.net.manager").error("failed: %s", error)

    with admin_client("h:1"):
        for _ in range(3):
            log()
        # An exporter that runs for days would have an error for each attempt to reach a broker.
        assert [error() for error in logged] == [None] * 3
    assert capsys.readouterr().err == ""


def test_another_admin_client_replaces_the_one_in_use_once_it_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    answers = iter(["first", "", "second"])

    @contextmanager
    def connect(bootstrap: str, file: str) -> Iterator[str]:
        assert (bootstrap, file) == ("h:1", "f")
        name = next(answers)
        if not name:
            raise KafkaUnavailableError("away")
        events.append(f"open {name}")
        yield name
        events.append(f"close {name}")

    monkeypatch.setattr(connection, "admin_client", connect)
    with connection.Reconnection("h:1", "f", lambda admin: events.append(f"use {admin}")) as reconnect:
        reconnect()
        with pytest.raises(KafkaUnavailableError, match="away"):
            reconnect()
        reconnect()
    assert events == ["open first", "use first", "open second", "use second", "close first", "close second"]


UNABLE = KafkaTimeoutError("Unable to bootstrap")


@pytest.mark.parametrize(
    ("logged", "raised", "told"),
    [
        # A broker that rejects a client may close the connection first, and explain that only at the next attempt.
        pytest.param(
            [KafkaConnectionError("socket disconnected")],
            SaslAuthenticationFailedError("Authentication failed: Invalid username or password"),
            "refuses the request: .*Authentication failed",
            id="a rejection after a lost connection",
        ),
        pytest.param(
            [KafkaConnectionError("socket disconnected"), RequestTimedOutError("Request timed out after 39 ms")],
            UNABLE,
            "does not respond: .*socket disconnected; brokers disconnect clients whose login or security.protocol is"
            " wrong",
            id="a lost connection",
        ),
        # The alert of a TLS listener to a client without TLS.
        pytest.param(
            [InvalidReceiveError("Invalid frame length: 352518912")],
            UNABLE,
            "Invalid frame length: .*security.protocol is wrong, or the port is that of another service",
            id="an answer that is not Kafka's",
        ),
        pytest.param(
            [IllegalSaslStateError()],
            UNABLE,
            "refuses the request: .*IllegalSaslStateError: the listener takes no login; check security.protocol$",
            id="a listener without login",
        ),
        pytest.param(
            [KafkaConnectionError("Handshake failed: EOF")],
            UNABLE,
            "does not respond: .*Handshake failed: EOF; listeners without TLS fail .*protocol$",
            id="a listener without TLS",
        ),
    ],
)
def test_a_client_that_cannot_connect_is_told_why_that_may_be(
    logged: list[Exception], raised: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: object) -> None:
        for error in logged:
            logging.getLogger("kafka.net.manager").warning("failed: %s", error)
        raise raised

    monkeypatch.setattr("rackassign.cli.connection.KafkaAdminClient", refused)
    with pytest.raises(KafkaUnavailableError, match=told), admin_client("127.0.0.1:1"):
        pass
