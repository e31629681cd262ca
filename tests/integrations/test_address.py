"""Whose request it is: what a client writes about itself is never believed."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchlimit.integrations.address import TrustedProxies, network, parse

PROXY, CLIENT = "10.0.0.1", "203.0.113.9"
TRUSTED = TrustedProxies(["10.0.0.0/8", "fd00::/8"])
RFC7239 = TrustedProxies(["10.0.0.0/8"], header="forwarded")


def x(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", value.encode("latin-1")) for value in values]


def forwarded(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"forwarded", value.encode("latin-1")) for value in values]


@pytest.mark.parametrize(
    ("peer", "values", "client"),
    [
        (CLIENT, [], CLIENT),
        (CLIENT, ["1.1.1.1"], CLIENT),  # the client itself speaks: what it writes is its own affair
        (PROXY, [], PROXY),
        (PROXY, [CLIENT], CLIENT),
        (PROXY, [f"1.1.1.1, {CLIENT}"], CLIENT),  # the left end is forged
        (PROXY, [f"{CLIENT}, 10.0.0.7, 10.0.0.8"], CLIENT),  # a chain
        (PROXY, [f"1.1.1.1, {CLIENT}, 10.0.0.7"], CLIENT),
        (PROXY, ["1.1.1.1", CLIENT], CLIENT),  # several lines are one
        (PROXY, [CLIENT, "10.0.0.7"], CLIENT),
        (PROXY, ["10.0.0.7"], "10.0.0.7"),  # nobody but proxies
        (PROXY, [f"{CLIENT}:51000"], CLIENT),
        (PROXY, ["[2001:db8::1]:443"], "2001:db8::1"),
        (PROXY, ["2001:db8::1"], "2001:db8::1"),
        (PROXY, [f"::ffff:{CLIENT}"], CLIENT),
        ("::ffff:10.0.0.1", [CLIENT], CLIENT),
        ("fd00::5", [CLIENT], CLIENT),
        (PROXY, ["garbage"], PROXY),  # all who write garbage share the limit of their proxy
        (PROXY, [f"{CLIENT}, garbage"], PROXY),
        (PROXY, [f"garbage, {CLIENT}"], CLIENT),
        (PROXY, [f"{CLIENT}, garbage, 10.0.0.7"], "10.0.0.7"),
        (PROXY, ["unknown"], PROXY),
        (PROXY, [""], PROXY),
        (PROXY, [","], PROXY),
        (PROXY, [f"{CLIENT},"], PROXY),
        (PROXY, ["203.0.113.009"], PROXY),  # an octal number to some
        (PROXY, ["1.2.3"], PROXY),
        (PROXY, [f"{CLIENT}:99999999"], PROXY),
        (PROXY, ["\xff\xfe"], PROXY),
        ("garbage", [CLIENT], "garbage"),
        (None, [CLIENT], None),
    ],
)
def test_the_client_is_the_first_from_the_right_that_is_no_trusted_proxy(peer: Any, values: Any, client: Any) -> None:
    assert TRUSTED.client(peer, x(*values)) == client


@pytest.mark.parametrize(
    ("networks", "values", "client"),
    [
        (["unix"], [CLIENT], CLIENT),
        (["unix"], [f"{CLIENT}, 10.0.0.1"], "10.0.0.1"),
        (["unix", "10.0.0.0/8"], [f"{CLIENT}, 10.0.0.1"], CLIENT),
        (["unix"], [], None),
        (["unix"], ["garbage"], None),
        (["10.0.0.0/8"], [CLIENT], None),
    ],
)
def test_a_proxy_at_a_unix_socket_is_trusted_by_name(networks: list[str], values: list[str], client: str) -> None:
    assert TrustedProxies(networks).client(None, x(*values)) == client


@pytest.mark.parametrize(("hops", "client"), [(1, "10.0.0.7"), (2, "10.0.0.8"), (3, CLIENT), (None, CLIENT)])
def test_no_more_than_so_many_hops_are_believed(hops: int | None, client: str) -> None:
    proxies = TrustedProxies(["10.0.0.0/8"], hops=hops)
    assert proxies.client(PROXY, x(f"{CLIENT}, 10.0.0.8, 10.0.0.7")) == client


def test_a_hundred_hops_are_read_and_no_more() -> None:
    chain = ", ".join(["10.0.0.7"] * 99)
    assert TRUSTED.client(PROXY, x(f"{CLIENT}, {chain}")) == CLIENT
    assert TRUSTED.client(PROXY, x(f"{CLIENT}, {chain}, 10.0.0.7")) == "10.0.0.7"
    assert TRUSTED.client(PROXY, x("10.0.0.7," * 1_000_000 + "10.0.0.7")) == "10.0.0.7"


@pytest.mark.parametrize(
    ("values", "client"),
    [
        ([f"for={CLIENT}"], CLIENT),
        ([f"for=1.1.1.1, for={CLIENT};proto=https;by=10.0.0.1"], CLIENT),
        ([f'proto=http;For="{CLIENT}:4711"'], CLIENT),
        (['for="[2001:db8:cafe::17]:4711"'], "2001:db8:cafe::17"),
        ([f"for={CLIENT}, for=10.0.0.7"], CLIENT),
        (["for=1.1.1.1", f"for={CLIENT}"], CLIENT),
        (["for=unknown"], PROXY),
        (["for=_hidden"], PROXY),
        (["proto=https"], PROXY),
        ([f"for={CLIENT};for=1.1.1.1"], PROXY),
        ([f'for="1.1.1.1, for={CLIENT}'], CLIENT),  # a quote that the client left open hides nothing
        ([f'for="1.1.1.1\\, for={CLIENT}'], CLIENT),
        ([f'for=1.1.1.1;x="a,b", for={CLIENT};host="a,for=8.8.8.8;"'], CLIENT),
        ([""], PROXY),
    ],
)
def test_forwarded_is_read_from_the_right(values: list[str], client: str) -> None:
    assert RFC7239.client(PROXY, forwarded(*values)) == client


def test_the_field_that_the_proxies_do_not_write_is_not_read() -> None:
    assert TRUSTED.client(PROXY, [*forwarded("for=1.1.1.1"), *x(CLIENT)]) == CLIENT
    assert RFC7239.client(PROXY, [*x("1.1.1.1"), *forwarded(f"for={CLIENT}")]) == CLIENT
    assert TRUSTED.client(PROXY, [(b"x_forwarded_for", b"1.1.1.1"), (b"x-real-ip", b"1.1.1.1")]) == PROXY


@given(st.lists(st.binary(max_size=60), max_size=5), st.sampled_from(["x-forwarded-for", "forwarded"]))
def test_whatever_a_client_writes_before_it_the_entry_of_the_proxy_decides(before: list[bytes], header: Any) -> None:
    proxies = TrustedProxies(["10.0.0.0/8"], header=header)
    entry = CLIENT.encode() if header == "x-forwarded-for" else b"for=" + CLIENT.encode()
    written = [(header.encode(), value) for value in before]
    assert proxies.client(PROXY, [*written, (header.encode(), entry)]) == CLIENT
    joined = b",".join([*before, entry])
    assert proxies.client(PROXY, [(header.encode(), joined)]) == CLIENT


@given(st.lists(st.binary(max_size=60), max_size=5), st.sampled_from(["x-forwarded-for", "forwarded"]))
def test_garbage_is_an_address_or_the_proxy_and_never_an_error(values: list[bytes], header: Any) -> None:
    client = TrustedProxies(["10.0.0.0/8"], header=header).client(PROXY, [(header.encode(), each) for each in values])
    assert client is not None
    ipaddress.ip_address(client)


@pytest.mark.parametrize(
    ("address", "limited"),
    [
        (CLIENT, CLIENT),
        (f"::ffff:{CLIENT}", CLIENT),
        ("::FFFF:cb00:7109", CLIENT),
        ("2001:db8:0:12ff:1:2:3:4", "2001:db8:0:1200::/56"),
        ("2001:DB8::1", "2001:db8::/56"),
        ("2001:0db8:0000::0001", "2001:db8::/56"),
        ("fe80::1%eth0", "fe80::/56"),
        ("64:ff9b::cb00:7109", CLIENT),  # NAT64
        (f"64:ff9b::{CLIENT}", CLIENT),
        ("64:ff9b:1::cb00:7109", "64:ff9b:1::/56"),  # an operator's own: where in it the address stands, nobody knows
        ("2002:cb00:7109:12ff::1", CLIENT),  # 6to4
        ("2001:0:4136:e378:8000:63bf:34ff:8ef6", CLIENT),  # Teredo
        ("::1", "::/56"),
        ("testclient", "testclient"),
    ],
)
def test_an_address_is_limited_by_itself_or_by_its_network(address: str, limited: str) -> None:
    assert network(address) == limited


@given(st.ip_addresses(v=6), st.integers(0, 2**72 - 1))
def test_addresses_of_one_56_are_one_client(address: ipaddress.IPv6Address, host: int) -> None:
    neighbour = ipaddress.IPv6Address((int(address) >> 72 << 72) + host)
    one, other = network(str(address)), network(str(neighbour))
    assert one == other or ":" not in one or ":" not in other  # those that stand for IPv4 addresses


def test_no_proxy_is_trusted_by_an_address_that_it_only_carries() -> None:
    carried = "64:ff9b::10.0.0.7"
    assert TrustedProxies(["10.0.0.0/8"]).client(carried, [(b"x-forwarded-for", CLIENT.encode())]) == carried


def test_how_many_bits_count_can_be_told() -> None:
    assert network("2001:db8:1:2::3", 128) == "2001:db8:1:2::3"
    assert network("2001:db8:1:2::3", 64) == "2001:db8:1:2::/64"


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_every_spelling_of_an_address_is_the_same_address(address: Any) -> None:
    plain = parse(str(address))
    assert plain is not None
    assert parse(address.exploded) == parse(f" {str(address).upper()}\t") == plain
    if isinstance(address, ipaddress.IPv6Address):
        assert parse(f"[{address}]:65535") == plain


@pytest.mark.parametrize(
    ("networks", "options", "error"),
    [
        ([], {}, ValueError),
        (["10.0.0.1/8"], {}, ValueError),
        (["proxy.example"], {}, ValueError),
        ("10.0.0.0/8", {}, TypeError),
        (["10.0.0.0/8"], {"hops": 0}, ValueError),
        (["10.0.0.0/8"], {"header": "x-real-ip"}, ValueError),
    ],
)
def test_what_cannot_work_is_told_when_it_is_made(networks: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        TrustedProxies(networks, **options)
