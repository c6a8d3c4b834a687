"""Functions of the user that return tokens, by name."""

from __future__ import annotations

import base64
import logging
import math
import re
import sys
import time
from types import ModuleType
from typing import Any

import pytest

from rackassign.errors import ConfigError, MissingExtraError
from rackassign.spark import msk
from rackassign.spark._client_config import TOKEN_CALLBACK
from rackassign.spark._kafka_clients import _with_function, try_token_provider
from rackassign.spark._options import Options
from rackassign.spark._range_reader import check_properties

SECRET = "a-token-that-is-secret"  # noqa: S105 - of no use anywhere
LATER = 4_000_000_000


@pytest.fixture
def company(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("company_tokens")
    monkeypatch.setitem(sys.modules, "company_tokens", module)
    return module


def callback(name: str = "company_tokens:get") -> Any:
    return _with_function({TOKEN_CALLBACK: name, "group.id": "g"})[TOKEN_CALLBACK]


@pytest.mark.parametrize("name", ["company_tokens:get", "company_tokens.get"])
def test_a_function_is_imported_by_its_name_and_gets_the_configuration(company: Any, name: str) -> None:
    later = time.time() + 60
    company.get = lambda config: [config, later, "alice", {"a": "b"}]
    assert callback(name)("words") == ("words", later, "alice", {"a": "b"})


def test_without_a_function_properties_stay_as_they_are() -> None:
    assert _with_function({"group.id": "g"}) == {"group.id": "g"}


@pytest.mark.parametrize(
    "name", ["get", "company:", ":get", "a b:get", "company:get:it", "../x:get", "company:get()", ""]
)
def test_what_names_no_function_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigError, match="tokenProvider: expected the name of a function"):
        options(**OAUTH, tokenProvider=name)


def test_a_function_that_cannot_be_imported_is_named(company: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"no_such_module:get cannot be imported: .*the driver and all executors need it"
    ):
        callback("no_such_module:get")
    with pytest.raises(ConfigError, match="company_tokens:missing cannot be imported"):
        callback("company_tokens:missing")
    company.constant = 3
    with pytest.raises(ConfigError, match="company_tokens:constant is not a function"):
        callback("company_tokens:constant")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "expected .token, expiry time"),
        (SECRET, "expected .token, expiry time"),
        ((SECRET,), "expected .token, expiry time"),
        ((b"bytes", 1), "got a value of type bytes"),
        (("", 1), "expected a token as a string"),
        ((SECRET, None), "expected the expiry time in seconds since 1970, got null"),
        ((SECRET, math.nan), "expected the expiry time in seconds since 1970"),
        ((SECRET, True), "expected the expiry time in seconds since 1970"),
        ((SECRET, 1_795_000_000_000), "1795000000000: these are milliseconds"),
        ((SECRET, 1_000_000), "the token ran out"),
        # With these librdkafka only reports that it has no token, after ten seconds.
        ((SECRET + "\x01", LATER), "the token has characters that cannot be sent"),
        ((SECRET + "\xe9", LATER), "the token has characters that cannot be sent"),
        ((SECRET, LATER, None), "expected a principal as a string, got a value of type NoneType"),
        ((SECRET, LATER, "alice", None), "expected a dict of extensions, got a value of type NoneType"),
        ((SECRET, LATER, "alice", ["a"]), "expected a dict of extensions, got a value of type list"),
        ((SECRET, LATER, "alice", {"a": 1}), "extension a: expected a string"),
        ((SECRET, LATER, "alice", {"a": "\x01"}), "extension a: expected a string"),
        ((SECRET, LATER, "alice", {"a1": "b"}), 'expected names of extensions of letters, other than auth, got "a1"'),
        ((SECRET, LATER, "alice", {"auth": "b"}), 'expected names of extensions of letters, .* got "auth"'),
    ],
)
def test_a_wrong_answer_is_an_error_that_names_the_function_and_not_the_token(
    company: Any, caplog: pytest.LogCaptureFixture, answer: object, problem: str
) -> None:
    company.get = lambda _: answer
    with caplog.at_level(logging.WARNING), pytest.raises(ConfigError, match=problem):
        callback()("")
    (message,) = caplog.messages
    assert "tokenProvider: company_tokens:get" in message
    assert SECRET not in message
    with pytest.raises(ConfigError, match="company_tokens:get: .*" + problem):
        try_token_provider({TOKEN_CALLBACK: "company_tokens:get"})


def test_an_error_of_the_function_is_passed_on_and_logged(company: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: str) -> None:
        raise PermissionError("no role")

    company.get = fails
    with caplog.at_level(logging.WARNING), pytest.raises(PermissionError):
        callback()("")
    assert "company_tokens:get failed: PermissionError: no role" in caplog.text
    with pytest.raises(ConfigError, match="tokenProvider: company_tokens:get failed: PermissionError: no role"):
        try_token_provider({TOKEN_CALLBACK: "company_tokens:get"})
    try_token_provider({})


def options(**more: str) -> Options:
    return Options.of({"kafka.bootstrap.servers": "k:1", "subscribe": "t", **more}, "batch")


OAUTH = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}


def test_the_function_goes_where_librdkafka_expects_it() -> None:
    chosen = options(**OAUTH, tokenProvider="company_tokens:get")
    assert chosen.client[TOKEN_CALLBACK] == "company_tokens:get"
    assert "company_tokens" not in repr(chosen.client)
    # librdkafka's own ways to get a token.
    for by_itself in (
        {"kafka.sasl.oauthbearer.method": "oidc"},
        {"kafka.enable.sasl.oauthbearer.unsecure.jwt": "true"},
    ):
        assert TOKEN_CALLBACK not in options(**OAUTH, **by_itself).client


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"tokenProvider": "a:b"}, "tokenProvider: only for kafka.sasl.mechanism=OAUTHBEARER, but that is not set"),
        ({"tokenProvider": "a:b", "kafka.sasl.mechanism": "PLAIN"}, 'OAUTHBEARER, but that is "PLAIN"'),
        (OAUTH, "OAUTHBEARER needs tokens: set tokenProvider"),
        ({"kafka.sasl.mechanism": "AWS_MSK_IAM"}, "use OAUTHBEARER with tokenProvider=rackassign.spark.msk:token"),
        ({"kafka.oauth_cb": "a:b"}, "kafka.oauth_cb: cannot be set: use tokenProvider"),
    ],
)
def test_half_of_a_configuration_for_tokens_is_refused(more: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        options(**more)


class TestMsk:
    """The ready-made function for Amazon MSK, whose signature needs no network."""

    @pytest.fixture(autouse=True)
    def credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    def test_a_token_is_signed_for_the_region_and_runs_out_within_the_hour(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for config, variable, region in (
            ("region=eu-west-1", "", "eu-west-1"),
            ("", "eu-central-1", "eu-central-1"),
            ("region=eu-west-1", "eu-central-1", "eu-west-1"),
        ):
            monkeypatch.setenv("AWS_REGION", variable)
            signed, expires = callback("rackassign.spark.msk:token")(config)
            decoded = base64.urlsafe_b64decode(signed + "=" * (-len(signed) % 4)).decode()
            assert decoded.startswith(f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect")
            assert SECRET not in decoded
            assert 0 < expires - time.time() <= 3600

    @pytest.mark.parametrize("config", ["eu-west-1", "zone=eu-west-1", "region=a,role=b"])
    def test_another_configuration_is_refused(self, config: str) -> None:
        with pytest.raises(ConfigError, match="expected region=NAME"):
            msk.token(config)

    def test_without_a_region_it_says_where_to_set_one(self) -> None:
        with pytest.raises(
            ConfigError, match=r"no AWS region: set kafka.sasl.oauthbearer.config=region=NAME, or AWS_REGION"
        ):
            msk.token("")

    def test_without_the_extra_it_names_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'rackassign\[msk\]'"):
            msk.token("region=eu-west-1")


@pytest.mark.parametrize(
    ("client", "problem"),
    [
        ({"receive.message.max.bytes": "10000"}, "`receive.message.max.bytes` must be >= `fetch.max.bytes`"),
        ({"ssl.endpoint.identification.algorithm": "x", "sasl.password": "secret"}, "Invalid value"),
    ],
)
def test_what_only_a_consumer_rejects_is_rejected_before_there_are_tasks(client: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match="librdkafka rejected the configuration: .*" + re.escape(problem)) as caught:
        check_properties({"bootstrap.servers": "127.0.0.1:1", **client}, 4 * 2**20)
    assert "secret" not in str(caught.value)


def test_checking_properties_needs_no_broker_and_no_token() -> None:
    tokens = {"sasl.mechanism": "OAUTHBEARER", "security.protocol": "SASL_PLAINTEXT", TOKEN_CALLBACK: "no.such.module"}
    check_properties({"bootstrap.servers": "127.0.0.1:1", "isolation.level": "read_committed", **tokens}, 1)
