"""Lists and counts in messages.

What is never shown of settings, wherever they are.

Warnings that are logged once.
"""

from __future__ import annotations

import logging
import pickle
from io import StringIO
from pathlib import Path

import pytest
from kafka.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    NodeNotReadyError,
)

from rackassign.cli.connection import client_config
from rackassign.clients.confluent._config import ConsumerConfig
from rackassign.errors import ConfigError
from rackassign.spark._kafka_clients import _Unused
from rackassign.spark._metadata import KafkaMetadata
from rackassign.spark._options import Options
from rackassign.spark._pull.coordinator import SplitCoordinator
from rackassign.testing._security import ClusterCertificates
from rackassign.text import (
    HIDDEN,
    Settings,
    WarnOnce,
    counted,
    describe_error,
    did_you_mean,
    is_secret,
    join_first,
    join_ids,
    shown_setting,
    without_secrets,
)


@pytest.mark.parametrize(("names", "text"), [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")])
def test_only_the_first_names_are_listed(names: str, text: str) -> None:
    assert join_first(list(names), 3) == text


def test_a_similar_name_is_suggested_in_full() -> None:
    name = "a" * 120 + "-orders"
    assert did_you_mean(f"{name}s", ["x", name]) == f'; did you mean "{name}"?'
    assert did_you_mean("orders", ["orders"]) == did_you_mean("orders", ["zzz"]) == ""


def test_numbers_of_things_and_brokers() -> None:
    assert (counted(1, "topic"), counted(0, "topic"), join_ids([3, 1])) == ("1 topic", "0 topics", "3, 1")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KafkaConnectionError("111 ECONNREFUSED"), "KafkaConnectionError: 111 ECONNREFUSED"),
        (NodeNotReadyError(), "no connection to the broker (NodeNotReadyError)"),
        (
            CoordinatorLoadInProgressError(),
            "the coordinator of the group is still starting (CoordinatorLoadInProgressError)",
        ),
        (NodeNotReadyError("node 3"), "NodeNotReadyError: node 3"),
        (GroupAuthorizationFailedError(), "GroupAuthorizationFailedError"),
        (OSError("no\nroute\x1b"), "OSError: no route\\x1b"),
        (ValueError(), "ValueError"),
        (ConfigError("group: there is none"), "group: there is none"),
    ],
)
def test_an_error_is_named_once(error: Exception, text: str) -> None:
    assert describe_error(error) == text


SECRET = "73195528"  # noqa: S105 - of nothing

SECRETS = (
    *("sasl.password", "sasl_plain_password", "ssl_password", "ssl.key.password", "kafka.sasl.jaas.config"),
    *("listener.name.a.plain.sasl.jaas.config", "ssl.key.pem", "ssl_key", "ssl.ca.pem", "ssl.certificate.pem"),
    *("ssl.keystore.password", "ssl.truststore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
    *("ssl.truststore.certificates", "oauth_cb", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret"),
    *("sasl.oauthbearer.extensions", "sasl.oauthbearer.assertion.private.key.passphrase", "sasl_oauth_token_provider"),
    *(
        "coordinatorToken",
        "coordinatortoken",
        "spark.hadoop.fs.s3a.access.key",
        "basic.auth.user.info",
        "Sasl.Password",
    ),
    *("proxy_url", "sasl.oauthbearer.assertion.private.key.pem"),
)
SHOWN = (
    *("ssl.key.location", "ssl_keyfile", "ssl.keystore.location", "ssl.keystore.type", "ssl.ca.location", "ssl_cafile"),
    *("bootstrap.servers", "sasl.username", "sasl.mechanism", "client.rack", "session.timeout.ms", "group.id"),
    *("key.deserializer", "partition.assignment.strategy", "sasl.kerberos.keytab", "sasl.oauthbearer.method"),
)


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_secret_is_known_by_its_name(name: str) -> None:
    assert is_secret(name)
    assert shown_setting(name, SECRET) == shown_setting(name, int(SECRET)) == HIDDEN
    assert repr(Settings({name: SECRET, "a": 1})) == str({name: HIDDEN, "a": 1})


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_not_is_shown(name: str) -> None:
    assert not is_secret(name)
    assert shown_setting(name, "x") == '"x"'


def test_settings_are_a_dict_in_all_else() -> None:
    settings = Settings({"sasl.password": SECRET})
    assert settings == {"sasl.password": SECRET}
    assert {**settings} == dict(settings)
    assert f"{settings}" == f"{settings!r}" == "{'sasl.password': '[hidden]'}"
    again = pickle.loads(pickle.dumps(settings))  # noqa: S301 - our own
    assert (again, repr(again)) == (settings, repr(settings))


def test_what_others_say_of_settings_is_shown_without_them() -> None:
    settings = {"sasl.password": "abc", "ssl.key.password": "abcd", "client.id": "me", "sasl.oauthbearer.config": None}
    assert without_secrets("me: bad abcd and abc", settings) == f"me: bad {HIDDEN} and {HIDDEN}"
    # A letter of every word hides nothing.
    assert without_secrets("a password", {"sasl.password": "a"}) == "a password"


def test_a_consumer_on_librdkafka_shows_none() -> None:
    told = {
        "bootstrap.servers": "k:1",
        "group.id": "g",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": SECRET,
        "ssl.key.password": SECRET,
    }
    properties = ConsumerConfig.of(told)
    assert properties.member["sasl_plain_password"] == properties.reader["sasl.password"] == SECRET
    assert SECRET not in repr(properties)
    assert "'me'" in repr(properties)
    for name in ("sasl.password", "ssl.key.password"):
        with pytest.raises(ConfigError, match=name) as refused:
            ConsumerConfig.of({**told, name: [int(SECRET)]})
        assert HIDDEN in str(refused.value)
        assert SECRET not in str(refused.value)


def test_the_spark_source_shows_none() -> None:
    told = {
        "kafka.bootstrap.servers": "k:1",
        "subscribe": "t",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'x.PlainLoginModule required username="me" password="{SECRET}";',
        "kafka.ssl.keystore.password": SECRET,
        "coordinatorHost": "h",
        "coordinatorPort": "1",
        "coordinatorToken": SECRET,
        "rackBinding": "pull",
    }
    options = Options.of(told, "batch")
    assert options.client["sasl.password"] == SECRET
    assert SECRET not in repr(options)
    assert SECRET not in repr(_Unused((("sasl.password", SECRET),), StringIO(), 0.0))


def test_what_librdkafka_says_of_a_property_has_none_of_it() -> None:
    with pytest.raises(ConfigError, match="librdkafka rejected the configuration") as refused:
        # It repeats the value of what it does not understand.
        KafkaMetadata({"bootstrap.servers": "k:1", "security.protocol": SECRET, "sasl.password": SECRET})
    assert SECRET not in str(refused.value)


def test_a_coordinator_that_is_held_does_not_show_its_token() -> None:
    with SplitCoordinator(None, "127.0.0.1") as held:  # type: ignore[arg-type]
        token = held.options["coordinatorToken"]
        assert {**held.options}["coordinatorToken"] == token
        assert token not in repr(held.options)


def test_a_file_of_properties_shows_none(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    login = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=me\nsasl.password={SECRET}\n"
    file.write_text(login)
    assert SECRET not in repr(client_config("k:1", str(file)))
    for more in (
        # A value that was broken in two.
        SECRET,
        f'"{SECRET}";',
        f"{SECRET};=",
        f"sasl.passwrd={SECRET}",
        f"sasl.jaas.config=x required password={SECRET};",
        f"ssl.key.location=-----BEGIN PRIVATE KEY----- {SECRET}",
        f"ssl.certificate.location=-----BEGIN CERTIFICATE----- {SECRET}",
    ):
        file.write_text(login + more + "\n")
        with pytest.raises(ConfigError, match=":5: ") as refused:
            client_config("k:1", str(file))
        assert SECRET not in str(refused.value)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.ca.location=a\0b\n")
    with pytest.raises(ConfigError, match=r":1: ssl\.ca\.location: .* cannot be the name of a file"):
        client_config("k:1", str(file))


def test_keys_of_a_cluster_for_tests_are_not_shown(tmp_path: Path) -> None:
    assert SECRET not in repr(ClusterCertificates(tmp_path, SECRET, "chain"))


def test_names_that_others_have_chosen_begin_no_line_and_no_escape_sequence(caplog: pytest.LogCaptureFixture) -> None:
    once = WarnOnce(logging.getLogger("rackassign.test"))
    once.warn("k", "member %s is %r: %d of %.1f", "m\nERROR all is lost\x1b[2J", ValueError("a\nb"), 3, 4.0)
    assert caplog.messages == ["member m\\nERROR all is lost\\x1b[2J is 'a\\\\nb': 3 of 4.0"]
