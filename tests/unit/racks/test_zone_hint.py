"""Client IDs with the zone in them, in the form of each vendor."""

from __future__ import annotations

from enum import Enum
from typing import Any
from urllib.parse import parse_qs

import pytest

from rackassign import client_id_with_zone
from rackassign.assignor.member import resolve_rack
from rackassign.errors import ConfigError


@pytest.mark.parametrize(
    ("vendor", "client_id", "expected"),
    [
        ("automq", "app 1", "automq_az=use1-az1&automq_client_id=app%201"),
        ("bufstream", "app", "app,zone=use1-az1"),
        ("bufstream", "app;host_override=local.dev", "app;host_override=local.dev;zone=use1-az1"),
        ("inkless", "app", "app,diskless_az=use1-az1"),
        ("warpstream", "app", "app,warpstream_az=use1-az1"),
        ("warpstream", "app,ws_host_override=h", "app,ws_host_override=h,warpstream_az=use1-az1"),
    ],
)
def test_each_vendor_has_its_form_and_it_is_added_once(vendor: Any, client_id: str, expected: str) -> None:
    found = client_id_with_zone(vendor, client_id, "use1-az1")
    assert found == expected
    assert client_id_with_zone(vendor, found, "use1-az1") == found
    with pytest.raises(ConfigError, match=r"has [a-z_]+=use1-az1 already, and the rack is 'use1-az2'"):
        client_id_with_zone(vendor, found, "use1-az2")


def test_what_automq_reads_is_what_was_given() -> None:
    written = client_id_with_zone("automq", "a&b=c", "zone/1")
    assert parse_qs(written) == {"automq_az": ["zone/1"], "automq_client_id": ["a&b=c"]}
    assert client_id_with_zone("automq", written, "zone/1") == written


def test_a_key_that_only_ends_alike_is_another_one() -> None:
    assert client_id_with_zone("bufstream", "app,my_zone=x", "a") == "app,my_zone=x,zone=a"


@pytest.mark.parametrize("vendor", ["automq", "bufstream", "inkless", "warpstream"])
def test_without_a_client_id_there_is_nothing_to_add_the_zone_to(vendor: Any) -> None:
    with pytest.raises(ConfigError, match="the client ID is empty: name the client"):
        client_id_with_zone(vendor, "", "a")


@pytest.mark.parametrize("zone", [None, ""])
def test_without_a_rack_there_is_nothing_to_tell(zone: str | None) -> None:
    with pytest.raises(ConfigError, match="warpstream needs the rack of this client: set client_rack"):
        client_id_with_zone("warpstream", "app", zone)


@pytest.mark.parametrize("zone", ["a,b", "a=b", "a b", "a;b", "a&b", "a\nb"])
def test_a_zone_that_would_be_read_otherwise_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match="must have no delimiter"):
        client_id_with_zone("inkless", "app", zone)


class Zone(str, Enum):
    """Names of zones as applications list them."""

    FIRST = "use1-az1"


def test_a_zone_of_an_enumeration_is_written_as_its_value() -> None:
    assert client_id_with_zone("warpstream", "app", Zone.FIRST) == "app,warpstream_az=use1-az1"
    assert client_id_with_zone("automq", "app", Zone.FIRST) == "automq_az=use1-az1&automq_client_id=app"
    assert f"{resolve_rack(Zone.FIRST)}" == "use1-az1"


@pytest.mark.parametrize(("client_id", "zone"), [(None, "a"), (5, "a"), (b"app", "a"), ("app", 5), ("app", b"a")])
def test_what_is_no_text_is_refused(client_id: Any, zone: Any) -> None:
    with pytest.raises(ConfigError, match=r"zone_hint: the (client ID|zone) must be a string, got "):
        client_id_with_zone("warpstream", client_id, zone)


@pytest.mark.parametrize("vendor", ["kafka", "", None, 3, "WarpStream", ["automq"]])
def test_unknown_vendors_are_named_with_those_there_are(vendor: Any) -> None:
    with pytest.raises(ConfigError, match="expected one of automq, bufstream, inkless, warpstream"):
        client_id_with_zone(vendor, "app", "a")
