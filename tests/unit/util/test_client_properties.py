"""Logins in `sasl.jaas.config` are read as Java reads them."""

from __future__ import annotations

import pytest

from rackassign.errors import ConfigError
from rackassign.util.client_properties import jaas_login


@pytest.mark.parametrize(
    ("options", "credentials"),
    [
        # Recorded from JaasContext of kafka-clients 4.0.2. None is an error there.
        (r'username="me" password="a\"b";', ("me", 'a"b')),
        (r"""username='me' password='s3 cr"et';""", ("me", 's3 cr"et')),
        (r"username=me password=secret;", ("me", "secret")),
        (r"username = me password = 'x' ;", ("me", "x")),
        (r"""username='it\'s' password="c:\\d";""", ("it's", "c:\\d")),
        (r"""username="a\tb" password='\101\7x';""", ("a\tb", "A\x07x")),
        (r"username=me password=se-cr_e$t.9;", ("me", "se-cr_e$t.9")),
        (r"username=me password=9secret;", None),
        (r"username=me password=pa!ss;", None),
        (r"username=me password=pa/ss;", None),
        (r"username=mé password=-x;", None),
        (r"""username="me" password="it's";""", ("me", "it's")),
        (r"""username="username='x'" password='password="y"';""", ("username='x'", 'password="y"')),
        (r'username=me password="";', ("me", "")),
        (r"""username="m\e" password='\477';""", ("me", "'7")),
        (r'username="me";', None),
    ],
)
def test_logins_are_read_as_java_reads_them(options: str, credentials: tuple[str, str] | None) -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    if credentials is None:
        with pytest.raises(ConfigError, match=r'^jaas: expected username="\.\.\." and password="\.\.\." in it$'):
            jaas_login("jaas", login + options)
    else:
        assert tuple(jaas_login("jaas", login + options).values()) == credentials


@pytest.mark.parametrize("flag", ['tokenauth="true"', "tokenauth = TRUE", "tokenauth='true'"])
def test_a_delegation_token_is_found_in_any_quotes(flag: str) -> None:
    login = "x.ScramLoginModule required username='id' password=\"tokenauth='true'\""
    assert jaas_login("jaas", f'{login} tokenauth="false";')["sasl.username"] == "id"
    with pytest.raises(ConfigError, match=r"^jaas: tokenauth: only Java's client can log in with"):
        jaas_login("jaas", f"{login} {flag};")
